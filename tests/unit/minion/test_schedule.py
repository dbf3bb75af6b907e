"""Jobs of the minion's own schedule, in the main process and in its threads."""

import pytest

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion.schedule import Scheduled


class Calls:
    """What is called in the place of Salt's own function; it looks at the job it runs in."""

    def __init__(self):
        self.jobs = []

    def __call__(self, schedule):
        self.jobs.append(current.get())
        return "done"


@pytest.fixture
def scheduled(world):
    store = Store(world.settings.database)
    return Scheduled(Admission(world.settings, store, complain=lambda err: None))


@pytest.fixture
def calls():
    return Calls()


def alone(world):
    lock = locks.Lock(world.settings.run_dir, "jobs")
    try:
        return lock.try_exclusive()
    finally:
        lock.close()


def test_a_scheduled_job_has_a_share_while_it_runs(world, scheduled):
    seen = []

    def run(schedule):
        seen.append((current.get().jid, alone(world)))

    scheduled.run(run, None)
    assert seen == [("", False)]
    assert current.get() is None
    assert alone(world)


@pytest.mark.usefixtures("drain")
def test_while_jobs_are_held_none_is_started(scheduled, calls):
    assert scheduled.evaluate(calls, None) is None
    assert scheduled.run(calls, None) is None
    assert calls.jobs == []


def test_without_locks_the_schedule_works(scheduled, calls, tmp_path):
    (tmp_path / "run").write_text("not a directory")
    assert scheduled.evaluate(calls, None) == "done"
    assert scheduled.run(calls, None) == "done"
    assert calls.jobs[1].lock is None


def test_the_job_around_it_keeps_its_own_share(world, scheduled, calls):
    lock = locks.share(world.settings.run_dir, "jobs")
    around = current.Job(jid="1", lock=lock)
    current.begin(around)
    try:
        scheduled.run(calls, None)
        assert current.get() is around
        assert not alone(world)
    finally:
        current.end()
