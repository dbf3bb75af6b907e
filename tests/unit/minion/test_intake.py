"""What the main process does about a job on its way in."""

import contextlib
import os
from typing import ClassVar
from unittest.mock import Mock

import pytest
import salt.payload
import salt.utils.jid
import salt.utils.state

from saltext_safeupdate import patches
from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import functions
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion import intake, publication, queues

from .conftest import FOURTH_JID, JID, OTHER_JID, THIRD_JID

CHEAP = [
    fun.replace("*", "doc") for fun in functions.named(Kind.LOOKS) if fun != functions.FIND_JOB
]


def test_a_job_is_recorded_and_held_on_before_it_starts(world):
    assert world.publish() is not None
    assert world.counted
    job = world.ledger.full(JID)
    assert (job.state, job.owner, job.master) == (State.ACCEPTED, processes.me(), "master1")
    assert salt.payload.loads(job.call)["arg"] == ["x"]


def test_a_job_that_is_published_again_does_not_start_again(world):
    world.publish()
    assert world.publish() is None


@pytest.mark.parametrize("fun", CHEAP)
def test_cheap_functions_are_not_recorded(world, fun):
    assert world.publish(salt.utils.jid.gen_jid({}), fun) is not None
    assert not world.ledger.exists()


@pytest.mark.parametrize("fun", CHEAP)
def test_around_a_restart_they_are_recorded_or_a_master_would_publish_them_again(world, fun):
    """
    | Published | Recorded |
    | --- | --- |
    | before this minion began, so it has come again, or waited in a queue | yes |
    | while jobs are held for a restart | yes |
    | at any other time | no |
    | of a kind that never is published again | no |
    """
    new = salt.utils.jid.gen_jid({})
    assert world.publish(fun=fun) is not None
    with contextlib.closing(locks.acquire(world.settings.run_dir, "drain", "")):
        world.publish(new, fun)
    found = world.states() if world.ledger.exists() else {}
    assert found == ({JID: "delivered", new: "delivered"} if functions.is_redelivered(fun) else {})


def test_several_functions_are_one_job(world):
    assert world.publish(fun=["test.ping", "cmd.run"], arg=[[], ["x"]]) is not None
    assert world.ledger.full(JID).fun == "test.ping,cmd.run"


def test_resources_under_one_jid_are_jobs_of_their_own(world):
    for name in ("a", "b"):
        assert world.publish(resource_target={"type": "web", "id": name}) is not None
    assert set(world.states()) == {f"{JID}/web:a", f"{JID}/web:b"}


@pytest.mark.usefixtures("drain")
def test_while_draining_a_job_goes_to_the_queue_once(world):
    assert world.publish() is None
    assert world.publish() is None
    assert [job["jid"] for job in queues.listed(world.minion.opts)] == [JID]
    assert world.states() == {JID: "held"}
    assert world.minion.answers == []


@pytest.mark.usefixtures("drain")
@pytest.mark.parametrize("fun", functions.named(Kind.AT_ONCE))
def test_who_steers_an_update_is_not_held_and_does_not_hold_it_up(world, fun):
    assert world.publish(fun=fun) is not None
    assert not world.counted
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
        assert world.states() == {JID: "held"}
        assert queues.listed(world.minion.opts) == []
        assert locks.Lock(world.settings.run_dir, "jobs").try_exclusive()

    @pytest.mark.usefixtures("update", "drain")
    def test_also_while_others_are_held(self, world):
        assert world.publish(fun="safeupdate.wait", arg=[]) is None
        assert queues.listed(world.minion.opts) == []

    def test_it_runs_where_there_is_nothing_to_wait_for(self, world, update):
        assert world.publish(fun="safeupdate.wait", arg=["u9"]) is not None
        Store(world.settings.database).save(update.advance(Phase.COMMITTED))
        assert world.publish(fun="safeupdate.wait", arg=[], jid=OTHER_JID) is not None
        assert world.states() == {JID: "accepted", OTHER_JID: "accepted"}

    def test_once_held_it_runs_when_the_engine_puts_it_into_the_queue(self, world, update):
        assert world.publish(fun="safeupdate.wait", arg=[]) is None
        Store(world.settings.database).save(update.advance(Phase.COMMITTED))
        assert world.publish(fun="safeupdate.wait", arg=[]) is None, "not by the master"
        assert world.publish(fun="safeupdate.wait", arg=[], queued=True) is not None
        assert world.ticket.waited

    @pytest.mark.usefixtures("update")
    def test_what_cannot_be_held_has_not_waited(self, world, monkeypatch):
        failing = Mock(side_effect=RecordError("disk full"))
        monkeypatch.setattr(world.intake._ledger, "hold", failing)
        assert world.publish(fun="safeupdate.wait", arg=[]) is not None
        assert not world.ticket.waited


def test_a_job_in_the_queue_is_nobody_elses_business(world, tmp_path):
    file = tmp_path / "queued"
    world.intake.queue(lambda minion, data: file.write_text("secret"), world.minion, {"jid": JID})
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("drain")
def test_a_held_job_goes_to_the_returners_that_were_asked_for(world):
    asked = {"ret": "syslog", "ret_config": "one", "ret_kwargs": {"a": 1}, "metadata": {"b": 2}}
    world.publish(**asked)
    (data,) = queues.listed(world.minion.opts)
    assert {name: data[name] for name in asked} == asked
    # And so does one that the engine starts again.
    assert salt.payload.loads(world.ledger.full(JID).call)["ret_config"] == "one"


def test_a_held_job_runs_from_the_queue(world, drain):
    world.publish()
    drain.release()
    (data,) = queues.listed(world.minion.opts)
    assert queues.QUEUED not in data
    data = world.publish(queued=True, **{queues.OF_JOBS: True})
    assert queues.OF_JOBS not in data
    assert world.states() == {JID: "accepted"}


def test_a_job_that_lies_in_the_queue_twice_runs_once(world, drain):
    world.publish()
    drain.release()
    queues.put(world.minion.opts, queues.listed(world.minion.opts)[0])
    first, second = queues.listed(world.minion.opts)
    world.run(world.publish(queued=True, **first))
    assert world.states() == {JID: "delivered"}
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


class TestProbe:
    """It is put first into the queue, and starts whatever Salt's limit is."""

    def test_it_starts_before_salt_looks_into_the_queue(self, world):
        started = []
        world.minion._invoke_execution = lambda data: world.intake.invoke(
            lambda minion, job: started.append(job["jid"]), world.minion, data
        )
        queues.put(world.minion.opts, {"jid": JID, "fun": "cmd.run", "arg": []})
        queues.put(world.minion.opts, {"jid": OTHER_JID, "fun": "test.echo", "arg": []}, first=True)
        left = []
        world.intake.process_queue(
            lambda minion: left.extend(queues.jids(minion.opts)), world.minion
        )
        assert started == [OTHER_JID]
        assert left == [JID], "Salt starts the others as it sees fit"

    @pytest.mark.usefixtures("drain")
    def test_it_waits_while_jobs_are_held(self, world):
        world.minion._invoke_execution = lambda data: pytest.fail("it starts")
        queues.put(world.minion.opts, {"jid": JID, "fun": "test.echo", "arg": []}, first=True)
        world.intake.process_queue(lambda minion: pytest.fail("it works on it"), world.minion)
        assert queues.jids(world.minion.opts) == {JID}


def test_a_job_that_runs_does_not_start_again_from_the_queue_of_the_jobs(world):
    world.publish()
    world.ledger.begin(JID, processes.me())
    assert world.publish(queued=True, **{queues.OF_JOBS: True}) is None
    assert world.publish(queued=True) is not None, "a state run that queued itself"


@pytest.mark.usefixtures("drain")
def test_a_job_from_the_queue_goes_back_while_draining(world):
    world.publish()
    os.unlink(queues.find(world.minion.opts, JID))
    assert world.publish(queued=True) is None
    assert queues.find(world.minion.opts, JID)


def popped(world, directory):
    """Return what Salt makes of the one file in a queue: it takes the JID from the name."""
    (name,) = (name for name in os.listdir(directory) if name.startswith("queued_"))
    with open(os.path.join(directory, name), "rb") as file:
        data = dict(salt.payload.load(file))
    data["jid"] = name.split("_")[2].removesuffix(".p")
    return {**data, "__ignore_process_count_max": True}, os.path.join(directory, name)


class TestUniqueJid:
    """With ``unique_jid``, a JID has an underscore, at which Salt cuts it off in its queues."""

    UNIQUE = f"{JID}_4711"

    def test_a_held_job_runs_under_its_whole_jid(self, world, drain):
        world.publish(self.UNIQUE)
        drain.release()
        data, path = popped(world, salt.utils.state.job_queue_dir(world.minion.opts))
        os.unlink(path)
        passed = []
        world.intake.mark(lambda minion, data: passed.append(data), world.minion, data)
        assert passed[0].pop(queues.QUEUED)
        world.run(world.publish(queued=True, **passed[0]))
        assert world.states() == {self.UNIQUE: "delivered"}

    @pytest.mark.parametrize("renamed", [False, True])
    def test_so_does_a_state_run_that_queued_itself(self, world, renamed):
        directory = salt.utils.state.state_queue_dir(world.minion.opts)
        os.makedirs(directory)
        job = {"jid": self.UNIQUE, "fun": "state.apply"}
        with open(os.path.join(directory, f"queued_17_{self.UNIQUE}.p"), "wb") as file:
            file.write(salt.payload.dumps(job))
        data, path = popped(world, directory)
        if renamed:
            # Salt 3006 and 3007.
            data["_state_queue_file"] = path.replace("queued_", "running_")
            os.rename(path, data["_state_queue_file"])
        world.intake.mark(lambda minion, data: None, world.minion, data)
        assert data["jid"] == self.UNIQUE


class TestStartupStates:
    """Salt gives them no JID: theirs is ``req`` at each start."""

    STARTUP: ClassVar = {"fun": "state.highstate", "arg": []}

    def test_they_run_at_every_start(self, world):
        for _ in range(3):
            world.run(world.publish("req", **self.STARTUP))
            assert world.minion.sent["jid"] == "req"
        assert world.states() == {}

    def test_an_undelivered_return_is_kept(self, world):
        world.minion.acknowledge = ""
        for _ in range(2):
            world.run(world.publish("req", **self.STARTUP))
        assert [job.jid for job in world.ledger.undelivered()] == ["req", "req"]

    def test_they_are_held_once_however_often_the_minion_starts_meanwhile(self, world, drain):
        for _ in range(3):
            assert world.publish("req", **self.STARTUP) is None
        assert world.publish("req", **{**self.STARTUP, "arg": [["web"]]}) is None
        first, _other = queues.listed(world.minion.opts)
        drain.release()
        assert world.publish(queued=True, **first) is not None
        assert world.minion.answers == []


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
    died_over(world, JID, directory(opts))
    # It had begun, or is in a queue again.
    begun = died_over(world, OTHER_JID, directory(opts))
    world.publish(OTHER_JID)
    twice = died_over(world, THIRD_JID, directory(opts))
    queues.put(opts, {"jid": THIRD_JID, "fun": "state.apply"})
    worked = []

    def work(minion):
        worked.append(queues.listed(opts))

    for _ in range(2):
        world.intake.process_queue(work, world.minion)
    assert [sorted(job["jid"] for job in seen) for seen in worked] == [[JID, THIRD_JID]] * 2
    assert not os.path.exists(begun)
    assert not os.path.exists(twice)
    # What is taken out later is left alone.
    path = died_over(world, FOURTH_JID, directory(opts))
    world.intake.process_queue(lambda minion: None, world.minion)
    assert os.path.exists(path)


@pytest.mark.usefixtures("drain")
def test_while_draining_the_queue_is_left_alone(world):
    path = died_over(world, JID, salt.utils.state.job_queue_dir(world.minion.opts))
    world.intake.process_queue(lambda minion: pytest.fail("it works on it"), world.minion)
    assert os.path.exists(path)


@pytest.mark.usefixtures("drain")
def test_a_queue_that_cannot_be_written_is_told_of(world, monkeypatch):
    monkeypatch.setattr(queues, "put", lambda opts, data: None)
    world.publish(fun="test.version")
    (answer,) = world.minion.answers
    assert "not run" in answer["return"]
    assert answer["success"] is False


def test_salt_may_resume_what_it_resumes_itself(world):
    world.minion.opts["resume_jobs_on_restart"] = True
    world.publish()
    world.ledger.begin(JID, "-:1:1")
    assert world.publish() is not None
    world.ledger.begin(JID, processes.me())
    assert world.publish() is None, "this one is running"


class TestWithoutLocks:
    """The locks cannot be used: whatever is ours keeps no job from running."""

    @pytest.fixture(autouse=True)
    def broken(self, tmp_path):
        (tmp_path / "run").write_text("not a directory")

    def test_jobs_run_and_are_recorded_and_it_is_said_once(self, world, caplog):
        for jid in (JID, OTHER_JID):
            assert world.publish(jid) is not None
            assert world.ticket.lock is None
        assert world.states() == {JID: "accepted", OTHER_JID: "accepted"}
        assert caplog.text.count("cannot be used") == 1

    def test_they_return(self, world):
        world.run(world.publish())
        assert world.states() == {JID: "delivered"}

    def test_the_queue_is_worked_on(self, world):
        queues.put(world.minion.opts, {"jid": JID, "fun": "cmd.run"})
        worked = []
        world.intake.process_queue(worked.append, world.minion)
        assert worked == [world.minion]
        assert world.publish(queued=True) is not None

    def test_while_the_record_says_that_an_update_installs_jobs_are_held(self, world):
        store = Store(world.settings.database)
        update = Update(id="u1", kind="update", phase=Phase.INSTALLING, created=1.0)
        update = store.save(update)
        assert world.publish() is None
        assert world.publish(fun="safeupdate.status") is not None
        assert [job["jid"] for job in queues.listed(world.minion.opts)] == [JID]
        world.intake.process_queue(lambda minion: pytest.fail("it works on it"), world.minion)
        store.save(update.advance(Phase.FAILED))
        assert world.publish(queued=True, **{queues.OF_JOBS: True}) is not None


def test_a_job_that_no_queue_takes_is_held_in_the_ledger(world, drain, monkeypatch):
    """The disk is full below 'cachedir' only: the engine brings it back, so no error is told."""
    monkeypatch.setattr(queues, "put", lambda *given, **more: None)
    assert world.publish() is None
    assert [job.state for job in world.ledger.find(JID)] == [State.HELD]
    assert world.minion.answers == []


def test_a_job_that_nobody_can_hold_is_told_to_its_master(world, drain, monkeypatch):
    monkeypatch.setattr(queues, "put", lambda *given, **more: None)
    os.makedirs(world.settings.database)
    assert world.publish() is None
    (answer,) = world.minion.answers
    assert (answer["jid"], answer["retcode"]) == (JID, 1)
    assert "could not be held" in answer["return"]


def test_a_held_job_that_cannot_be_recorded_stays_held(world, monkeypatch):
    """It ran without a record, stayed held, and ran again when it came back."""
    call = {"jid": JID, "fun": "cmd.run", "master": "master1", "call": b"c", "owner": "x:1:1"}
    world.ledger.hold(JID, **call)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "accept", Mock(side_effect=RecordError("disk full")))
        assert world.publish(queued=True) is None
        assert world.publish(OTHER_JID, queued=True) is not None, "nobody else would run it"
    assert world.states() == {JID: "held"}
    assert world.publish(queued=True) is not None


def test_one_that_goes_on_does_not_start_without_a_record(world, monkeypatch):
    """It would begin anew. The engine brings it back when the database can be written."""
    monkeypatch.setattr(Ledger, "accept", Mock(side_effect=RecordError("disk full")))
    monkeypatch.setattr(Ledger, "full", Mock(side_effect=RecordError("disk full")))
    goes_on = {publication.GOES_ON: True}
    assert world.publish(fun="state.apply", queued=True, **goes_on) is None


def test_a_job_whose_state_is_none_is_known(world):
    world.publish()
    with world.ledger.transaction() as db:
        db.execute("UPDATE jobs SET state = 'martian'")
    assert world.publish() is None


def test_an_error_of_ours_leaves_no_share_of_the_lock_behind(world, monkeypatch):
    """No update and no restart would ever begin."""
    monkeypatch.setattr(Ledger, "accept", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        world.publish()
    assert world.tickets == {}
    assert world._alone()


@pytest.mark.usefixtures("drain")
@pytest.mark.parametrize("held", ["in its queue", "in the ledger", "nowhere"])
def test_a_job_over_whose_queue_salt_fails_does_not_start_as_well(world, monkeypatch, held):
    """It started at once, and once more from the queue or by the engine."""
    put = queues.put

    def fail(opts, job):
        if held == "in its queue":
            put(opts, job)
        raise ValueError("of Salt's")

    monkeypatch.setattr(patches, "_troubles", {})
    monkeypatch.setattr(queues, "put", fail)
    if held == "nowhere":
        os.makedirs(world.settings.database)
    started = []
    invoke = patches.replaced(("self", "data"), world.intake.invoke)(
        lambda minion, data: started.append(data)
    )
    invoke(world.minion, {"jid": JID, "fun": "cmd.run", "arg": ["x"], "ret": ""})
    assert started == []
    assert (queues.find(world.minion.opts, JID) is not None) is (held == "in its queue")
    if held == "nowhere":
        (answer,) = world.minion.answers
        assert "was not run" in answer["return"]
        return
    assert world.states() == {JID: "held"}
    assert world.minion.answers == []


def test_a_jid_that_is_used_again_later_gets_an_answer(world):
    """With '--jid', nobody said why nothing came."""
    world.run(world.publish())
    assert world.publish() is None
    assert world.minion.answers == [], "it is the same publication once more"
    with world.ledger.transaction() as db:
        db.execute("UPDATE jobs SET accepted = accepted - 3600")
    assert world.publish(queued=True) is None
    assert world.minion.answers == [], "it was in a queue twice"
    assert world.publish(arg=["other"]) is None
    (answer,) = world.minion.answers
    assert (answer["jid"], answer["retcode"], answer["success"]) == (JID, 1, False)
    assert "only one job for each JID. Nothing was done now" in answer["return"]


@pytest.mark.parametrize("state", ["held", "accepted", "running", "finished"])
def test_a_jid_whose_return_is_still_to_come_gets_no_other_answer(world, state):
    world.publish()
    with world.ledger.transaction() as db:
        db.execute("UPDATE jobs SET accepted = accepted - 3600, state = ?", (state,))
    assert world.publish() is None
    assert world.minion.answers == []
