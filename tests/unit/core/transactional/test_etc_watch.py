import os
from unittest.mock import Mock

import pytest

from saltext_safeupdate.core.transactional import etc_watch
from saltext_safeupdate.core.transactional.etc_watch import Entry, EtcWatch, lost_edits


def entry(size, mtime, changed, mode=0o100644):
    return Entry(mode=mode, owner=(0, 0), size=size, mtime=mtime, changed=changed)


A = entry(5, 1000, 1)
EDITED = entry(6, 2000, 1)
COPIED = entry(5, 1000, 9)  # as before, but written anew, in place
OTHER = entry(7, 3000, 9)


def test_lost_edits():
    def lost(before, seen, after):
        return lost_edits(*({"f": entry} if entry != () else {} for entry in (before, seen, after)))

    assert lost(A, (), A) == {}
    assert lost(A, EDITED, EDITED) == {}
    assert "as it was before" in lost(A, EDITED, COPIED)["f"]
    assert "was replaced" in lost(A, EDITED, OTHER)["f"]
    assert "is there again" in lost(A, None, COPIED)["f"]
    assert lost((), EDITED, EDITED) == {}
    assert lost((), entry(6, 2000, 3), EDITED) == {}  # copied, with the same content
    assert "as it was before" in lost(A, entry(5, 1000, 3, 0o100600), COPIED)["f"]
    assert "is gone" in lost_edits({}, {"f": EDITED}, {})["f"]
    assert "edited or deleted" in lost(A, (), COPIED)["f"]  # between the last look and the copy
    assert lost(A, (), OTHER) == {}  # the transaction's own change


def test_a_watch(tmp_path):
    etc, copies = tmp_path / "etc", tmp_path / "base/copies"
    (etc / "sub").mkdir(parents=True)
    (etc / "sub/edited").write_text("before")
    watch = EtcWatch(etc, copies)
    watch.start()
    watch.look()
    assert (watch.seen, watch.changed()) == ({}, False)
    (etc / "sub/edited").write_text("edited!")
    (etc / "new").write_text("new")
    (etc / ".new.aB3dE9").write_text("of rsync")
    (etc / "link").symlink_to("/dev/null")
    watch.look()
    assert watch.changed()
    assert set(watch.seen) == {str(etc / name) for name in ("sub/edited", "new", "link")}
    (etc / "new").unlink()
    lost = watch.finish(merged=True)
    assert list(lost) == [str(etc / "new")]
    kept = watch.copy_of(str(etc / "new"))
    assert kept.read_text() == "new"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert list(copies.iterdir()) == [kept]


def test_what_the_transaction_left_alone_is_put_back(tmp_path):
    etc, copies = tmp_path / "etc", tmp_path / "base/copies"
    etc.mkdir()
    for name in ("edited", "removed", "both", "late"):
        (etc / name).write_text("before")
        os.utime(etc / name, ns=(1, 1))
    watch = EtcWatch(etc, copies)
    watch.start()
    (etc / "removed").unlink()
    for name in ("edited", "created", "both", "both-created"):
        (etc / name).write_text("edited live")
        (etc / name).chmod(0o640)
    os.setxattr(etc / "edited", "user.label", b"live")
    os.utime(etc / "edited", ns=(7, 7))
    watch.look()
    (etc / "late").write_text("half")  # it was looked at once
    watch.look()
    # The tool copies the /etc of the snapshot over it.
    (etc / "created").unlink()
    for name in ("edited", "removed", "late"):
        (etc / name).write_text("before")
        (etc / name).chmod(0o644)
        os.utime(etc / name, ns=(1, 1))
    for name in ("both", "both-created"):
        (etc / name).write_text("of the transaction")
    lost = watch.finish(merged=True)

    assert set(lost) == {str(etc / name) for name in ("both", "both-created", "late", "removed")}
    assert "was deleted meanwhile" in lost[str(etc / "removed")]
    assert "was created meanwhile, and was replaced" in lost[str(etc / "both-created")]
    assert sorted(watch.put_back) == [str(etc / name) for name in ("created", "edited")]
    assert {path.name for path in etc.iterdir()} == {
        *("edited", "created", "both", "both-created", "late", "removed")
    }
    found = (etc / "edited").stat()
    assert ((etc / "edited").read_text(), found.st_mode & 0o777) == ("edited live", 0o640)
    assert (found.st_mtime_ns, os.getxattr(etc / "edited", "user.label")) == (7, b"live")
    assert (etc / "created").read_text() == "edited live"
    assert (etc / "late").read_text() == "before"
    assert len(list(copies.iterdir())) == len(lost) - 1  # one that was deleted has no copy


def test_what_cannot_be_put_back_is_lost_and_kept(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    (etc / "new.d").mkdir()
    (etc / "new.d/file").write_text("live")
    watch.look()
    watch.look()
    (etc / "new.d/file").unlink()
    (etc / "new.d").rmdir()
    assert list(watch.finish(merged=True)) == [str(etc / "new.d/file")]
    assert watch.copy_of(str(etc / "new.d/file")).read_text() == "live"


def test_a_late_edit_of_a_file_that_is_written_in_place(tmp_path):
    """Its inode stays; the tool puts size and time back; only the change time tells."""
    etc = tmp_path / "etc"
    etc.mkdir()
    for name in ("edited", "labelled", "same"):
        (etc / name).write_text("before")
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    then = (etc / "edited").stat()
    (etc / "edited").write_text("late")
    (etc / "edited").write_text("before")
    os.utime(etc / "edited", ns=(then.st_atime_ns, then.st_mtime_ns))
    os.setxattr(etc / "labelled", "user.label", b"of the transaction")
    assert list(watch.finish(merged=True)) == [str(etc / "edited")]


def test_a_look_while_the_tool_merges_notes_nothing(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    (etc / "half").write_text("of the tool")
    watch.look(lambda: False)
    assert watch.seen == {}


def test_without_a_merge_nothing_is_lost(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    (etc / "new").write_text("new")
    watch.look()
    (etc / "new").unlink()
    assert watch.finish(merged=False) == {}
    assert not (tmp_path / "copies").exists()


def test_a_copy_that_cannot_be_kept_stops_nothing(tmp_path, caplog):
    etc = tmp_path / "etc"
    etc.mkdir()
    (tmp_path / "file").touch()
    watch = EtcWatch(etc, tmp_path / "file" / "copies")
    watch.start()
    (etc / "new").write_text("new")
    watch.look()
    assert "no copy of the edited" in caplog.text
    assert list(watch.seen) == [str(etc / "new")]


def test_large_files_and_many_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(etc_watch, "COPY_LIMIT", 10)
    monkeypatch.setattr(etc_watch, "COPY_COUNT", 2)
    etc = tmp_path / "etc"
    etc.mkdir()
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    (etc / "large").write_text("x" * 11)
    os.mkfifo(etc / "fifo")
    watch.look()
    assert not (tmp_path / "copies").exists()
    for number in range(5):
        (etc / str(number)).touch()
    watch.look()
    assert len(watch.seen) == 7
    assert not (tmp_path / "copies").exists()


class Scanned:
    """A directory as ``scandir`` gives it; *fails* says which error an entry's look raises."""

    def __init__(self, path, fails):
        with REAL_SCANDIR(path) as entries:
            self.entries = sorted(entries, key=lambda entry: entry.name)
        self.fails = fails

    def __enter__(self):
        return map(self.shown, self.entries)

    def __exit__(self, *_):
        pass

    def shown(self, entry):
        fake = Mock(spec=["path", "stat"], path=entry.path)
        fake.stat.side_effect = self.fails.get(entry.name, entry.stat)
        return fake


REAL_SCANDIR = os.scandir


@pytest.mark.parametrize(
    "error", [FileNotFoundError("gone"), PermissionError("no"), OSError(5, "")]
)
def test_one_file_that_cannot_be_looked_at_makes_no_other_a_deleted_one(
    tmp_path, monkeypatch, error
):
    """A file that vanished in the middle of a look once had the rest of its directory deleted."""
    etc = tmp_path / "etc"
    etc.mkdir()
    for name in ("a", "m", "shadow", "z"):
        (etc / name).write_text(name)
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()
    monkeypatch.setattr(etc_watch.os, "scandir", lambda path: Scanned(path, {"m": error}))
    watch.look()
    watch.look()
    monkeypatch.setattr(etc_watch.os, "scandir", REAL_SCANDIR)
    assert set(watch.seen) <= {str(etc / "m")}
    lost = watch.finish(merged=True)
    assert lost == {} or "there again" in lost[str(etc / "m")]
    assert {path.name for path in etc.iterdir()} == {"a", "m", "shadow", "z"}


def test_a_directory_that_cannot_be_read_is_not_judged(tmp_path, monkeypatch):
    etc = tmp_path / "etc"
    (etc / "sub").mkdir(parents=True)
    for name in ("sub/file", "edited"):
        (etc / name).write_text("before")
    watch = EtcWatch(etc, tmp_path / "copies")
    watch.start()

    def scan(path):
        if str(path).endswith("/sub"):
            raise PermissionError("no")
        return REAL_SCANDIR(path)

    monkeypatch.setattr(etc_watch.os, "scandir", scan)
    assert not watch.changed()
    (etc / "edited").write_text("edited")
    watch.look()
    assert set(watch.seen) == {str(etc / "edited")}
    monkeypatch.setattr(etc_watch.os, "scandir", REAL_SCANDIR)
    assert watch.finish(merged=True) == {}
