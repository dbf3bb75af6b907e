"""What a rollback does with files that others have changed: one row for each way."""

import os

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.host import backup, backup_paths

SUFFIX = ".safeupdate-u1"
NEWER, ASIDE, BACK = "newer", "aside", "back"


@pytest.fixture
def tree(tmp_path):
    """A directory of configuration, one of other files, and a backup of both."""
    for name in ("conf", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "state").mkdir()
    return tmp_path


def _write(path, content):
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(content)


# What a file has before the update, when the update has left it, and at the rollback; what
# becomes of it in a directory of the configuration, and elsewhere.
WAYS = [
    # Nobody, or only the update.
    ("old", "old", "old", BACK, BACK),
    ("old", "update", "update", BACK, BACK),
    ("old", None, None, BACK, BACK),
    (None, "update", "update", BACK, BACK),
    # Somebody else.
    ("old", "old", "other", NEWER, ASIDE),
    ("old", "old", None, NEWER, BACK),
    (None, None, "other", NEWER, ASIDE),
    # Both: the old minion has to come up.
    ("old", "update", "other", ASIDE, ASIDE),
    ("old", "update", None, BACK, BACK),
    ("old", None, "other", ASIDE, ASIDE),
    (None, "update", "other", ASIDE, ASIDE),
    (None, "update", None, BACK, BACK),
    # Somebody else did what the rollback does.
    ("old", "update", "old", BACK, BACK),
]


@pytest.mark.parametrize("place", ["conf", "other"])
@pytest.mark.parametrize(("before", "left", "now", "in_conf", "elsewhere"), WAYS)
def test_every_way(tree, place, before, left, now, in_conf, elsewhere):
    path = tree / place / "a"
    paths = [str(tree / "conf"), str(tree / "other")]
    _write(path, before)
    manifest = backup.save(paths, str(tree / "state" / "b"))
    _write(path, left)
    backup.mark(manifest)
    _write(path, now)
    os.utime(tree / place, ns=(1, 1))
    expected = in_conf if place == "conf" else elsewhere

    for _ in range(2):
        # Packages may put back files, too; the second time is as after a crash.
        present = backup.save(paths, str(tree / "state" / "present"))
        _write(path, "of the old package")
        keep = [str(tree / "conf")]
        done = backup.restore(manifest, present=present, keep=keep, suffix=SUFFIX)
        there = path.read_text() if path.exists() else None
        aside = tree / place / f"a{SUFFIX}"
        assert there == (now if expected == NEWER else before)
        assert done.newer == ((str(path),) if expected == NEWER else ())
        assert done.aside == ((str(aside),) if expected == ASIDE else ())
        assert aside.exists() == (expected == ASIDE)
        if expected == ASIDE:
            assert aside.read_text() == now


def _restore(tree, manifest):
    present = backup.save([str(tree / "conf")], str(tree / "state" / "present"))
    return backup.restore(manifest, present=present, keep=[str(tree / "conf")], suffix=SUFFIX)


def test_without_a_note_all_is_as_before(tree):
    """So it is if the process died before it made one."""
    (tree / "conf" / "a").write_text("old")
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    (tree / "conf" / "a").write_text("other")
    (tree / "conf" / "b").write_text("other")
    done = _restore(tree, manifest)
    assert (done.newer, done.aside) == ((), ())
    assert os.listdir(tree / "conf") == ["a"]
    assert (tree / "conf" / "a").read_text() == "old"


def test_only_the_first_note_counts(tree):
    path = tree / "conf" / "a"
    path.write_text("old")
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    backup.mark(manifest)
    path.write_text("other")
    backup.mark(manifest)
    assert _restore(tree, manifest).newer == (str(path),)


def test_a_note_that_cannot_be_read_stops_before_anything_is_changed(tree):
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    (tree / "state" / "b" / "left.json").write_text("{")
    (tree / "conf" / "a").write_text("other")
    with pytest.raises(VerificationError, match="Nothing is restored"):
        _restore(tree, manifest)
    assert (tree / "conf" / "a").exists()


def test_a_time_alone_is_no_change(tree):
    path = tree / "conf" / "a"
    path.write_text("old")
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    backup.mark(manifest)
    os.utime(path, ns=(5, 5))
    assert _restore(tree, manifest).newer == ()
    assert path.stat().st_mtime_ns != 5


def test_a_directory_of_the_update_with_a_file_of_somebody(tree):
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    made = tree / "conf" / "made.d"
    made.mkdir()
    (made / "update").write_text("update")
    backup.mark(manifest)
    (made / "mine").write_text("other")
    done = _restore(tree, manifest)
    assert done.newer == (str(made / "mine"),)
    assert done.removed == (str(made / "update"),)
    assert os.listdir(made) == ["mine"]


def test_made_anew_it_has_what_is_there_now(tree):
    path = tree / "conf" / "a"
    path.write_text("old")
    backup.save([str(tree / "conf")], str(tree / "state" / "b"))
    path.write_text("by a job meanwhile")
    manifest = backup.save([str(tree / "conf")], str(tree / "state" / "b"), anew=True)
    path.write_text("update")
    backup.restore(manifest)
    assert path.read_text() == "by a job meanwhile"


def test_the_configuration_of_a_minion():
    paths = backup_paths.of_minion(config_file="/x/minion", pki_dir="/x/pki", cache_dir="/c")
    assert backup_paths.configuration([*paths, "/srv/more"]) == (
        "/x/minion",
        "/x/minion.d",
        "/x/minion_id",
        "/x/grains",
    )
