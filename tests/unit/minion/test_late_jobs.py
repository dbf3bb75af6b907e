"""Jobs of a minion that was started without this extension: it has come back meanwhile."""

import os
from typing import ClassVar

import pytest
import salt.payload

from saltext_safeupdate.core.errors import LockHeldError, RecordError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.suspension import SUSPENDED, Suspension, Suspensions
from saltext_safeupdate.core.settings import of_minion
from saltext_safeupdate.minion import executor, publication, queues

JID = "20260101000000000000"
DATA = {"fun": "cmd.run", "jid": JID, "arg": ["true"], "ret": ""}


@pytest.fixture
def opts(tmp_path):
    places = {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")}
    return {"master": "m", "safeupdate": places}


@pytest.fixture
def ledger(opts):
    return Ledger(of_minion(opts)[0].database)


@pytest.fixture
def drain(opts):
    """New jobs are held, as while a restart is pending."""
    lock = locks.acquire(opts["safeupdate"]["run_dir"], "drain", "")
    yield lock
    lock.close()


@pytest.fixture
def engine(opts):
    lock = locks.Lock(opts["safeupdate"]["run_dir"], "engine")
    lock.exclusive()
    yield lock
    lock.close()


def _states(ledger):
    return [(job.state, job.fun, job.master) for job in ledger.find(JID)]


def test_a_job_is_held_for_the_engine_and_runs_later(opts, ledger, drain, engine):
    assert executor.begin(opts, DATA, late=True) == {"__no_return__": True}
    assert current.get() is None
    assert _states(ledger) == [(State.HELD, "cmd.run", "m")]
    assert salt.payload.loads(ledger.full(JID).call) == DATA
    # The engine sees that the process of the job is gone, and brings it back.
    assert ledger.full(JID).owner == processes.me()
    drain.close()
    assert executor.begin(opts, DATA, late=True) is None
    job = current.get()
    assert (job.key, job.attempt, job.lock is None) == (JID, 1, False)
    assert _states(ledger) == [(State.RUNNING, "cmd.run", "m")]
    assert ledger.full(JID).owner == processes.identity(os.getppid())


def test_it_is_held_again_if_it_comes_back_too_early(opts, ledger, drain, engine):
    for _ in range(2):
        assert executor.begin(opts, DATA, late=True) == {"__no_return__": True}
    assert _states(ledger) == [(State.HELD, "cmd.run", "m")]


@pytest.mark.parametrize("data", [{}, {"fun": ["cmd.run", "test.sleep"]}, {"jid": "req"}])
def test_what_nobody_could_run_later_runs_as_with_plain_salt(opts, drain, caplog, data):
    """The engine is broken, or Salt returns the job at once whatever it is told."""
    lock = None
    if data:
        lock = locks.Lock(opts["safeupdate"]["run_dir"], "engine")
        lock.exclusive()
    assert executor.begin(opts, {**DATA, **data}, late=True) is None
    assert current.get().lock is None
    assert "runs although new jobs are held" in caplog.text
    if lock is not None:
        lock.close()


def test_without_a_ledger_it_runs_as_with_plain_salt(opts, ledger, drain, engine, caplog):
    os.makedirs(ledger.path)
    assert executor.begin(opts, DATA, late=True) is None
    assert current.get().jid == JID
    assert "runs as with plain Salt" in caplog.text


def test_otherwise_it_begins_with_its_share_and_without_a_record(opts, ledger):
    assert executor.begin(opts, DATA, late=True) is None
    assert current.get().lock is not None
    assert not ledger.exists()


def test_salt_call_is_told_that_nothing_may_start(opts, drain, engine):
    with pytest.raises(LockHeldError):
        executor.begin(opts, {"fun": "cmd.run", "jid": JID}, late=True)


def _hold(ledger, jid=JID, fun="cmd.run"):
    ledger.hold(jid, jid=jid, fun=fun, master="m", call=b"c", owner="x:1:1")


@pytest.mark.parametrize(
    ("jid", "data"),
    [
        (JID, {"fun": ["cmd.run", "test.sleep"]}),
        (f"{JID}_123", {queues.OF_JOBS: f"{JID}_123"}),
    ],
    ids=["several functions", "unique_jid"],
)
def test_what_was_held_is_taken_up_whatever_it_is(opts, ledger, jid, data):
    """It stayed held, and ran again."""
    _hold(ledger, jid)
    assert executor.begin(opts, {**DATA, **data}, late=True) is None
    assert ledger.full(jid).state is State.RUNNING
    assert current.get().key == jid


@pytest.mark.parametrize(
    ("fun", "multiprocessing"), [("safeupdate.drain", True), ("cmd.run", False)]
)
def test_what_was_held_and_has_no_process_to_record_it_is_settled(
    opts, ledger, fun, multiprocessing
):
    _hold(ledger, fun=fun)
    opts["multiprocessing"] = multiprocessing
    assert executor.begin(opts, {**DATA, "fun": fun}, late=True) is None
    assert _states(ledger) == [(State.DELIVERED, fun, "m")]
    assert current.get() is None


class TestGoesOn:
    DATA: ClassVar = {**DATA, "fun": "state.apply", publication.GOES_ON: True}

    @pytest.fixture
    def suspended(self, ledger):
        ledger.accept(JID, jid=JID, fun="state.apply", master="m", call=b"c", owner="gone")
        ledger.begin(JID, "gone child")
        waits = Suspension(process="boot:1:1", until=1.0, timeout=1.0)
        Suspensions(ledger.path).begin(JID, f"{SUSPENDED}tag", waits)
        ledger.put_back(JID, "gone child")

    @pytest.mark.usefixtures("suspended")
    def test_a_suspended_run_goes_on_when_the_engine_has_taken_it_and_not_before(
        self, opts, ledger
    ):
        assert executor.begin(opts, self.DATA, late=True) == {"__no_return__": True}
        assert current.get() is None
        ledger.take(ledger.full(JID), "engine")
        assert executor.begin(opts, self.DATA, late=True) is None
        assert current.get().attempt == 2
        current.end()

    def test_one_of_which_nothing_is_known_does_not_begin_anew(self, opts):
        with pytest.raises(RecordError, match="nothing was run twice"):
            executor.begin(opts, self.DATA, late=True)
        assert current.get() is None
        assert locks.Lock(opts["safeupdate"]["run_dir"], "jobs").try_exclusive()
