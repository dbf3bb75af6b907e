"""The guard in front of the functions that open a transaction of a transactional system."""

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.factory import Factory
from saltext_safeupdate.ordering.guard import Guard
from saltext_safeupdate.ordering.own_packages import OwnPackages
from tests.support.simulated import FakePackages, FakeServices, FakeTransactional

FUN = "transactional_update.pkg_update"
OLD, NEW = "3007.15", "3008.3"


class SimulatedFactory(Factory):
    """The real one, with a simulated package manager and init system."""

    manager = None
    services = None
    armed = 0

    def own(self):
        return Own(frozenset({"salt-minion"}), False)

    def arm(self, copies):
        self.armed += 1

    def launch(self):
        self.supervisor = locks.Lock(self.settings.run_dir, "supervisor")
        assert self.supervisor.try_exclusive()


@pytest.fixture
def factory(tmp_path):
    places = {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")}
    made = SimulatedFactory({"id": "minion", "multiprocessing": False, "safeupdate": places})
    made.manager = FakeTransactional(**{"salt-minion": OLD})
    made.services = FakeServices()
    return made


def _call(factory, versions=None):
    def original(name, **kwargs):
        if versions:
            factory.manager.snapshots.add(1, versions)
        return f"printed {name} {kwargs}"

    handler = Guard(factory, OwnPackages(factory)).handlers()[FUN]
    return handler(FUN, original, ("salt-minion",), {"args": "x"})


def test_what_changes_the_own_packages_is_looked_after(factory):
    assert _call(factory, {"salt-minion": NEW}) == "printed salt-minion {'args': 'x'}"
    last = factory.store.latest()
    assert (last.phase, last.reason, last.versions_to) == (
        Phase.DELIVERING,
        FUN,
        {"salt-minion": NEW},
    )
    assert last.way_back.snapshot == {"number": 1, "ident": 257}
    assert factory.armed == 1


def test_what_changes_others_is_not(factory):
    assert _call(factory, {"vim": "9"}) == "printed salt-minion {'args': 'x'}"
    assert not factory.store.exists()


def test_on_other_systems_nothing_is_asked(factory):
    factory.manager = FakePackages(**{"salt-minion": OLD})
    factory.manager.installed = lambda names: pytest.fail("asked")
    assert _call(factory) == "printed salt-minion {'args': 'x'}"


def test_a_system_that_cannot_be_asked_is_not_changed(factory):
    def installed(names):
        raise CommandError(("rpm",), "exit status 1")

    factory.manager.installed = installed
    with pytest.raises(CommandExecutionError, match="exit status 1"):
        _call(factory, {"salt-minion": NEW})
    assert factory.manager.snapshots.next == 1


def test_the_result_is_returned_even_if_the_boot_cannot_be_watched(factory, caplog):
    factory.launch = lambda: (_ for _ in ()).throw(CommandError(("systemd-run",), "no bus"))
    assert _call(factory, {"salt-minion": NEW}) == "printed salt-minion {'args': 'x'}"
    assert "the boot into the new snapshot is not watched" in caplog.text
