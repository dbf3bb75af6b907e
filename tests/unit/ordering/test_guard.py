"""The guard in front of the functions that open a transaction of a transactional system."""

import sys
from dataclasses import replace

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate import factory
from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.slots.store import Slot
from saltext_safeupdate.core.transactional import closing
from saltext_safeupdate.core.transactional.roots import Subvolume
from saltext_safeupdate.ordering.following import Following
from saltext_safeupdate.ordering.guard import Guard
from saltext_safeupdate.ordering.own_packages import OwnPackages
from saltext_safeupdate.ordering.quarantine import Quarantine
from saltext_safeupdate.this_host import Host
from tests.support.simulated import UNIT_FILE, FakePackages, FakeServices, FakeTransactional

FUN = "transactional_update.pkg_update"
OLD, NEW = "3007.15", "3008.3"


class SimulatedHost(Host):
    """The real one, with a simulated package manager and init system."""

    manager = None
    services = None
    armed = launched = 0

    def own(self):
        return Own(frozenset({"salt-minion"}), False)

    def arm(self, copies):
        self.armed += 1

    def launch(self):
        self.launched += 1
        self.supervisor = locks.Lock(self.settings.run_dir, "supervisor")
        assert self.supervisor.try_exclusive()


@pytest.fixture
def host(tmp_path, monkeypatch):
    places = {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")}
    made = SimulatedHost({"id": "minion", "multiprocessing": False, "safeupdate": places})
    made.manager = FakeTransactional(**{"salt-minion": OLD})
    made.services = FakeServices()
    monkeypatch.setattr(factory, "launch", lambda host: host.launch())
    monkeypatch.setattr(factory, "arm", lambda host, copies: host.arm(copies))
    return made


def _call(host, versions=None, base=None):
    """Call FUN, which puts *versions* into a new snapshot of *base*, as the tool does."""

    def original(name, **kwargs):
        if versions:
            snapshots = host.manager.snapshots
            former, start = snapshots.next, base or snapshots.now
            snapshots.add(start, versions)
            refused.append(closing.refusal(Subvolume(start, 256 + start)))
            if refused[0]:
                snapshots.next = former
        return f"printed {name} {kwargs}"

    refused = []
    return _handled(host, FUN, original, "salt-minion", args="x"), *refused


def _guard(host, own=None):
    own, quarantine = own or OwnPackages(host), Quarantine(host)
    return Guard(host, own, quarantine, Following(own, quarantine))


def _handled(host, fun, original, *args, **kwargs):
    handler = _guard(host).handlers()[fun]
    return handler(fun, original, args, kwargs)


def test_what_changes_the_own_packages_is_looked_after(host):
    said, *refused = _call(host, {"salt-minion": NEW})
    assert (said, refused) == ("printed salt-minion {'args': 'x'}", [None])
    last = host.store.latest()
    assert (last.phase, last.reason, last.versions_to) == (
        Phase.DELIVERING,
        FUN,
        {"salt-minion": NEW},
    )
    assert last.way_back.snapshot == {"number": 1, "ident": 257}
    assert host.armed == 1


def test_what_changes_others_is_not(host):
    assert _call(host, {"vim": "9"}) == ("printed salt-minion {'args': 'x'}", None)
    assert not host.store.exists()


def test_on_other_systems_nothing_is_asked(host):
    host.manager = FakePackages(**{"salt-minion": OLD})
    host.manager.installed = lambda names: pytest.fail("asked")
    assert _call(host) == ("printed salt-minion {'args': 'x'}",)


def test_a_system_that_cannot_be_asked_is_not_changed(host):
    def installed(names):
        raise CommandError(("rpm",), "exit status 1")

    host.manager.installed = installed
    with pytest.raises(CommandExecutionError, match="exit status 1"):
        _call(host, {"salt-minion": NEW})
    assert host.manager.snapshots.next == 1


def test_the_result_is_returned_even_if_the_boot_cannot_be_watched(host, caplog):
    host.launch = lambda: (_ for _ in ()).throw(CommandError(("systemd-run",), "no bus"))
    assert _call(host, {"salt-minion": NEW}) == ("printed salt-minion {'args': 'x'}", None)
    assert "the boot into the new snapshot is not watched" in caplog.text


def test_what_is_in_quarantine_may_not_stay(host):
    host.store.quarantine({"salt-minion": NEW}, "u1", "it did not start.")
    _, refused = _call(host, {"salt-minion": NEW, "vim": "9"})
    assert refused.packages == ["salt-minion"]
    assert f"salt-minion {NEW} was rolled back on this minion" in refused.reason
    assert f"safeupdate.unquarantine \"'{NEW}'\"" in refused.reason
    assert host.store.latest() is None


def test_what_was_there_before_it_went_into_quarantine_refuses_nothing(host):
    host.store.quarantine({"salt-minion": OLD}, "u1", "it did not start.")
    assert _call(host, {"vim": "9"})[1] is None


@pytest.mark.parametrize(
    ("pending", "back"),
    [({"vim": "9"}, 2), ({"salt-minion": "3007.14"}, 1)],
    ids=["of others", "of the minion, that nobody has booted"],
)
def test_the_way_back_is_what_the_transaction_started_from(host, pending, back):
    host.manager.snapshots.add(1, pending)
    _call(host, {"salt-minion": NEW}, base=2)
    assert host.store.latest().way_back.snapshot["number"] == back


APPLY, BACK = "transactional_update.apply_snapshot", "transactional_update.rollback"


def test_another_version_is_not_put_below_the_running_minion(host):
    host.manager.snapshots.add(1, {"salt-minion": NEW})
    with pytest.raises(CommandExecutionError, match=rf"Snapshot 2 .*{NEW}.*Nothing was changed"):
        _handled(host, APPLY, lambda: pytest.fail("applied"))


def test_a_snapshot_with_the_same_minion_is_applied(host):
    host.manager.snapshots.add(1, {"vim": "9"})
    assert _handled(host, APPLY, lambda: "applied") == "applied"


def test_an_update_that_is_left_before_its_boot_comes_to_its_end(host):
    _call(host, {"salt-minion": NEW})
    last = host.store.latest()
    host.supervisor.close()
    waiting = last.advance(Phase.WAITING_FOR_BOOT)
    boot = replace(waiting.boot, awaits=waiting.this_boot)
    host.store.save(replace(waiting, boot=boot))

    def rollback():
        host.manager.snapshots.next = 1

    launched = host.launched
    _handled(host, BACK, lambda: None)
    assert host.launched == launched
    _handled(host, BACK, rollback)
    assert host.launched == launched + 1


class _Gone:
    """Of a package that is gone, only what is in memory can be imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("saltext_safeupdate."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("fun", "gone"),
    [
        (FUN, "core.supervisor.adoption"),
        ("pkg.install", "core.prepare.resolution"),
        ("pkg.install", "core.supervisor.quiet_transaction"),
        ("pkg.install", "core.prepare.beside"),
        ("pkg.install", "core.host.init_system"),
        ("service.restart", "core.supervisor.asking"),
        (FUN, "core.generations.activation"),
        (APPLY, "core.generations.activation"),
        (BACK, "core.generations.activation"),
    ],
)
def test_without_a_part_of_this_package_functions_do_what_salts_do(
    host, monkeypatch, caplog, fun, gone
):
    own = OwnPackages(host)
    monkeypatch.setattr(own, "changed_by", lambda request: {"salt-minion": ("1", "2")})
    guard = _guard(host, own)
    handler = guard.handlers()[fun]
    # All others are in memory.
    assert guard._can_change()
    if gone == "core.host.init_system":
        monkeypatch.delattr(SimulatedHost, "services")
        del host.services
    parent, _, last = f"saltext_safeupdate.{gone}".rpartition(".")
    monkeypatch.delitem(sys.modules, f"{parent}.{last}", raising=False)
    monkeypatch.delattr(sys.modules[parent], last, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Gone, *sys.meta_path])

    def original(name=None, refresh=False, **kwargs):
        return f"did {name}"

    assert handler(fun, original, ("salt-minion",), {}) == "did salt-minion"
    assert "as with plain Salt" in caplog.text
    assert not host.store.exists()


@pytest.fixture
def packaged(host, monkeypatch):
    """A host of packages, whose minion can run from a slot."""
    host.manager = FakePackages(**{"salt-minion": OLD})
    host.slot = Slot(
        ident="salt-1",
        version=NEW,
        kind="onedir",
        staged=1.0,
        size=1,
        inventory="0",
        tree="/opt/slots/slots/salt-1/tree",
    )
    monkeypatch.setattr(factory, "active_slot", lambda host: host.slot)
    # Whoever gets as far as this removes it.
    monkeypatch.setattr(Guard, "transact", lambda guard, work, reason, **_: work())
    return host


def _removed(host, fun="pkg.remove"):
    return _handled(host, fun, lambda name: {name: "removed"}, "salt-minion")


@pytest.mark.parametrize("fun", ["pkg.remove", "pkg.purge"])
def test_the_unit_of_a_minion_that_runs_from_a_slot_is_not_removed(packaged, fun):
    with pytest.raises(CommandExecutionError, match=r"salt-1.*rollback to=without_slot") as raised:
        _removed(packaged, fun)
    assert UNIT_FILE in str(raised.value)
    assert "Nothing was changed" in str(raised.value)


def _no_slot(host):
    host.slot = None


def _unit_of_the_administrator(host):
    host.services.file = "/etc/systemd/system/salt-minion.service"
    host.manager.owners = lambda paths: set()


@pytest.mark.parametrize("have", [_no_slot, _unit_of_the_administrator])
def test_a_package_that_starts_no_slot_is_removed(packaged, have):
    have(packaged)
    assert _removed(packaged) == {"salt-minion": "removed"}


def test_a_package_below_a_slot_is_updated(packaged):
    packaged.manager.offers = {"salt-minion": [NEW]}
    assert _handled(packaged, "pkg.install", lambda name: {name: "new"}, "salt-minion")


def test_without_the_part_for_this_package_manager_packages_are_installed(
    host, monkeypatch, caplog
):
    def gone(self):
        raise ModuleNotFoundError("No module named 'saltext_safeupdate.core.packages.apt'")

    monkeypatch.setattr(SimulatedHost, "manager", property(gone, lambda self, value: None))
    handler = _guard(host).handlers()["pkg.install"]
    assert handler("pkg.install", lambda name: f"did {name}", ("vim",), {}) == "did vim"
    assert "as with plain Salt" in caplog.text
