"""Jobs of the minion's own schedule, in the main process and in its threads."""

import contextlib
import datetime
import threading

import pytest
import salt.utils.schedule

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion import scheduled_times
from saltext_safeupdate.minion.schedule import Scheduled
from saltext_safeupdate.minion.single import Single
from tests.support.locking import is_free


class Schedule:
    """What the hooks touch of Salt's schedule."""

    def __init__(self, **opts):
        self.opts = opts


class Calls:
    """What is called in the place of Salt's own function; it looks at the job it runs in."""

    def __init__(self):
        self.jobs = []

    def __call__(self, schedule, *args):
        self.jobs.append(current.get())
        return "done"


@pytest.fixture
def scheduled(world):
    store = Store(world.settings.database)
    admission = Admission(world.settings, store, complain=lambda err: None)
    return Scheduled(admission, Single())


@pytest.fixture
def calls():
    return Calls()


def alone(world):
    return is_free(world.settings.run_dir, "jobs")


def test_a_scheduled_job_has_a_share_while_it_runs(world, scheduled):
    seen = []

    def run(schedule, *args):
        seen.append((current.get().jid, alone(world)))

    scheduled.run(run, Schedule(), "test.ping", {})
    assert seen == [("", False)]
    assert current.get() is None
    assert alone(world)


@pytest.mark.usefixtures("drain")
def test_while_jobs_are_held_none_is_started(scheduled, calls):
    assert scheduled.evaluate(calls, None) is None
    assert scheduled.run(calls, Schedule(), "test.ping", {}) is None
    assert calls.jobs == []


@pytest.mark.usefixtures("drain")
def test_a_job_for_one_time_that_is_left_out_is_told_once(scheduled, calls, caplog):
    now = datetime.datetime.now()
    past, later = now - datetime.timedelta(seconds=1), now + datetime.timedelta(hours=1)
    jobs = {
        "once": {"function": "test.ping", "once": "x", "_next_fire_time": past},
        "when": {"function": "test.ping", "when": ["x"], "_next_fire_time": past},
        "later": {"function": "test.ping", "once": "x", "_next_fire_time": later},
        "often": {"function": "test.ping", "seconds": 5, "_next_fire_time": past},
        "odd": 5,
    }
    for _ in range(3):
        assert scheduled.evaluate(calls, Schedule(schedule=jobs)) is None
    told = [line.split("scheduled job ")[1] for line in caplog.text.splitlines()]
    assert sorted(line.split()[0] for line in told) == ["once", "when"]


@pytest.mark.usefixtures("drain")
def test_a_job_for_one_time_is_told_if_jobs_are_held_since_salt_looked(scheduled, calls, caplog):
    now = datetime.datetime.now().replace(microsecond=0)
    for job in (
        {"name": "once", "once": "x", "_next_fire_time": now},
        {"name": "when", "when": ["x"], "_next_fire_time": now},
        {"name": "often", "seconds": 5, "_next_fire_time": now},
    ):
        described = {"function": "test.ping", **job}
        assert scheduled.run(calls, Schedule(), "test.ping", described) is None
        described["_last_run"] = now
        schedule = Schedule(schedule={job["name"]: described})
        assert scheduled.evaluate(calls, schedule) is None
    told = [
        record.getMessage().split("scheduled job ")[1]
        for record in caplog.records
        if record.levelname == "WARNING"
    ]
    assert [line.split(" and ")[0] for line in told] == [
        f"{name} (test.ping) was due at {now}" for name in ("once", "when")
    ]


@pytest.mark.usefixtures("drain")
def test_a_minion_that_starts_while_jobs_are_held_tells_of_them(scheduled, calls, caplog):
    """Salt has noted nothing yet."""
    now = datetime.datetime.now().replace(microsecond=0)
    later, ago = now + datetime.timedelta(hours=1), now - datetime.timedelta(hours=1)
    text = "{:%Y-%m-%d %H:%M:%S}".format
    given = {
        "once": {"once": f"{now:%Y-%m-%dT%H:%M:%S}"},
        "form": {"once": text(now), "once_fmt": "%Y-%m-%d %H:%M:%S"},
        "when": {"when": [text(ago), text(now), text(later)]},
        "named": {"when": "noon"},
        "read": {"when": now},
        "past": {"when": text(ago)},
        "later": {"once": f"{later:%Y-%m-%dT%H:%M:%S}"},
        "odd": {"once": 5},
        "odd too": {"when": ["no time", 5, None]},
        "off": {"when": text(now), "enabled": False},
    }
    jobs = {name: {"function": "test.ping", **job} for name, job in given.items()}
    pillar = {"whens": {"noon": text(now)}, "schedule": {"of pillar": jobs["when"]}}
    for _ in range(3):
        assert scheduled.evaluate(calls, Schedule(schedule=jobs, pillar=pillar)) is None
    told = [line.split("scheduled job ")[1].split(" (")[0] for line in caplog.text.splitlines()]
    assert sorted(told) == ["form", "named", "of pillar", "once", "read", "when"]


def test_a_job_that_was_due_before_jobs_were_held_is_not_told(world, scheduled, calls, caplog):
    now = datetime.datetime.now()
    ago = now - datetime.timedelta(hours=1)
    jobs = {
        "ran": {"function": "test.ping", "once": "x", "_next_fire_time": now, "_last_run": now},
        "long ago": {"function": "test.ping", "once": "x", "_next_fire_time": ago},
    }
    with contextlib.closing(locks.acquire(world.settings.run_dir, "drain", "")):
        assert scheduled.evaluate(calls, Schedule(schedule=jobs)) is None
    assert caplog.text == ""


def test_without_locks_the_schedule_works(scheduled, calls, tmp_path):
    (tmp_path / "run").write_text("not a directory")
    assert scheduled.evaluate(calls, None) == "done"
    assert scheduled.run(calls, Schedule(), "test.ping", {}) == "done"
    assert calls.jobs[1].lock is None


def test_the_job_around_it_keeps_its_own_share(world, scheduled, calls):
    lock = locks.share(world.settings.run_dir, "jobs")
    around = current.Job(jid="1", lock=lock)
    current.begin(around)
    try:
        scheduled.run(calls, Schedule(), "test.ping", {})
        assert current.get() is around
        assert not alone(world)
    finally:
        current.end()


class Salts(salt.utils.schedule.Schedule):
    """Salt's own schedule, whose jobs the test lets go on and end."""

    def __new__(cls):
        return object.__new__(cls)

    def __init__(self):
        self.opts = {"multiprocessing": False}
        self.began, self.go = threading.Event(), threading.Event()
        self.seen = []
        self._subprocess_list = set()

    def handle_func(self, multiprocessing_enabled, func, data, jid=None):
        self.seen.append((func, jid, current.get().lock is not None))
        self.began.set()
        assert self.go.wait(30)


def test_without_processes_a_thread_keeps_the_share_of_its_job(world, scheduled):
    salts, original = Salts(), salt.utils.schedule.Schedule._run_job
    scheduled.run(original, salts, "test.wait", {"name": "it", "dry_run": True}, "1")
    assert alone(world)
    scheduled.run(original, salts, "test.wait", {"name": "it"}, "2")
    assert salts.began.wait(30)
    assert current.get() is None, "the main thread runs no job"
    assert not alone(world)
    salts.go.set()
    for thread in salts._subprocess_list:
        thread.join()
    assert salts.seen == [("test.wait", "2", True)]
    assert alone(world)


def test_a_thread_that_does_not_start_leaves_no_share(world, scheduled):
    def fail(schedule, *args):
        raise RuntimeError("can't start new thread")

    schedule = Schedule(multiprocessing=False)
    schedule.handle_func = print
    with pytest.raises(RuntimeError):
        scheduled.run(fail, schedule, "test.ping", {})
    assert alone(world)


class Shared:
    """A minion beside another one; it notes what it is asked to start."""

    def __init__(self, *, starts):
        self.asked, self._starts = [], starts

    def starts(self, due, at):
        self.asked.append((due, at))
        return self._starts


NOW = datetime.datetime(2026, 11, 25, 12, 30, 5)
NAMED = datetime.datetime(2026, 11, 25, 12, 30)


@pytest.mark.parametrize(
    ("job", "at"),
    [
        ({"cron": "*/10 * * * *"}, NAMED),
        ({"cron": "*/10 * * * *", "splay": 60, "_splay": NOW}, NAMED),
        ({"when": ["2026-11-25 12:30:00", "2026-11-25 13:00:00"]}, NAMED),
        ({"when": "2026-11-25 12:30:00", "splay": 60, "_next_fire_time": NOW}, NAMED),
        ({"once": "2026-11-25T12:30:00", "_next_fire_time": NAMED}, NAMED),
        ({"once": "2026-11-25T13:00:00"}, None),
        ({"seconds": 5, "_next_fire_time": NOW}, None),
        ({"cron": "no times"}, None),
        ({"cron": 5}, None),
    ],
)
def test_a_time_that_a_job_names_is_the_same_for_each_minion(job, at):
    assert scheduled_times.last_of(job, {}, NOW) == at


def test_a_time_that_is_just_reached_is_the_last_one():
    assert scheduled_times.last_of({"cron": "30 12 * * *"}, {}, NAMED) == NAMED


@pytest.mark.parametrize("starts", [True, False])
def test_a_job_that_is_due_is_started_by_one_of_two_minions(world, calls, starts):
    shared = Shared(starts=starts)
    scheduled = Scheduled(Admission(world.settings, Store(world.settings.database)), shared)
    named = {"name": "backup", "function": "test.ping", "once": "2026-01-01T00:00:00"}
    often = {"name": "often", "function": "test.ping", "seconds": 5}

    def look(schedule):
        for each in (named, often):
            scheduled.run(calls, schedule, "test.ping", each)

    scheduled.evaluate(look, Schedule())
    at = datetime.datetime(2026, 1, 1).timestamp()
    assert shared.asked == [("schedule backup 2026-01-01 00:00:00", at), ("", 0.0)]
    assert len(calls.jobs) == 2 * starts
    # Whoever wants it now gets it.
    scheduled.run(calls, Schedule(), "test.ping", named)
    assert len(calls.jobs) == 2 * starts + 1


# -- put off by a splay --------------------------------------------------------


class Ran(salt.utils.schedule.Schedule):
    """Salt's own schedule, which notes what it runs."""

    def _run_job(self, func, data, jid=None):
        self.ran.append(data["name"])


def salts_schedule(**jobs):
    """Return Salt's schedule with these jobs, by name, after its first look."""
    opts = {"schedule": jobs, "loop_interval": 1, "pillar": {}, "grains": {}, "id": "m1"}
    functions = {"test.ping": None}
    made = Ran(opts, functions, utils=functions, standalone=True, new_instance=True)
    made.ran = []
    made.eval()
    assert made.ran == []
    return made


def ago(seconds):
    return datetime.datetime.now() - datetime.timedelta(seconds=seconds)


def put_off(schedule, name, at, seconds):
    """Have Salt's draw be that many seconds after the time that the job names."""
    job = schedule.opts["schedule"][name]
    job |= {"_splay": at + datetime.timedelta(seconds=seconds), "_next_fire_time": at, "_run": True}
    return job


def looks_after(schedule):
    """Have the schedule looked at once more, and return what has run."""
    scheduled_times.bring_forward(schedule.opts, datetime.datetime.now())
    schedule.eval()
    schedule.eval()
    return schedule.ran


def test_a_job_that_is_put_off_starts_when_its_minion_takes_no_more():
    """The next minion did not run when it was due, and knows nothing of it."""
    at = ago(30)
    when = {"function": "test.ping", "when": at.strftime("%Y-%m-%d %H:%M:%S"), "splay": 600}
    schedule = salts_schedule(backup=when)
    put_off(schedule, "backup", at, 500)
    schedule.eval()
    assert schedule.ran == [], "it is put off"
    assert looks_after(schedule) == ["backup"]


@pytest.mark.parametrize("splay", [600, {"start": 400, "end": 600}])
def test_so_does_one_with_a_time_of_cron(monkeypatch, splay):
    at = ago(30)
    monkeypatch.setattr(scheduled_times, "last_of", lambda job, opts, now: at)
    schedule = salts_schedule(
        often={"function": "test.ping", "cron": "0 4 * * *", "splay": splay, "maxrunning": 1}
    )
    put_off(schedule, "often", at, 500)
    assert looks_after(schedule) == ["often"]


@pytest.mark.parametrize(
    "told",
    [
        {"seconds": 3600, "splay": 600},
        {"once": "2026-01-01T00:00:00", "splay": 600},
        {"cron": "0 4 * * *"},
        # It is put off from a time that is to come.
        {"cron": "0 4 * * *", "splay": 60},
        {"cron": "0 4 * * *", "splay": 600, "_last_run": datetime.datetime.max},
    ],
)
def test_no_other_job_starts_then(told, monkeypatch):
    at = ago(30)
    named = scheduled_times.last_of
    monkeypatch.setattr(
        scheduled_times, "last_of", lambda job, *rest: at if "cron" in job else named(job, *rest)
    )
    job = {"function": "test.ping", "_splay": at + datetime.timedelta(seconds=500), **told}
    assert not scheduled_times.bring_forward({"schedule": {"job": job}}, datetime.datetime.now())
    assert job["_splay"] == at + datetime.timedelta(seconds=500)
