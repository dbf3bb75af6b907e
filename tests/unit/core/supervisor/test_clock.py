"""
The time of day is set while an update is under way: it ends as without that.

The clocks are simulated: a container has no time of day of its own, and to set that of the host
would be felt by all that runs on it.
"""

import pytest

from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import watch
from saltext_safeupdate.core.supervisor.quiet_transaction import PostponedError

from ..conftest import NEW, OLD

# Ten minutes each way are more than every time-out of this host.
STEPS = [600.0, -600.0]


class Stepping:
    """Sets the time of day once, right after a phase was written or a while after that."""

    def __init__(self, host, phase, step, later):
        self.host, self.phase, self.step, self.later = host, phase, step, later
        self.save = host.store.save
        self.done = False
        host.store.save = self

    def __call__(self, update, *others, **more):
        saved = self.save(update, *others, **more)
        if saved.phase is self.phase and not self.done:
            self.done = True
            if self.later:
                self.host.clock.after(self.later, self.set)
            else:
                self.set()
        return saved

    def set(self):
        self.host.clock.now += self.step


def _asked(host):
    host.ask()


def _installed(host, **changes):
    host.keep_tree()
    parts = {"way_back": host.secured()}
    host.packages.versions.update(NEW)
    host.services.refuses = True
    host.record(Phase.DELIVERING, versions_to=dict(NEW), **parts, **changes)


def _broken(host):
    _installed(host)
    host.services.dies_while = lambda: host.packages.versions == NEW


def _silent(host):
    _installed(host)
    host.services.report = lambda: host.report() if host.packages.versions == OLD else None


def _heard(host):
    host.master = True
    host.answering()
    _installed(host)


SCENARIOS = {
    "asked": (_asked, ["checking", "staging", "waiting", "installing", "delivering", "watching"]),
    "heard": (_heard, ["delivering", "stepping", "restarting", "watching"]),
    "broken": (_broken, ["watching", "rolling_back"]),
    "silent": (_silent, ["watching", "rolling_back"]),
}


def _end(host, scenario):
    SCENARIOS[scenario][0](host)
    host.supervise()
    host.assert_at_peace()
    return host.last.phase, host.phases(), round(host.clock.passed)


@pytest.mark.parametrize(
    ("step", "later"),
    [
        (600.0, 0),
        (-600.0, 1.5),
        pytest.param(600.0, 1.5, marks=pytest.mark.soak),
        pytest.param(-600.0, 0, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize(
    ("scenario", "phase"),
    [(name, phase) for name, (_, phases) in SCENARIOS.items() for phase in phases],
)
def test_set_in_every_phase(host, make_host, scenario, phase, step, later):
    expected = _end(make_host(), scenario)
    stepping = Stepping(host, Phase(phase), step, later)
    assert _end(host, scenario) == expected
    assert stepping.done


@pytest.mark.parametrize("step", STEPS)
def test_set_while_a_job_installs(host, step):
    other = host.job()
    host.clock.after(20, lambda: setattr(host.clock, "now", host.clock.now + step))
    host.clock.after(30, other.close)

    def install():
        host.packages.versions.update(NEW)

    job = host.job()
    host.transaction().change(install, job)
    assert 30 <= host.clock.passed < 35
    assert host.last.phase is Phase.DELIVERING
    job.close()
    host.end_supervisor()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED


@pytest.mark.parametrize("step", STEPS)
def test_jobs_that_do_not_end_are_waited_for_as_long_as_ever(host, step):
    host.job()
    host.clock.after(20, lambda: setattr(host.clock, "now", host.clock.now + step))
    with pytest.raises(PostponedError):
        host.transaction().change(lambda: None, host.job())
    assert 60 <= host.clock.passed < 65


class TestAnotherSupervisor:
    """The one before it has died in the watch; nobody has heard of the minion yet."""

    def _watching(self, host, **changes):
        _silent(host)
        host.record(
            Phase.WATCHING,
            versions_to=dict(NEW),
            code=host.last.code,
            way_back=host.last.way_back,
            former=watch.former(host.context([None] * 4))[0],
            **changes,
        )
        host.services.run()
        host.supervise()
        return next(row.at for row in host.store.history("u1") if row.phase == "rolling_back")

    @pytest.mark.parametrize("step", [0.0, *STEPS, 9e9])
    def test_goes_on_where_that_one_was(self, host, step):
        watched = watch.until(host.context([None] * 4), 30.0)
        host.clock.work(10)
        host.clock.now += step
        began = host.clock.now
        assert 19 <= self._watching(host, watched=watched) - began <= 22

    def test_after_a_reboot_it_has_all_its_time(self, host, monkeypatch):
        watched = watch.until(host.context([None] * 4), 30.0)
        monkeypatch.setattr(processes, "boot", lambda: "the next one")
        host.reported()
        host.clock.work(10)
        began = host.clock()
        assert 30 <= self._watching(host, watched=watched) - began <= 33


def test_the_newest_record_is_the_one_that_was_made_last(host):
    host.record(Phase.COMMITTED)
    host.clock.now -= 600
    host.store.save(Update(id="u2", kind="update", phase=Phase.FAILED, created=host.clock()))
    assert host.last.id == "u2"
    assert [update.id for update in host.store.updates()] == ["u2", "u1"]


def test_a_request_waits_for_the_lock_as_long_as_ever(host):
    lock = locks.acquire(host.settings.run_dir, "update", "")
    host.clock.after(2, lambda: setattr(host.clock, "now", host.clock.now + 600))
    host.clock.after(4, lock.close)
    host.initiator().writing().close()
    assert 4 <= host.clock.passed < 5
