import ctypes
import errno
import os
import stat

import pytest

from saltext_safeupdate.core.host import files


def test_a_file_is_written_with_its_mode(tmp_path):
    path = tmp_path / "a"
    files.write_atomic(str(path), "text\n", mode=0o644)
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_is_private_where_nothing_else_is_said(tmp_path):
    files.write_atomic(str(tmp_path / "a"), "")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_file_is_replaced_whole_and_not_written_into(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    os.link(path, other)
    files.write_atomic(str(path), "new")
    assert (path.read_text(), other.read_text()) == ("new", "old")


def test_it_is_on_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("replace"), replace(*a)))
    files.write_atomic(str(tmp_path / "a"), "x")
    assert done == ["fsync", "replace", "fsync"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(str(path), "new")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "old"


def test_remove_says_whether_there_was_something(tmp_path):
    path = tmp_path / "a"
    path.write_text("")
    assert files.remove(str(path))
    assert not files.remove(str(path))


def test_a_private_directory_is_private_with_those_above_it(tmp_path):
    for _ in range(2):
        files.make_private(str(tmp_path / "a" / "b"))
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_private_file_is_made_once_and_never_emptied(tmp_path):
    path = tmp_path / "a"
    for text in (b"x", b"y"):
        fd = files.open_private(str(path))
        assert not os.get_inheritable(fd)
        os.write(fd, text)
        os.close(fd)
    assert path.read_text() == "y"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.close(files.open_private(str(path)))
    assert path.read_text() == "y"


def test_only_root_gives_away_and_no_link_to_another_file(tmp_path, monkeypatch):
    """The owner of a directory may put anything into it."""
    given = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda fd, uid, gid: given.append((uid, gid)))
    stats = os.stat, os.fstat

    def changed(info, uid):
        return os.stat_result([*info[:4], uid, 65534, *info[6:10]])

    monkeypatch.setattr(os, "stat", lambda path: changed(stats[0](path), 65534))
    monkeypatch.setattr(os, "fstat", lambda fd: changed(stats[1](fd), 0))
    for name in ("file", "other", "linked"):
        (tmp_path / name).touch()
    (tmp_path / "symbolic").symlink_to(tmp_path / "other")
    os.link(tmp_path / "linked", tmp_path / "linked2")
    for name in ("symbolic", "linked", "gone"):
        files.give_to_owner(str(tmp_path / name))
    assert given == []
    files.give_to_owner(str(tmp_path / "file"))
    assert given == [(65534, 65534)]
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    files.give_to_owner(str(tmp_path / "file"))
    assert len(given) == 1


def test_many_files_that_cannot_be_synced_are_an_error(tmp_path, monkeypatch):
    class Failing:
        def syncfs(self, fd):
            ctypes.set_errno(errno.ENOSPC)
            return -1

    monkeypatch.setattr(files.ctypes, "CDLL", lambda *args, **kwargs: Failing())
    paths = [str(tmp_path / str(number)) for number in range(200)]
    with pytest.raises(OSError, match="No space left"):
        files.sync_files(paths)
    with pytest.raises(FileNotFoundError):
        files.sync_files(paths[:1])
