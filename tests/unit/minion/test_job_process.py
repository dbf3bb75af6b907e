"""What the process of a job does before the job runs, and after."""

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import salt.minion
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import linked_copy, locks, processes
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.jobs.suspension import (
    Interrupted,
    Suspended,
    Suspension,
    Suspensions,
)
from saltext_safeupdate.core.record.parts import Code
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion import job_process, publication, queues, unrecorded
from saltext_safeupdate.minion.job_process import Ticket
from saltext_safeupdate.minion.waiting_runs import GoesBack
from tests.support.waiting import wait_for

from .conftest import JID, OTHER_JID, World


def test_without_a_connection_the_return_is_kept(world):
    world.minion.connected = False
    world.run(world.publish())
    assert world.minion.connected, "else Salt would not even try"


def test_a_minion_without_a_master_is_not_made_to_look_as_if_it_had_one(world):
    del world.minion.opts["pillar"]
    world.minion.connected = False
    world.run(world.publish())
    assert not world.minion.connected, "Salt would look into the pillar, and every job fail"


def test_a_job_that_queued_itself_is_held(world):
    data = world.publish(fun="state.apply")
    queues.put(world.minion.opts, data)
    world.run(data, value=None)
    assert world.states() == {JID: "held"}


def test_a_job_that_queued_itself_and_was_taken_out_at_once_is_started_by_whoever_has_it(world):
    """Salt 3006 and 3007 give its file another name, and start it some time later."""

    def queues_itself():
        queues.put(world.minion.opts, data)
        path = Path(queues.find(world.minion.opts, JID))
        path.rename(path.with_name(path.name.replace("queued_", "running_")))

    data = world.publish(fun="state.apply")
    world.while_it_runs = queues_itself
    world.run(data, value=None)
    assert world.states() == {JID: "held"}
    assert world.publish(fun="state.apply", queued=True) is not None


def test_a_job_that_went_back_is_held_also_if_its_file_is_taken_at_once(world):
    """The minion took it out of the queue, and dropped it as one that runs."""

    def goes_back():
        assert queues.take_first(world.minion.opts)["jid"] == JID
        raise GoesBack

    data = world.publish(fun="state.apply")
    queues.put(world.minion.opts, data, first=True)
    world.while_it_runs = goes_back
    world.run(data, value=None)
    assert world.states() == {JID: "held"}


@pytest.mark.parametrize(
    ("fun", "may"),
    [("state.apply", True), ("deploy.all", False), (["state.apply", "state.sls"], False)],
)
def test_only_what_may_begin_anew_may_go_back(world, fun, may):
    """Another function that runs states may have worked before."""
    current.begin(current.Job(jid=JID, lock=None, key=JID))
    world.job_process.function(lambda minion, data: None, world.minion, {"fun": fun})
    assert current.get().may_go_back is may
    current.end()


def test_a_job_that_is_not_to_return_is_done(world):
    world.run(world.publish(), value=None)
    assert world.states() == {JID: "delivered"}


BOTH = ["safeupdate", "direct_call"]


@pytest.mark.parametrize(
    ("listed", "fun", "called"),
    [
        (BOTH, "cmd.run", ["direct_call"]),
        (["safeupdate", "splay", "sudo"], "cmd.run", ["splay", "sudo"]),
        (BOTH, ["cmd.run", "test.echo"], ["direct_call"]),
        # Nothing would run.
        (["safeupdate"], "cmd.run", None),
        (["direct_call", "safeupdate"], "cmd.run", None),
        # It does something for these.
        (BOTH, "saltutil.kill_job", None),
        (BOTH, "saltutil.term_all_jobs", None),
        ("safeupdate", "cmd.run", None),
        (["direct_call"], "cmd.run", None),
        (None, "cmd.run", None),
    ],
)
def test_our_executor_is_left_out_where_it_would_do_nothing(world, listed, fun, called):
    world.minion.opts["module_executors"] = listed
    world.run(world.publish(fun=fun))
    assert getattr(world.minion, "module_executors", None) == called
    assert world.minion.opts["module_executors"] == listed


def test_executors_that_somebody_else_has_named_for_a_minion_are_called(world):
    world.minion.opts["module_executors"] = BOTH
    world.minion.module_executors = ["splay"]
    world.run(world.publish())
    assert world.minion.module_executors == ["splay"]


def test_with_threads_no_job_changes_the_executors_of_others(world):
    world.minion.opts |= {"module_executors": BOTH, "multiprocessing": False}
    world.run(world.publish())
    assert not hasattr(world.minion, "module_executors")


def test_a_job_that_was_taken_over_does_not_run(world):
    data = world.publish()
    world.ledger.take(world.ledger.full(JID), "engine")
    world.run(data)
    assert not hasattr(world.minion, "sent")


@pytest.mark.parametrize(
    ("begins", "says"), [(False, "It was not run; send it again"), (True, "The part that had run")]
)
def test_a_job_that_a_full_disk_has_ended_is_told_of(world, begins, says):
    """No ledger knows it, and Salt only writes into its log."""

    def target(cls, minion, opts, data, *rest):
        if begins:
            world.job_process.function(lambda minion: None, minion)
        raise OSError(errno.ENOSPC, "No space left on device", "/var/cache/salt/minion/proc/1")

    sent = []
    world.minion._return_pub = sent.append
    data = world.publish(arg=["x"])
    world.tickets[id(data)] = Ticket(None, "")
    with pytest.raises(OSError, match="No space"):
        world.job_process.target(target, None, world.minion, world.minion.opts, data)
    current.end()
    (ret,) = sent
    assert (ret["jid"], ret["fun"], ret["retcode"], ret["success"]) == (JID, data["fun"], 1, False)
    assert says in ret["return"]


def test_that_the_function_begins_is_recorded_just_before_it_does(world):
    seen = []

    def target(cls, minion, opts, job, *rest):
        seen.append(world.ledger.full(JID).has_begun)
        world.job_process.function(lambda minion: None, minion)
        world.job_process.function(lambda minion: None, minion)
        seen.append(world.ledger.full(JID).has_begun)

    data = world.publish()
    world.tickets[id(data)] = Ticket(None, world.ticket.key)
    world.job_process.target(target, None, world.minion, world.minion.opts, data)
    current.end()
    assert seen == [False, True]


def test_a_function_whose_begin_could_not_be_recorded_has_begun(world, monkeypatch):
    def full(self, key):
        raise RecordError("disk full")

    def engine_comes():
        assert not world.ledger.full(JID).has_begun
        unrecorded.bring_in(world.minion.opts, world.ledger)
        seen.append(world.ledger.full(JID).has_begun)

    seen = []
    os.makedirs(world.minion.opts["cachedir"], exist_ok=True)
    data = world.publish()
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "begin_function", full)
        world.while_it_runs = lambda: (broken.undo(), engine_comes())
        world.run(data)
    assert seen == [True]


def test_with_an_unusable_database_jobs_run_and_it_is_said_once(world, monkeypatch, caplog):
    os.makedirs(world.settings.state_dir)
    os.mkdir(world.settings.database)
    for jid in (JID, OTHER_JID):
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


@pytest.mark.parametrize("created", [1.0, 9e12], ids=["set back", "set ahead"])
@pytest.mark.parametrize(
    ("at_start", "phase", "kept"),
    [
        (None, Phase.RESTARTING, True),
        (None, Phase.INSTALLING, True),
        (None, Phase.COMMITTED, False),
        # It was started while an update waited, which then copied the code that it runs.
        (Phase.REQUESTED, Phase.INSTALLING, True),
        # The new minion, before its watch has ended.
        (Phase.RESTARTING, Phase.WATCHING, False),
    ],
)
def test_who_looks_at_an_update_reads_the_code_of_this_minion(
    tmp_path, created, at_start, phase, kept
):
    """Whatever the time of day was when it was started, and when the update was."""
    root = tmp_path / "tree"
    root.mkdir()
    code = Code(roots=(str(root), str(tmp_path / "not copied")))
    update = Update(id="1", kind="update", phase=phase, created=created, code=code)
    store = Store(World(tmp_path).settings.database)

    if at_start:
        store.save(replace(update, phase=at_start))
        if at_start is not Phase.REQUESTED:
            linked_copy.make([str(root)], "1")
    world = World(tmp_path)
    lock = locks.acquire(world.settings.run_dir, "drain", "held")
    store.save(update)
    copies = linked_copy.make([str(root)], "1")
    world.run(world.publish(fun="safeupdate.status"))
    lock.close()
    assert world.redirected == ([copies] if kept else [])


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
            job_process.tidy_up(tidy, minion)
    else:
        job_process.tidy_up(tidy, minion)
    assert not hasattr(minion, "schedule")


def test_a_job_that_is_a_thread_is_known_by_its_thread(world):
    """Its minion lives on: what the thread could not return is sent, or its end is reported."""
    world.minion.opts["multiprocessing"] = False
    data = world.publish()
    seen = []
    world.while_it_runs = lambda: seen.append(world.ledger.full(JID).runner)
    thread = threading.Thread(target=lambda: world.run(data))
    thread.start()
    thread.join()
    (runner,) = seen
    assert runner != processes.me()
    # The kernel lets it go a moment after Python has.
    wait_for(lambda: not processes.alive(runner), "the thread has gone")
    assert processes.this_thread() == processes.me()


def test_a_job_whose_row_is_gone_runs_without_a_record(world):
    """The database was set aside after it had been accepted: nobody ran it."""
    os.makedirs(world.minion.opts["cachedir"], exist_ok=True)
    data, ran = world.publish(), []
    with world.ledger.transaction() as db:
        db.execute("DELETE FROM jobs")
    world.while_it_runs = lambda: ran.append(JID)
    world.run(data)
    assert ran == [JID]
    assert unrecorded.pending(world.minion.opts)


def test_a_suspended_job_is_held_in_no_queue(world):
    waits = Suspension(process="boot:1:1", until=1.0, timeout=1.0)

    def suspends():
        assert Suspensions(world.settings.database).begin(JID, "tag", waits)
        raise Suspended

    world.while_it_runs = suspends
    world.run(world.publish(fun="state.apply"), value=None)
    assert world.states() == {JID: "held"}
    found = world.ledger.full(JID)
    assert (found.attempts, Suspension.of(found.awaits)) == (0, waits)
    assert queues.jids(world.minion.opts) == set()
    assert locks.Lock(world.settings.run_dir, "jobs").try_exclusive(), "nobody waits for it"
    # Its master may publish it again meanwhile.
    assert world.publish(fun="state.apply") is None


def test_a_suspended_job_does_not_return_also_if_somebody_has_caught_that(world):
    waits = Suspension(process="boot:1:1", until=1.0, timeout=1.0)

    def suspends():
        Suspensions(world.settings.database).begin(JID, "tag", waits)
        current.get().suspended = True

    world.while_it_runs = suspends
    world.run(world.publish(fun="state.apply"), value=None)
    assert world.states() == {JID: "held"}


class TestGoesOn:
    """A state run that has begun before, and comes out of the queue."""

    @pytest.fixture
    def data(self, world):
        os.makedirs(world.minion.opts["cachedir"], exist_ok=True)
        call = {"jid": JID, "fun": "state.apply", "master": "master1", "call": b"c"}
        world.ledger.accept(JID, **call, owner="gone")
        world.ledger.begin(JID, "gone child")
        world.ledger.add_chunk(JID, "tag", "digest", b"")
        world.ledger.take(world.ledger.full(JID), "engine")
        goes_on = {publication.GOES_ON: True, queues.OF_JOBS: JID}
        return world.publish(fun="state.apply", queued=True, **goes_on)

    def test_it_goes_on(self, world, data):
        assert world.ticket.goes_on
        assert publication.GOES_ON not in data
        world.run(data)
        assert world.states() == {JID: "delivered"}

    def test_one_that_queued_itself_is_known_by_what_is_recorded_of_it(self, world, data):
        world.run(data, value=None)
        world.ledger.hold(OTHER_JID, jid=OTHER_JID, fun="x", master="m", call=b"", owner="o")
        world.ledger.add_chunk(OTHER_JID, "tag", "digest", b"")
        assert world.publish(OTHER_JID, fun="state.apply", queued=True) is not None
        assert world.ticket.goes_on

    def test_it_does_not_begin_anew_while_the_database_cannot_be_written(
        self, world, data, monkeypatch
    ):
        ran = []
        world.while_it_runs = lambda: ran.append(JID)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "begin", Mock(side_effect=RecordError("disk full")))
            world.run(data)
        assert ran == []
        assert world.states() == {JID: "accepted"}, "the engine starts it again"

    @pytest.mark.parametrize("accepted_anew", [True, False])
    def test_it_does_not_begin_anew_if_its_record_is_gone(self, world, data, accepted_anew):
        ran = []
        world.while_it_runs = lambda: ran.append(JID)
        with world.ledger.transaction() as db:
            db.execute("DELETE FROM jobs")
            db.execute("DELETE FROM chunks")
            db.execute("DELETE FROM contents")
        if accepted_anew:
            data[publication.GOES_ON] = True
            data = world.publish(**{**data, "queued": True})
        with pytest.raises(CommandExecutionError, match="its record is gone"):
            world.run(data)
        assert ran == []

    def test_it_fails_if_what_it_had_done_cannot_be_read(self, world, data):
        def run():
            raise Interrupted("what its states had done cannot be read")

        world.while_it_runs = run
        with pytest.raises(CommandExecutionError, match="cannot be read"):
            world.run(data)
