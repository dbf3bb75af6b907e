"""Who ends a job that is suspended, and what becomes of it then."""

from unittest.mock import Mock

import pytest

from saltext_safeupdate.core import settings
from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.recovery import Action, Recovery
from saltext_safeupdate.core.jobs.suspension import SUSPENDED, Suspension, Suspensions
from saltext_safeupdate.minion import calling_off, executor

from .conftest import JID, OTHER_JID

WAITS = Suspension(process="boot:1:1", until=1e12, timeout=600.0)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


class Host:
    def __init__(self, path):
        places = {"state_dir": str(path / "state"), "run_dir": str(path / "run")}
        self.opts = {"safeupdate": places, "cachedir": str(path)}
        self.ledger = Ledger(str(path / "state" / "safeupdate.db"))
        self.suspensions = Suspensions(self.ledger.path)

    def job(self, jid=JID, fun="state.apply", runner="child"):
        self.ledger.accept(jid, jid=jid, fun=fun, master="m", call=b"c", owner="main")
        self.ledger.begin(jid, runner)

    def suspend(self, jid=JID, *, ended=True):
        self.job(jid)
        assert self.suspensions.begin(jid, f"{SUSPENDED}tag", WAITS)
        if ended:
            self.ledger.put_back(jid, "child")

    def end(self, fun, *arg):
        return executor.begin(self.opts, {"fun": fun, "arg": list(arg), "jid": "1", "ret": ""})

    def action(self, jid=JID, living=()):
        decide = Recovery(attempts=2, rerun=(), alive=lambda who: who in living)
        return decide(self.ledger.full(jid), tuple)


@pytest.mark.parametrize(
    ("fun", "arg"),
    [
        ("saltutil.kill_job", [JID]),
        ("saltutil.term_job", [JID]),
        ("saltutil.term_job", [f"jid='{JID}'"]),
        ("saltutil.signal_job", [JID, 9]),
        ("saltutil.signal_job", [JID, "15"]),
    ],
)
def test_a_suspended_job_that_is_ended_is_reported_and_whoever_ends_it_is_told(host, fun, arg):
    host.suspend()
    host.suspend(OTHER_JID)
    assert "does not continue" in host.end(fun, *arg)
    action, reason = host.action()
    assert action is Action.REPORT
    assert fun in reason
    assert host.action(OTHER_JID, living={WAITS.process})[0] is Action.WAIT


@pytest.mark.parametrize("fun", ["saltutil.kill_all_jobs", "saltutil.term_all_jobs"])
def test_so_is_each_of_them_if_all_jobs_are_ended(host, fun):
    host.suspend()
    host.suspend(OTHER_JID)
    assert host.end(fun) is None, "Salt ends those that run"
    assert {host.action(jid)[0] for jid in (JID, OTHER_JID)} == {Action.REPORT}


def test_one_that_is_killed_on_its_way_to_be_suspended_does_not_go_on(host):
    host.suspend(ended=False)
    host.end("saltutil.kill_job", JID)
    assert host.action(living={"child"})[0] is Action.WAIT
    assert host.action()[0] is Action.REPORT


def test_one_that_runs_is_left_to_salt_and_cannot_be_suspended_any_more(host):
    host.job(runner=processes.me())
    assert host.end("saltutil.term_job", JID) is None
    assert not host.suspensions.begin(JID, "tag", WAITS)


def test_one_that_waits_in_a_queue_to_go_on_does_not(host):
    host.suspend()
    assert host.ledger.take(host.ledger.full(JID), "next")
    host.end("saltutil.kill_job", JID)
    described = {"jid": JID, "fun": "state.apply", "master": "m", "call": b"c", "owner": "next"}
    assert host.ledger.accept(JID, **described, over=(State.HELD,)) is State.HELD
    assert host.action()[0] is Action.REPORT


def test_one_that_is_ended_just_when_its_restart_has_been_does_not_go_on(host):
    """The engine has looked at it, and is about to start it."""
    host.suspend()
    seen = host.ledger.full(JID)
    host.end("saltutil.kill_job", JID)
    assert not host.ledger.take(seen, "next")
    assert host.action()[0] is Action.REPORT


def test_one_that_is_suspended_is_started_by_nobody_but_the_engine(host):
    """A file of a queue that an earlier minion has left says that it waits there."""
    host.suspend()
    described = {"jid": JID, "fun": "state.apply", "master": "m", "call": b"c", "owner": "next"}
    assert host.ledger.accept(JID, **described, over=(State.HELD, State.RUNNING)) is State.HELD


@pytest.mark.parametrize(
    ("fun", "arg"),
    [
        ("saltutil.signal_job", [JID, 10]),
        ("saltutil.signal_job", [JID]),
        ("saltutil.kill_job", [OTHER_JID]),
        ("saltutil.kill_job", []),
        ("saltutil.find_job", [JID]),
    ],
)
def test_what_ends_no_suspended_job_changes_nothing(host, fun, arg):
    host.suspend()
    assert host.end(fun, *arg) is None
    assert host.ledger.full(JID).awaits == WAITS.text


ENDING = [("kill_job", JID), ("term_job", JID), ("signal_job", JID, 11), ("kill_all_jobs",)]


@pytest.mark.parametrize("fun", ["state.apply", "cmd.run"])
@pytest.mark.parametrize("ending", ENDING)
def test_one_that_is_held_is_not_run_any_more(host, fun, ending):
    described = {"jid": JID, "fun": fun, "master": "m", "call": b"c", "owner": "main"}
    host.ledger.hold(JID, **described)
    told = host.end(f"saltutil.{ending[0]}", *ending[1:])
    assert "not run, and its master gets a failure" in (told or "") or len(ending) == 1
    assert host.ledger.accept(JID, **described, over=(State.HELD,)) is State.HELD
    assert host.action()[0] is Action.REPORT


def test_several_functions_end_it_too(host):
    host.ledger.hold(JID, jid=JID, fun="cmd.run", master="m", call=b"c", owner="main")
    call = {"fun": ["test.ping", "saltutil.kill_job"], "arg": [[], [JID]], "jid": "1", "ret": ""}
    assert "not run" in calling_off.call_off(settings.of_minion(host.opts)[0], call)
    assert host.action()[0] is Action.REPORT


def test_one_that_runs_and_cannot_be_suspended_is_left_to_salt(host):
    host.job(fun="cmd.run")
    host.end("saltutil.kill_job", JID)
    assert host.ledger.full(JID).awaits == ""


def test_a_database_that_cannot_be_used_keeps_nobody_from_ending_a_job(host, monkeypatch, caplog):
    host.suspend()
    monkeypatch.setattr(Suspensions, "call_off", Mock(side_effect=RecordError("disk full")))
    assert host.end("saltutil.kill_job", JID) is None
    assert "may run nevertheless" in caplog.text


def test_without_a_database_none_is_made(host):
    assert host.end("saltutil.kill_job", JID) is None
    assert not host.ledger.exists()
