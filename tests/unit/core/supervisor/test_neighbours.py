"""Two minions that run from the same packages: one update for both."""

import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.errors import LockHeldError, LockUnavailableError, SafeUpdateError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.host.minions import Minion, register
from saltext_safeupdate.core.host.service import LastRun
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.supervisor import neighbours
from saltext_safeupdate.core.supervisor.quiet_transaction import PostponedError
from tests.support.simulated import FakeServices, Killed

from ..conftest import NEW, OLD, Host


class Units:
    """systemd with several units."""

    name = "systemd"

    def __init__(self, **units):
        self.units = units

    def __getattr__(self, name):
        def call(unit, *args):
            return getattr(self.units[unit.replace("-", "_")], name)(unit, *args)

        return call


class Both(Host):
    """A host whose minion has another one beside it."""

    def __init__(self, directory):
        super().__init__(directory)
        config = directory / "salt2" / "minion"
        config.parent.mkdir()
        config.touch()
        self.beside = FakeServices()
        # One supervisor kills or spares what it does to either.
        self.both = Units(salt_minion=self.services, salt2=self.beside)
        self.both.spawn, self.both.arm = self.services.spawn, self.services.arm
        self.both.rest, self.both.disarm = self.services.rest, self.services.disarm
        self.both.watchdog = self.services.watchdog
        self.other = Minion(
            config=str(config),
            id="other",
            unit="salt2",
            state_dir=str(directory / "state2"),
            run_dir=str(directory / "run2"),
            roots=(str(self.root),),
        )

    def context(self, taken, **kwargs):
        systems = dict.fromkeys(("services", "inhibitor", "watchdogs"), self.both)
        kwargs |= {**systems, "others": lambda roots: (self.other,)}
        return super().context(taken, **kwargs)

    def initiator(self, **kwargs):
        inhibitor = neighbours.with_units(self.both, [self.other.unit])
        given = {"services": self.both, "inhibitor": inhibitor, "others": (self.other,)}
        return super().initiator(**given, **kwargs)

    def job_of_other(self):
        lock = locks.Lock(self.other.run_dir, "jobs")
        self.open.append(lock)
        assert lock.try_shared()
        return lock

    def record_of_other(self, phase, kind="update"):
        store = Store(self.other.database)
        return store.save(Update(id="o1", kind=kind, phase=phase, created=1.0))

    def assert_at_peace(self):
        super().assert_at_peace()
        assert not self.beside.refuses
        assert not any(locks.held(self.other.run_dir, name) for name in locks.NAMES)


@pytest.fixture
def host(tmp_path):
    host = Both(tmp_path)
    yield host
    host.all_die()


def test_the_update_of_one_is_the_update_of_both(host):
    host.ask()
    seen, before = [], host.beside.invocation
    job = host.job_of_other()
    host.clock.after(20, job.close)

    def look(files):
        seen.append(host.clock.passed >= 20)
        seen.extend(locks.held(host.other.run_dir, name) for name in ("jobs", "drain"))
        seen.extend(services.refuses for services in (host.services, host.beside))

    host.packages.installs = look
    host.supervise()
    assert seen == [True] * 5
    assert (host.last.phase, host.packages.versions) == (Phase.COMMITTED, NEW)
    assert host.restarts() == ["restart"]
    assert host.beside.calls.count("restart") == 1
    assert host.beside.invocation != before
    host.assert_at_peace()


@pytest.mark.parametrize("place", ["before", "since"])
def test_a_stop_of_the_other_is_left_and_no_fault_of_the_update(host, place):
    host.ask()
    beside = host.beside

    def restart(unit):
        beside._do("restart")
        if place == "since":
            beside.run()
        beside.active, beside.pid = "inactive", 0
        beside.last, beside.left = LastRun(stopped=True), True

    beside.begin_restart = restart
    host.supervise()
    assert (host.last.phase, host.packages.versions) == (Phase.COMMITTED, NEW)
    assert beside.active == "inactive"
    host.assert_at_peace()


def test_a_job_of_the_other_that_does_not_end_postpones_it(host):
    host.ask(when="now")
    host.job_of_other()
    host.supervise()
    assert host.last.phase is Phase.POSTPONED
    assert (host.packages.versions, host.beside.calls) == (OLD, [])
    assert locks.Lock(host.other.run_dir, "drain").try_exclusive()


def test_if_the_other_does_not_come_up_both_go_back(host):
    host.ask()
    host.beside.dies_while = lambda: host.packages.versions == NEW
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert "salt2 of the minion 'other'" in host.last.reason
    assert host.packages.versions == OLD
    assert (host.services.active, host.beside.active) == ("active", "active")
    host.assert_at_peace()


def test_if_ours_does_not_come_up_the_other_goes_back_with_it(host):
    host.ask()
    host.services.dies_while = lambda: host.packages.versions == NEW
    running = []
    install = host.packages.install

    def back(files):
        if host.last.phase is Phase.ROLLING_BACK:
            running.append(host.beside.active)
        return install(files)

    host.packages.install = back
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert running == ["inactive"]
    assert (host.packages.versions, host.beside.active) == (OLD, "active")
    host.assert_at_peace()


def test_if_the_locks_of_the_other_cannot_be_used_neither_is_held_back(host):
    host.services.refuses = host.beside.refuses = True
    host.keep_tree()
    host.record(Phase.INSTALLING)
    pathlib.Path(host.other.run_dir).write_text("no directory")
    with pytest.raises(LockUnavailableError):
        host.supervise()
    assert not host.services.refuses
    assert not host.beside.refuses
    os.remove(host.other.run_dir)
    host.supervise()
    assert host.last.phase is Phase.FAILED
    host.assert_at_peace()


def test_one_that_does_not_run_is_not_started(host):
    host.beside.stop("salt2")
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.beside.active == "inactive"
    host.assert_at_peace()


@pytest.mark.parametrize("kill_at", range(1, 10))
def test_a_supervisor_that_dies_anywhere_leaves_both_on_the_new_code(host, kill_at):
    host.ask()
    before = host.beside.invocation
    store = host.dying(kill_at, "after")
    host.beside.alive = store.check
    try:
        host.supervise(store)
    except Killed:
        host.all_die()
        host.beside.alive = lambda: None
        host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.beside.invocation != before
    assert host.beside.calls.count("restart") == 1
    host.assert_at_peace()


def test_a_restart_of_one_is_no_matter_of_the_other(host):
    host.record(Phase.WAITING, kind="restart")
    job = host.job_of_other()
    host.supervise()
    job.close()
    assert host.last.phase is Phase.COMMITTED
    assert host.beside.calls == []


def test_a_restart_waits_while_an_update_of_the_other_holds_our_jobs(host):
    """The lock of our jobs is free again: that update needs it to go on."""
    host.record(Phase.WAITING, kind="restart")
    drain = host.lock("drain")
    assert drain.try_exclusive()
    free, jobs = [], host.lock("jobs")
    host.clock.after(20, lambda: free.append(jobs.try_shared()))
    host.clock.after(25, jobs.close)
    host.clock.after(30, drain.close)
    host.supervise()
    assert free == [True]
    assert host.clock.passed >= 30
    assert host.restarts() == ["restart"]


class TestInTheProcessOfAJob:
    def test_it_waits_for_the_jobs_of_the_other(self, host):
        job = host.job_of_other()
        host.clock.after(20, job.close)

        def work():
            assert locks.held(host.other.run_dir, "jobs")
            assert host.services.refuses
            assert host.beside.refuses
            host.packages.versions.update(NEW)

        host.transaction().change(work, host.job())
        assert host.clock.passed >= 20
        assert host.last.phase is Phase.DELIVERING
        # Until this process has ended no job of theirs starts either.
        assert locks.held(host.other.run_dir, "jobs")

    def test_it_is_postponed_if_they_do_not_end(self, host):
        job = host.job_of_other()
        with pytest.raises(PostponedError, match="jobs of the minion 'other'"):
            host.transaction().change(lambda: None, host.job())
        assert host.packages.versions == OLD
        job.close()
        assert locks.Lock(host.other.run_dir, "jobs").try_exclusive()

    def test_without_a_change_nothing_stays(self, host):
        host.transaction().change(lambda: None, host.job())
        assert host.last.phase is Phase.COMMITTED
        assert not host.beside.refuses
        assert locks.Lock(host.other.run_dir, "jobs").try_exclusive()


class TestAdmission:
    OPEN = ("waiting", "installing", "delivering", "watching", "rolling_back")

    @pytest.mark.parametrize("phase", OPEN)
    def test_only_one_of_them_updates_at_a_time(self, host, phase):
        host.record_of_other(Phase(phase))
        with pytest.raises(LockHeldError, match=rf"'other'.*salt2.*o1, {phase}.*othing was cha"):
            host.transaction().change(lambda: None, host.job())
        assert host.launched == 0
        assert host.store.latest() is None

    def test_a_restart_of_the_other_that_waits_does_not_matter(self, host):
        host.record_of_other(Phase.WAITING, "restart")
        host.transaction().change(lambda: host.packages.versions.update(NEW), host.job())
        assert host.last.phase is Phase.DELIVERING

    def test_while_something_else_holds_its_jobs_only_a_request_can_wait(self, host):
        drain = locks.Lock(host.other.run_dir, "drain")
        assert drain.try_exclusive()
        with pytest.raises(LockHeldError, match="about to stop or restart"):
            host.transaction().change(lambda: None, host.job())
        assert host.launched == 0
        host.request_update(resolution.request())
        assert host.last.phase is Phase.REQUESTED
        drain.close()

    def test_one_that_has_begun_does(self, host):
        host.record_of_other(Phase.RESTARTING, "restart")
        with pytest.raises(LockHeldError, match="restarts now"):
            host.transaction().change(lambda: None, host.job())

    def test_what_has_ended_does_not(self, host):
        host.record_of_other(Phase.COMMITTED)
        host.transaction().change(lambda: None, host.job())

    def test_beside_jobs_that_cannot_be_waited_for_it_is_refused(self, host):
        with pytest.raises(SafeUpdateError, match=r"salt3 runs\. Nothing was changed"):
            host.transaction(unaware=lambda: ["salt3 runs."]).change(lambda: None, host.job())
        assert host.store.latest() is None

    def test_without_systemd_it_is_refused(self, host):
        host.both.name = "direct"
        with pytest.raises(SafeUpdateError, match="without systemd"):
            host.transaction().change(lambda: None, host.job())


def test_others_are_those_of_the_same_packages(host, tmp_path):
    registry = str(tmp_path / "registry")
    settings = Settings(state_dir=host.settings.state_dir, registry_dir=registry)
    ours = Minion(**{**vars(host.other), "state_dir": settings.state_dir})
    bundle = Minion(**{**vars(host.other), "roots": ("/usr/lib/venv-salt-minion",)})
    for each, found in ((ours, ()), (bundle, ()), (host.other, (host.other,))):
        register(registry, each)
        assert neighbours.of(settings, [str(host.root)]) == found
    assert neighbours.of(settings, []) == ()
    shutil.rmtree(os.path.dirname(host.other.config))
    assert neighbours.of(settings, [str(host.root)]) == ()
