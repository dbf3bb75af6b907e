"""The end of an update that has failed: the host is as it would be without this extension."""

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import room
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from tests.unit.core.conftest import NEW, OLD


def _puts_right(host, versions):
    """Have the package manager complete what it left half done, when it is asked."""

    def repairs():
        host.packages.versions = dict(versions)
        host.packages.half_done = []

    host.packages.half_done = ["salt-minion"]
    host.packages.repairs = repairs


def _failed(host, **changes):
    """Write the record of an update that has failed among the packages."""
    host.record(Phase.INSTALLING, **changes)
    return host.store.save(host.last.advance(Phase.FAILED, reason="half done: salt-minion"))


def test_packages_that_an_earlier_version_left_half_done_are_completed(host):
    _failed(host)
    _puts_right(host, NEW)
    host.supervise()
    assert host.packages.repaired == 1
    assert host.last.progress.completed
    assert host.packages.versions == NEW
    host.supervise()
    assert host.packages.repaired == 1
    host.assert_at_peace()


def test_it_is_looked_at_once(host):
    _failed(host, progress=Progress(completed=True))
    _puts_right(host, NEW)
    host.supervise()
    assert host.packages.repaired == 0


def test_packages_of_others_are_left_alone(host):
    host.record(Phase.CHECKING)
    host.store.save(host.last.advance(Phase.FAILED, reason="no such version"))
    _puts_right(host, NEW)
    host.supervise()
    assert host.packages.repaired == 0
    assert host.last.progress.completed


def test_a_rollback_that_fails_leaves_a_minion_that_runs(host):
    """Neither version can be configured."""

    def installs(files):
        host.packages.half_done = ["salt-minion"]
        raise CommandError(("dpkg",), "the postinst has failed")

    host.packages.installs = installs
    host.packages.versions = dict(NEW)
    host.packages.half_done = ["salt-minion"]
    way_back = host.secured()
    host.record(Phase.ROLLING_BACK, way_back=way_back, versions_to=dict(NEW), reason="It is ill.")
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "By hand" in host.last.reason
    assert "cannot complete salt-minion either" in host.last.reason
    assert "salt-minion was started" in host.last.reason
    assert host.services.active == "active"


@pytest.mark.parametrize(("free", "blamed"), [(10, False), (1 << 40, True)])
def test_a_full_disk_is_no_fault_of_the_version(host, monkeypatch, free, blamed):
    way_back = host.secured()
    monkeypatch.setattr(room, "free", lambda directory, *_: free)
    monkeypatch.setattr(room, "size", lambda directory: 1000)
    host.packages.versions = dict(NEW)
    host.record(
        Phase.STEPPING,
        way_back=way_back,
        versions_to=dict(NEW),
        progress=Progress(unfinished=("salt",)),
        reason="half done: salt",
    )
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert bool(host.store.quarantined()) is blamed


def test_what_cannot_be_completed_is_named(host):
    _failed(host)
    host.packages.half_done = ["salt-minion"]
    host.supervise()
    assert host.packages.repaired > 0
    assert host.last.progress.completed
    host.assert_at_peace()


@pytest.mark.parametrize(("active", "starts"), [("active", True), ("inactive", False)])
def test_the_service_runs_as_before(host, active, starts):
    _failed(host, unit={"active": active, "enabled": "enabled"}, versions_from=dict(OLD))
    host.services.stop("salt-minion")
    host.supervise()
    assert (host.services.active == "active") is starts


def test_a_package_manager_that_was_killed_has_left_work_of_others(host):
    """All of ours is in place, so only a look at the whole finds it, such as triggers."""
    host.packages.versions = dict(NEW)
    host.keep_tree()
    host.record(Phase.INSTALLING, way_back=host.secured())
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.packages.repaired == 1
