import os

import pytest

from saltext_safeupdate.core.generations import activation
from saltext_safeupdate.core.generations.activation import ByRestart
from saltext_safeupdate.core.prepare.revisions import Revisions, files
from saltext_safeupdate.core.record.parts import WayBack
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from tests.support.simulated import FakePackages, FakeTransactional


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def revisions(state):
    store = Store(str(state / "safeupdate.db"))
    return Revisions(str(state), store, ByRestart(FakePackages(salt="1")))


def _update(update_id, carried):
    return Update(id=update_id, kind="update", versions_from={"salt": "1"}, way_back=carried)


def test_what_is_secured_is_for_root_only(revisions, state):
    carried = revisions.secure("u1", ["salt"])
    (file,) = files(carried.files)
    assert (file.package, file.version) == ("salt", "1")
    assert os.path.dirname(file.path) == str(state / "revisions" / "u1")
    for path in (state / "revisions", state / "revisions" / "u1"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_why_nothing_can_be_secured(state, revisions):
    revisions._activation.installer.secures = False
    assert "no copy can be had" in revisions.secure("u1", ["salt"]).missing
    assert "no package" in revisions.secure("u1", []).missing
    (state / "revisions").rename(state / "gone")
    (state / "revisions").write_text("in the way")
    assert "Not a directory" in revisions.secure("u1", ["salt"]).missing


def test_without_room_nothing_is_copied(state, tmp_path):
    """Jobs that run meanwhile have to be recorded on the same file system."""
    (tmp_path / "config").write_bytes(b"x" * (2 << 20))
    system = list(os.statvfs(tmp_path))
    system[1], system[4] = 4096, (133 << 20) // 4096  # f_frsize, f_bavail
    packages = FakePackages(salt="1")
    packages.takes_to_secure = 100 << 20
    revisions = Revisions(
        *(str(state), Store(str(state / "safeupdate.db")), ByRestart(packages)),
        statvfs=lambda _: os.statvfs_result(system),
    )
    missing = revisions.secure("u1", ["salt"], [str(tmp_path / "config")]).missing
    assert "133 MiB free, and 134 MiB are needed. Free 1 MiB" in missing
    assert not (state / "revisions").exists()
    assert revisions.secure("u1", ["salt"]).files


def test_the_previous_one_stays_and_others_go(revisions, state):
    for name in ("u1", "u2", "u3"):
        update = _update(name, revisions.secure(name, ["salt"]))
        if name == "u2":
            revisions.keep(update)
    revisions.prune()
    assert os.listdir(state / "revisions") == ["u2"]
    assert revisions.previous().versions == {"salt": "1"}
    revisions.prune()


def test_what_is_kept_besides(revisions, state):
    for name in ("u1", "u2"):
        revisions.secure(name, ["salt"])
    revisions.prune({"u1"})
    assert os.listdir(state / "revisions") == ["u1"]


def test_a_previous_one_whose_files_are_gone_is_none(revisions, state):
    assert revisions.previous() is None
    carried = revisions.secure("u1", ["salt"])
    revisions.keep(_update("u1", carried))
    os.unlink(carried.files[0][2])
    assert revisions.previous() is None


def test_an_update_without_a_way_back_does_not_replace_it(revisions):
    revisions.keep(_update("u1", revisions.secure("u1", ["salt"])))
    revisions.keep(_update("u2", WayBack(missing="why")))
    assert revisions.previous().update == "u1"


def test_a_snapshot_is_the_way_back_where_there_are_some(state):
    packages = FakeTransactional(salt="1")
    store = Store(str(state / "safeupdate.db"))
    revisions = Revisions(str(state), store, activation.of(packages, packages))
    carried = revisions.secure("u1", ["salt"])
    assert carried.snapshot == {"number": 1, "ident": 257}
    assert carried.files == ()
    packages.snapshots.add(1, {"salt": "2"})
    packages.snapshots.now = 2
    revisions.keep(_update("u1", carried))
    assert revisions.previous().active == {"number": 2, "ident": 258}
    # Kept again, in another snapshot: it stays the one that the update made.
    packages.snapshots.add(2, {})
    packages.snapshots.now = 3
    revisions.keep(_update("u1", carried))
    assert revisions.previous().active == {"number": 2, "ident": 258}
    del packages.snapshots.contents[1]
    assert revisions.previous() is None
