import os

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
