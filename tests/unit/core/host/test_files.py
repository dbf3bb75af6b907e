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
