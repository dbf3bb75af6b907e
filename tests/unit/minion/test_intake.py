"""The intake: what the main process and a job's process do about one job."""

import logging
import os
import time
from unittest.mock import Mock

import pytest
import salt.minion
import salt.payload
import salt.utils.state
from salt.exceptions import SaltReqTimeoutError

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import current, functions
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.parts import Code
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import intake, queues

CHEAP = [
    fun.replace("*", "doc") for fun in functions.named(Kind.LOOKS) if fun != functions.FIND_JOB
]


class FakeMinion:
    """The few attributes of Salt's minion that the intake touches."""

    def __init__(self, path, intake):
        self.opts = {
            "id": "m1",
            "master": "master1",
            "cachedir": str(path / "cache"),
            "multiprocessing": True,
            "pub_ret": True,
        }
        self.connected = True
        self.answers = []
        self.started = []
        self.acknowledge = None
        self._intake = intake

    def _queue_job(self, data):
        return self._intake.queue(lambda minion, job: queues.put(minion.opts, job), self, data)

    def _return_pub_main(self, ret):
        self.answers.append(ret)

    def _return_pub(self, ret, **kwargs):
        load = self._intake.prepared({"cmd": "_return", "id": "m1", **ret})
        self.sent = load
        return self.acknowledge


class World:
    def __init__(self, path):
        self.settings = Settings(state_dir=str(path / "state"), run_dir=str(path / "run"))
        self.intake = intake.Intake(self.settings)
        self.minion = FakeMinion(path, self.intake)
        self.ledger = Ledger(self.settings.database)

    def publish(self, jid="1", fun="cmd.run", *, queued=False, **more):
        """Pass a job in; return what Salt was given to start, or None."""
        data = {"jid": jid, "fun": fun, "arg": ["x"], "ret": "", "user": "root", **more}
        if queued:
            data[queues.MARK] = True
        started = []

        def start(minion, job):
            started.append(job)
            self.held = not locks.Lock(self.settings.run_dir, "jobs").try_exclusive()
            self.ticket = self.intake._tickets[id(job)]
            return object()

        self.intake.invoke(start, self.minion, data)
        return started[0] if started else None

    def run(self, data, value="ok"):
        """Do what the job's process does: run it, and return."""

        def target(minion, opts, job, *rest):
            if value is not None:
                ret = {"jid": job["jid"], "fun": job["fun"], "return": value}
                self.intake.return_pub(FakeMinion._return_pub, minion, ret, (), {})

        lock = locks.Lock(self.settings.run_dir, "jobs")
        lock.try_shared()
        self.intake._tickets[id(data)] = intake.Ticket(lock, self.ticket.key)
        try:
            self.intake.target(target, None, self.minion, self.minion.opts, data, ())
        finally:
            current.end()

    def states(self):
        with self.ledger.connection() as db:
            return dict(db.execute("SELECT key, state FROM jobs").fetchall())


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def drain(world):
    lock = locks.acquire(world.settings.run_dir, "drain", "held")
    yield lock
    lock.close()


def test_a_job_is_recorded_and_held_on_before_it_starts(world):
    assert world.publish() is not None
    assert world.held
    job = world.ledger.full("1")
    assert (job.state, job.owner, job.master) == (State.ACCEPTED, processes.me(), "master1")
    assert salt.payload.loads(job.call)["arg"] == ["x"]


def test_a_job_that_is_published_again_does_not_start_again(world):
    world.publish()
    assert world.publish() is None


@pytest.mark.parametrize("fun", CHEAP)
def test_cheap_functions_are_not_recorded(world, fun):
    assert world.publish(fun=fun) is not None
    assert not world.ledger.exists()


def test_several_functions_are_one_job(world):
    assert world.publish(fun=["test.ping", "cmd.run"], arg=[[], ["x"]]) is not None
    assert world.ledger.full("1").fun == "test.ping,cmd.run"


def test_resources_under_one_jid_are_jobs_of_their_own(world):
    for name in ("a", "b"):
        assert world.publish(resource_target={"type": "web", "id": name}) is not None
    assert set(world.states()) == {"1/web:a", "1/web:b"}


@pytest.mark.usefixtures("drain")
def test_while_draining_a_job_goes_to_the_queue_once(world):
    assert world.publish() is None
    assert world.publish() is None
    assert [job["jid"] for job in queues.listed(world.minion.opts)] == ["1"]
    assert world.states() == {"1": "held"}
    assert world.minion.answers == []


@pytest.mark.usefixtures("drain")
@pytest.mark.parametrize("fun", functions.named(Kind.AT_ONCE))
def test_who_steers_an_update_is_not_held_and_does_not_hold_it_up(world, fun):
    assert world.publish(fun=fun) is not None
    assert not world.held
    assert queues.listed(world.minion.opts) == []


class TestWaiting:
    """``safeupdate.wait``"""

    @pytest.fixture
    def update(self, world):
        store = Store(world.settings.database)
        return store.save(Update(id="u1", kind="update", phase=Phase.WATCHING, created=1.0))

    @pytest.mark.usefixtures("update")
    def test_it_is_held_without_a_process_and_without_a_file(self, world):
        for _ in range(2):
            assert world.publish(fun="safeupdate.wait", arg=[]) is None
        assert world.states() == {"1": "held"}
        assert queues.listed(world.minion.opts) == []
        assert locks.Lock(world.settings.run_dir, "jobs").try_exclusive()

    @pytest.mark.usefixtures("update", "drain")
    def test_also_while_others_are_held(self, world):
        assert world.publish(fun="safeupdate.wait", arg=[]) is None
        assert queues.listed(world.minion.opts) == []

    def test_it_runs_where_there_is_nothing_to_wait_for(self, world, update):
        assert world.publish(fun="safeupdate.wait", arg=["u9"]) is not None
        Store(world.settings.database).save(update.advance(Phase.COMMITTED))
        assert world.publish(fun="safeupdate.wait", arg=[], jid="2") is not None
        assert world.states() == {"1": "accepted", "2": "accepted"}

    def test_once_held_it_runs_when_the_engine_puts_it_into_the_queue(self, world, update):
        assert world.publish(fun="safeupdate.wait", arg=[]) is None
        Store(world.settings.database).save(update.advance(Phase.COMMITTED))
        assert world.publish(fun="safeupdate.wait", arg=[]) is None, "not by the master"
        assert world.publish(fun="safeupdate.wait", arg=[], queued=True) is not None


def test_a_job_in_the_queue_is_nobody_elses_business(world, tmp_path):
    file = tmp_path / "queued"
    world.intake.queue(lambda minion, data: file.write_text("secret"), world.minion, {"jid": "1"})
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_held_job_runs_from_the_queue(world, drain):
    world.publish()
    drain.release()
    (data,) = queues.listed(world.minion.opts)
    assert queues.MARK not in data
    data = world.publish(queued=True, **{queues.KEPT: True})
    assert queues.KEPT not in data
    assert world.states() == {"1": "accepted"}


def test_a_job_that_lies_in_the_queue_twice_runs_once(world, drain):
    world.publish()
    drain.release()
    queues.put(world.minion.opts, queues.listed(world.minion.opts)[0])
    first, second = queues.listed(world.minion.opts)
    world.run(world.publish(queued=True, **first))
    assert world.states() == {"1": "delivered"}
    assert world.publish(queued=True, **second) is None


@pytest.mark.parametrize(
    ("limit", "working", "most"),
    [(99, False, 99), (99, True, 3 + intake.TOGETHER), (1, True, 1)],
)
def test_held_jobs_start_a_few_at_a_time(world, limit, working, most):
    world.minion._process_queue_processing_active = working
    processes = [Mock(is_alive=Mock(return_value=alive)) for alive in (True, True, False, True)]
    world.minion.subprocess_list = Mock(processes=processes)
    assert world.intake.most(lambda minion: limit, world.minion) == most


def test_a_job_that_runs_does_not_start_again_from_the_queue_of_the_jobs(world):
    world.publish()
    world.ledger.begin("1", processes.me())
    assert world.publish(queued=True, **{queues.KEPT: True}) is None
    assert world.publish(queued=True) is not None, "a state run that queued itself"


@pytest.mark.usefixtures("drain")
def test_a_job_from_the_queue_goes_back_while_draining(world):
    world.publish()
    os.unlink(queues.find(world.minion.opts, "1"))
    assert world.publish(queued=True) is None
    assert queues.find(world.minion.opts, "1")


def died_over(world, jid, directory):
    """Leave the file that a minion leaves which is killed while it takes a job out of a queue."""
    path = os.path.join(directory, f"running_1700000000000000_{jid}.p")
    os.makedirs(directory, exist_ok=True)
    with open(path, "wb") as file:
        file.write(salt.payload.dumps({"jid": jid, "fun": "state.apply"}))
    return path


@pytest.mark.parametrize(
    "directory", [salt.utils.state.job_queue_dir, salt.utils.state.state_queue_dir]
)
def test_what_a_minion_died_over_goes_back_and_holds_up_no_later_state_run(world, directory):
    opts = world.minion.opts
    died_over(world, "1", directory(opts))
    # It had begun, or is in a queue again.
    begun = died_over(world, "2", directory(opts))
    world.publish("2")
    twice = died_over(world, "3", directory(opts))
    queues.put(opts, {"jid": "3", "fun": "state.apply"})
    worked = []

    def work(minion):
        worked.append(queues.listed(opts))

    for _ in range(2):
        world.intake.process(work, world.minion, (), {})
    assert [sorted(job["jid"] for job in seen) for seen in worked] == [["1", "3"]] * 2
    assert not os.path.exists(begun)
    assert not os.path.exists(twice)
    # What is taken out later is left alone.
    path = died_over(world, "4", directory(opts))
    world.intake.process(lambda minion: None, world.minion, (), {})
    assert os.path.exists(path)


@pytest.mark.usefixtures("drain")
def test_while_draining_the_queue_is_left_alone(world):
    path = died_over(world, "1", salt.utils.state.job_queue_dir(world.minion.opts))
    world.intake.process(lambda minion: pytest.fail("it works on it"), world.minion, (), {})
    assert os.path.exists(path)


@pytest.mark.usefixtures("drain")
def test_a_queue_that_cannot_be_written_is_told_of(world, monkeypatch):
    monkeypatch.setattr(queues, "put", lambda opts, data: None)
    world.publish(fun="test.version")
    (answer,) = world.minion.answers
    assert "not run" in answer["return"]
    assert answer["success"] is False


def test_a_ping_is_answered_while_jobs_are_held(world, drain):
    assert world.publish(fun="test.ping") is None
    (answer,) = world.minion.answers
    assert (answer["return"], answer["success"]) == (True, True)


def test_who_asks_for_a_held_job_learns_that_it_is_there(world, drain):
    world.publish()
    for _ in range(2):
        assert world.publish("9", "saltutil.find_job", arg=["1"]) is None
        assert world.minion.answers.pop()["return"]["jid"] == "1"
        drain.release()


def test_who_asks_for_an_interrupted_job_learns_that_it_is_there(world):
    data = world.publish()
    world.ledger.begin("1", "-:1:1")
    assert world.publish("9", "saltutil.find_job", arg=["1"]) is None
    assert world.minion.answers.pop()["return"]["state"] == "running"
    assert data


def test_who_asks_for_a_delivered_job_gets_salts_own_answer(world):
    world.publish()
    world.ledger.delivered("1")
    assert world.publish("9", "saltutil.find_job", arg=["1"]) is not None


def test_a_delivered_return_is_wiped(world):
    world.run(world.publish())
    job = world.ledger.full("1")
    assert (job.state, job.call, job.payload) == (State.DELIVERED, None, None)


def test_a_return_is_kept_before_it_is_sent(world, monkeypatch):
    seen = []
    original = FakeMinion._return_pub

    def send(self, ret, **kwargs):
        value = original(self, ret, **kwargs)
        seen.append(world.ledger.full("1"))
        return value

    monkeypatch.setattr(FakeMinion, "_return_pub", send)
    world.run(world.publish())
    assert seen[0].state is State.FINISHED
    assert salt.payload.loads(seen[0].payload)["return"] == "ok"


def test_a_return_without_an_acknowledgement_stays(world):
    world.minion.acknowledge = ""
    world.run(world.publish())
    assert world.states() == {"1": "finished"}


def test_a_return_that_salt_fails_to_send_stays(world, monkeypatch):
    def fail(self, ret, **kwargs):
        raise ConnectionError("the bus is gone")

    monkeypatch.setattr(FakeMinion, "_return_pub", fail)
    for jid, fun in (("1", "cmd.run"), ("2", "test.ping")):
        data = world.publish(jid, fun)
        with pytest.raises(ConnectionError):
            world.run(data)
    assert sorted(world.states().values()) == ["finished", "running"]


def test_the_return_of_a_cheap_function_is_kept_where_it_did_not_arrive(world):
    world.minion.acknowledge = ""
    world.run(world.publish(fun="test.ping"))
    (job,) = world.ledger.undelivered()
    assert (job.jid, job.fun) == ("1", "test.ping")


def test_where_nothing_is_to_be_returned_nothing_is_kept(world):
    world.minion.opts["pub_ret"] = False
    world.minion.acknowledge = ""
    world.run(world.publish())
    assert world.states() == {"1": "delivered"}


def sending(world, job=None):
    """Send the return of JID 1 from the process of *job*."""
    current.begin(job)
    try:
        load = {"cmd": "_return", "jid": "1", "return": "ok"}
        return world.intake.send(lambda minion, load, timeout: "taken", world.minion, load, 60)
    finally:
        current.end()


def test_a_return_that_is_kept_is_left_to_the_engine_where_too_many_are_sent(world, monkeypatch):
    monkeypatch.setattr(intake, "TURN_TIMEOUT", 0.0)
    lock = locks.Lock(world.settings.run_dir, "jobs")
    kept = current.Job(jid="1", lock=lock, key="1", kept=True)
    assert sending(world, kept) == "taken"
    turns = [locks.acquire(world.settings.run_dir, name, "") for name in locks.RETURNS]
    with pytest.raises(SaltReqTimeoutError, match="the engine sends"):
        sending(world, kept)
    assert sending(world, current.Job(jid="1", lock=lock, key="1")) == "taken", "it is not kept"
    assert sending(world) == "taken"
    turns[0].close()
    assert sending(world, kept) == "taken"
    assert locks.Lock(world.settings.run_dir, turns[0].name).try_exclusive(), "the turn is over"


def test_what_is_no_return_waits_for_no_turn(world):
    for name in locks.RETURNS:
        locks.acquire(world.settings.run_dir, name, "")
    event = {"cmd": "_minion_event"}
    assert world.intake.send(lambda *args: "taken", world.minion, event, 60) == "taken"


def test_without_a_connection_the_return_is_kept(world):
    world.minion.connected = False
    world.run(world.publish())
    assert world.minion.connected, "else Salt would not even try"


def test_a_job_that_queued_itself_is_held(world):
    data = world.publish(fun="state.apply")
    queues.put(world.minion.opts, data)
    world.run(data, value=None)
    assert world.states() == {"1": "held"}


def test_a_job_that_is_not_to_return_is_done(world):
    world.run(world.publish(), value=None)
    assert world.states() == {"1": "delivered"}


def test_a_job_that_was_taken_over_does_not_run(world):
    data = world.publish()
    world.ledger.take(world.ledger.full("1"), "engine")
    world.run(data)
    assert not hasattr(world.minion, "sent")


def test_with_an_unusable_database_jobs_run_and_it_is_said_once(world, monkeypatch, caplog):
    os.makedirs(world.settings.state_dir)
    os.mkdir(world.settings.database)
    for jid in ("1", "2"):
        data = world.publish(jid)
        assert data is not None
        world.run(data)
        assert world.minion.sent["jid"] == jid
    assert caplog.text.count("runs without a record") == 1


def test_a_job_that_could_not_be_recorded_runs_although_the_database_works_again(
    world, monkeypatch
):
    def full(self, key, **kwargs):
        raise RecordError("disk full")

    monkeypatch.setattr(Ledger, "accept", full)
    data = world.publish()
    monkeypatch.undo()
    world.run(data)
    assert world.minion.sent["return"] == "ok"


@pytest.mark.parametrize(
    ("age", "phase", "kept"),
    [
        (60, Phase.RESTARTING, True),
        (60, Phase.INSTALLING, True),
        (60, Phase.COMMITTED, False),
        # The new minion, before its watch has ended.
        (-60, Phase.WATCHING, False),
    ],
)
@pytest.mark.usefixtures("drain")
def test_who_looks_at_an_update_reads_the_code_of_this_minion(
    world, monkeypatch, tmp_path, age, phase, kept
):
    redirected = []
    monkeypatch.setattr(intake.frozen, "redirect", redirected.append)
    (tmp_path / "copy").mkdir()
    copies = {"/tree": str(tmp_path / "copy"), "/other": str(tmp_path / "not made")}
    Store(world.settings.database).save(
        Update(
            id="1",
            kind="update",
            phase=phase,
            created=time.time() + age,
            code=Code(copies=copies),
        )
    )
    world.run(world.publish(fun="safeupdate.status"))
    assert redirected == ([{"/tree": str(tmp_path / "copy")}] if kept else [])


def test_salt_may_resume_what_it_resumes_itself(world):
    world.minion.opts["resume_jobs_on_restart"] = True
    world.publish()
    world.ledger.begin("1", "-:1:1")
    assert world.publish() is not None
    world.ledger.begin("1", processes.me())
    assert world.publish() is None, "this one is running"


def test_what_could_not_be_sent_is_not_logged(caplog):
    log = logging.getLogger("test.minion")
    log.addFilter(intake.without_payload)
    load = {"cmd": "_return", "jid": "1", "return": "secret", "fun_args": ["secret"]}
    log.error("Timeout encountered while sending %r request. id=%s", load, "request")
    log.error("Something else: %s", "kept")
    assert "secret" not in caplog.text
    assert "{'cmd': '_return', 'jid': '1'} request. id=request" in caplog.text
    assert "kept" in caplog.text


def test_keys():
    assert intake.key_of({"jid": "1", "fun": "cmd.run"}) == "1"
    assert intake.key_of({"jid": "1", "fun": "test.ping"}) == ""
    assert intake.key_of({"fun": "cmd.run"}) == ""


class _Jobs:
    """The list of a minion's processes; SIGTERM comes while it is looked through."""

    def __init__(self, minion, running):
        self.minion = minion
        self.running = running

    def cleanup(self):
        self.minion.destroy()
        self.minion._running = self.running


@pytest.mark.parametrize("running", [False, True])
def test_a_minion_that_is_torn_down_while_it_tidies_up_says_nothing(world, running):
    minion = object.__new__(salt.minion.Minion)
    minion.schedule = object()
    minion.subprocess_list = _Jobs(minion, running)
    tidy = salt.minion.Minion.cleanup_subprocesses
    if running:
        with pytest.raises(AttributeError):
            world.intake.tidy(tidy, minion)
    else:
        world.intake.tidy(tidy, minion)
    assert not hasattr(minion, "schedule")
