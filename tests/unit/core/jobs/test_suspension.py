"""A job that goes on behind a restart: what is recorded of it, and when it goes on."""

from dataclasses import replace

import pytest

from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.recovery import Action, Recovery
from saltext_safeupdate.core.jobs.suspension import Suspension, Suspensions

WAITS = Suspension(process="boot:1:5", until=900.0, timeout=600.0)
TAG = "suspended safeupdate_|-x_|-x_|-rebooted"


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(str(tmp_path / "state" / "safeupdate.db"))
    ledger.accept("1", jid="1", fun="state.apply", master="m", call=b"call", owner="main")
    ledger.begin("1", "child")
    return ledger


@pytest.fixture
def suspensions(ledger):
    return Suspensions(ledger.path)


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"process": "x", "until": "soon"}'])
def test_what_cannot_be_read_is_over(text):
    assert Suspension.of(text).is_over(bool, lambda: 0.0)


@pytest.mark.parametrize("waits", [WAITS, replace(WAITS, ended="saltutil.kill_job")])
def test_what_is_written_is_read_again(waits):
    assert Suspension.of(waits.text) == waits


@pytest.mark.parametrize(
    ("living", "uptime", "over"),
    [(True, 899.0, False), (True, 900.0, True), (False, 1.0, True)],
)
def test_it_is_over_when_the_process_is_gone_or_the_time_is_up(living, uptime, over):
    assert WAITS.is_over(lambda who: living, lambda: uptime) is over


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("living", "uptime", "action"),
    [
        ({"boot:1:5", "main"}, 10.0, Action.WAIT),
        ({"boot:1:5"}, 10.0, Action.WAIT),
        ({"boot:1:5", "main"}, 900.0, Action.RUN),
        (set(), 10.0, Action.RUN),
    ],
)
def test_the_job_waits_until_then_whether_its_process_could_say_that_it_ended_or_not(
    ledger, suspensions, ended, living, uptime, action
):
    assert suspensions.begin("1", TAG, WAITS)
    if ended:
        assert ledger.put_back("1", "child")
    decide = Recovery(attempts=2, rerun=(), alive=lambda who: who in living, uptime=lambda: uptime)
    assert decide(ledger.full("1"), tuple)[0] is action


def test_while_its_process_lives_nobody_else_runs_it(ledger, suspensions):
    suspensions.begin("1", TAG, WAITS)
    decide = Recovery(attempts=2, rerun=(), alive=lambda who: who == "child", uptime=lambda: 1e9)
    assert decide(ledger.full("1"), tuple)[0] is Action.WAIT


def test_it_goes_on_with_what_it_recorded_and_no_attempt_counts(ledger, suspensions):
    for _ in range(3):
        suspensions.begin("1", TAG, WAITS)
        ledger.put_back("1", "child")
        held = ledger.full("1")
        assert (held.state, held.attempts, held.awaits) == (State.HELD, 0, WAITS.text)
        assert ledger.take(held, "next")
        assert ledger.full("1").awaits == ""
        described = {"jid": "1", "fun": "state.apply", "master": "m", "call": b"call"}
        ledger.accept("1", **described, owner="next", over=(State.HELD,))
        assert ledger.begin("1", "child") == 2, "it is resumed"
    assert ledger.full("1").attempts == 1
    assert ledger.chunks("1") == {TAG: ("", WAITS.text.encode())}


def test_what_was_not_asked_for_is_forgotten(ledger, suspensions):
    suspensions.begin("1", TAG, WAITS)
    suspensions.drop("1", TAG)
    assert ledger.chunks("1") == {}
    assert ledger.full("1").awaits == ""


def test_what_its_states_have_come_to_is_recorded_with_it(ledger, suspensions):
    ledger.add_chunk("1", "around", "d", b"")
    assert suspensions.begin("1", TAG, WAITS, {"results ": b"r"}, {"around": "d"})
    assert ledger.chunks("1") == {TAG: ("", WAITS.text.encode()), "results ": ("", b"r")}


def test_a_state_that_must_not_begin_again_is_noted_again_if_nobody_restarts(ledger, suspensions):
    ledger.add_chunk("1", "around", "d", b"")
    suspensions.begin("1", TAG, WAITS, left={"around": "d"})
    suspensions.drop("1", TAG, {"around": "d"})
    assert ledger.chunks("1") == {"around": ("d", b"")}


def test_only_a_job_that_runs_is_suspended(ledger, suspensions):
    ledger.finish("1", b"return")
    assert not suspensions.begin("1", TAG, WAITS)
    assert not suspensions.begin("2", TAG, WAITS)


def test_it_would_be_lost_without_this_record(ledger, suspensions):
    suspensions.begin("1", TAG, WAITS)
    ledger.put_back("1", "child")
    assert ledger.owed() == ["job 1 (state.apply): it waits for a restart"]
