"""Jobs of the minion's own schedule, in the main process and in its threads."""

import contextlib
import datetime
import threading
from collections import Counter

import pytest
import salt.utils.schedule

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion import scheduled_times
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.schedule import _HELD, Scheduled
from saltext_safeupdate.minion.single import Single
from tests.support.locking import is_free
from tests.support.state_runs import EARLIER, OURS, OVERDUE, Known, no_runs


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
    return Scheduled(admission, Single(), no_runs(), store, Complaints())


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


def test_without_locks_the_schedule_works(scheduled, calls, tmp_path):
    (tmp_path / "run").write_text("not a directory")
    assert scheduled.evaluate(calls, Schedule()) == "done"
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

    def __init__(self, *, starts, is_on_trial=False):
        self.asked, self._starts = [], starts
        self.is_on_trial = is_on_trial

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
    store = Store(world.settings.database)
    admission = Admission(world.settings, store)
    scheduled = Scheduled(admission, shared, no_runs(), store, Complaints())
    named = {"name": "backup", "function": "test.ping", "once": "2026-01-01T00:00:00"}
    often = {"name": "often", "function": "test.ping", "seconds": 5}

    def look(schedule, now):
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


# -- due while no job may start ------------------------------------------------


class Clock:
    """The time of the host, and what starts of jobs have added to it."""

    def __init__(self):
        self.now = datetime.timedelta()

    def __call__(self):
        return datetime.datetime.now() + self.now


class Hooked(Ran):
    """Salt's own schedule, with ours in the place of what looks at it and of what runs a job."""

    takes = datetime.timedelta()

    def eval(self, now=None):
        look = salt.utils.schedule.Schedule.eval
        return self.ours.evaluate(look, self, *(() if now is None else (now,)))

    def _run_job(self, func, data, jid=None):
        self.ours.run(self._note, self, func, data)

    def _note(self, _, func, data):
        self.started = data
        self.ran.append(data["name"])
        self.clock.now += self.takes


@pytest.fixture
def begin(world):
    """Return a function that begins a minion with these jobs, and returns its schedule."""

    def begin(jobs, succession=None, runs=None):
        opts = {"schedule": jobs, "loop_interval": 1, "pillar": {}, "grains": {}, "id": "m1"}
        functions = {"test.ping": None, "state.apply": None}
        made = Hooked(opts, functions, utils=functions, standalone=True, new_instance=True)
        store = Store(world.settings.database)
        admission = Admission(world.settings, store, complain=lambda err: None)
        made.clock = Clock()
        others = (runs or no_runs(), store, Complaints())
        made.ours = Scheduled(admission, succession or Single(), *others, now=made.clock)
        made.ran = []
        return made

    return begin


def due(at, **more):
    """Return jobs that were due then, by the way in which they say so."""
    named = at.strftime("%Y-%m-%dT%H:%M:%S")
    jobs = {
        "once": {"once": named},
        "when": {"when": [named, "2099-01-01"]},
        "cron": {"cron": f"{at.minute} {at.hour} {at.day} {at.month} *"},
        "late": {"when": named, "splay": 5},
    }
    return {name: {"function": "test.ping", **job, **more} for name, job in jobs.items()}


def minutes_ago(number):
    at = datetime.datetime.now() - datetime.timedelta(minutes=number)
    return at.replace(second=0, microsecond=0)


def often():
    return {"function": "test.ping", "seconds": 3600, "run_on_start": True}


OF_SALT = ("__mine_interval", "__master_alive_m", "__master_failback", "__update_grains")


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_due_while_jobs_were_held_runs_once_afterwards(world, begin, restarts):
    """
    Also if the minion has restarted meanwhile, and knows nothing of that time.

    | In the schedule | While jobs are held | Afterwards |
    | --- | --- | --- |
    | Salt's own jobs | run | run |
    | a fixed time that has passed meanwhile (``once``, ``when``, ``cron``) | held | runs once |
    | a fixed time before that, or one that is to come | | as with Salt |
    | a job that is off, or that ``until`` has ended | | does not run |
    | an interval | held | as with Salt |
    """
    jobs = {
        **due(minutes_ago(5)),
        **{f"past {name}": job for name, job in due(minutes_ago(50)).items()},
        **{f"off {name}": job for name, job in due(minutes_ago(5), enabled=False).items()},
        "until": due(minutes_ago(5), until="2020-01-01")["cron"],
        **{name: often() for name in OF_SALT},
    }
    Store(world.settings.database).set_fact(_HELD, minutes_ago(10).timestamp())
    schedule = begin(jobs)
    with contextlib.closing(locks.acquire(world.settings.run_dir, "drain", "")):
        schedule.eval()
        assert sorted(schedule.ran) == sorted(OF_SALT)
    if restarts:
        _forget(jobs)
        schedule = begin(jobs)
    for _ in range(3):
        schedule.eval()
    ran = Counter(name for name in schedule.ran if name not in OF_SALT)
    assert ran == {"once": 1, "when": 1, "cron": 1, "late": 1}
    # And a minion that starts after that runs none of them again.
    _forget(jobs)
    again = begin(jobs)
    again.eval()
    assert set(again.ran) <= set(OF_SALT)


def test_what_has_run_just_before_jobs_were_held_does_not_run_again_after_the_restart(world, begin):
    at = datetime.datetime.now().replace(microsecond=0)
    jobs = {name: job for name, job in due(at).items() if name in ("once", "when")}
    schedule = begin(jobs)
    schedule.eval(at)
    assert sorted(schedule.ran) == ["once", "when"]
    with contextlib.closing(locks.acquire(world.settings.run_dir, "drain", "")):
        schedule.eval()
    _forget(jobs)
    again = begin(jobs)
    # Salt itself starts what is due just now.
    again.eval(at + datetime.timedelta(minutes=1))
    assert again.ran == []


@pytest.mark.parametrize("splay", [{}, {"splay": 3}, {"splay": 3000}], ids=str)
def test_what_becomes_due_while_late_jobs_are_started_runs_once_too(world, begin, splay):
    """The start of a job takes longer than Salt's own check looks back."""
    begun = ago(0).replace(microsecond=0)
    jobs = {f"late {number}": each for number, each in enumerate(due(minutes_ago(5)).values())}
    for number in range(0, 16, 3):
        soon = due(begun + datetime.timedelta(seconds=number))
        jobs |= {f"{name} {number}": {**soon[name], **splay} for name in ("once", "when", "late")}
    Store(world.settings.database).set_fact(_HELD, minutes_ago(10).timestamp())
    schedule = begin(jobs)
    schedule.takes = datetime.timedelta(seconds=1.5)
    for _ in range(60):
        schedule.eval()
        schedule.clock.now += datetime.timedelta(seconds=0.7)
    ran = Counter(schedule.ran)
    # Salt delays what it has seen in time.
    put_off = [name for name, job in jobs.items() if "_last_run" not in job]
    assert ran == {name: 1 for name in jobs if name not in put_off}
    assert not put_off or splay == {"splay": 3000}


def _forget(jobs):
    """Have the jobs as a minion reads them when it starts."""
    for job in jobs.values():
        for noted in [key for key in job if key.startswith("_")]:
            del job[noted]


def test_what_would_be_much_too_late_is_told_and_does_not_run(world, begin, caplog):
    Store(world.settings.database).set_fact(_HELD, minutes_ago(150).timestamp())
    schedule = begin(due(minutes_ago(100)))
    schedule.eval()
    assert schedule.ran == []
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    names = [line.split("scheduled job ")[1].split()[0] for line in told]
    assert sorted(names) == ["cron", "late", "once", "when"]


def test_nothing_is_noted_if_nothing_has_a_fixed_time(world, begin):
    schedule = begin({"often": often()})
    with contextlib.closing(locks.acquire(world.settings.run_dir, "drain", "")):
        schedule.eval()
    assert not Store(world.settings.database).exists()


def test_a_job_for_which_jobs_are_held_just_then_runs_afterwards(world, begin):
    schedule = begin({"often": often()})
    with contextlib.closing(locks.Lock(world.settings.run_dir, "jobs")) as lock:
        assert lock.try_exclusive()
        schedule.eval()
        schedule.eval()
        assert schedule.ran == []
    schedule.eval()
    assert schedule.ran == ["often"]


def test_a_minion_on_trial_runs_only_what_its_connection_needs(begin):
    on_trial = Shared(starts=False, is_on_trial=True)
    schedule = begin({name: often() for name in ("often", *OF_SALT)}, on_trial)
    schedule.eval()
    assert sorted(schedule.ran) == ["__master_alive_m", "__master_failback"]
    # It serves from now on.
    on_trial.is_on_trial, on_trial._starts = False, True
    schedule.eval()
    assert "often" in schedule.ran


@pytest.mark.parametrize(
    ("active", "waits", "concurrent"),
    [
        ([], False, False),
        ([EARLIER], True, False),
        ([EARLIER, OVERDUE], True, False),
        ([OVERDUE], False, True),
        # Salt refuses it, as it would without a restart.
        ([OURS], False, False),
        ([EARLIER, OURS], False, False),
        ([OVERDUE, OURS], False, False),
    ],
)
def test_a_state_run_waits_for_earlier_ones_only(begin, active, waits, concurrent):
    runs = Known(*active)
    schedule = begin({"runs": {**often(), "function": "state.apply", "args": ["x"]}}, runs=runs)
    schedule.eval()
    schedule.eval()
    assert schedule.ran == ([] if waits else ["runs"])
    if waits:
        # One that has waited as well began first.
        runs.runs = [OURS]
        schedule.eval()
        assert schedule.ran == []
        runs.runs = []
        # And another one is not active yet.
        runs.begins()
        schedule.eval()
        assert schedule.ran == []
        runs.has_begun("state.sls", None)
        schedule.eval()
    assert schedule.ran == ["runs"]
    assert ("kwargs" in schedule.started) == concurrent
