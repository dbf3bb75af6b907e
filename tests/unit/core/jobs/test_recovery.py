"""What becomes of a job, for every state, and every way in which its processes are gone."""

import pytest

from saltext_safeupdate.core.jobs import functions, recovery
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.core.jobs.ledger import Job, State
from saltext_safeupdate.core.jobs.recovery import Action, Recovery

NOW = 10_000.0


def job(
    state,
    fun="cmd.run",
    *,
    attempts=1,
    changed=NOW - 60,
    owner="main",
    runner="child",
    unbegun=0,
    awaits="",
):
    who = (state, owner, runner, changed, changed, attempts, 0, unbegun, awaits)
    return Job("1", "1", fun, "m", *who, None, None)


def decide(found, *, living=(), queued=False, rerun=(), attempts=2, **kwargs):
    return Recovery(
        attempts=attempts,
        rerun=rerun,
        clock=lambda: NOW,
        alive=lambda who: who in living,
        **kwargs,
    )(found, lambda: {"1"} if queued else ())


@pytest.mark.parametrize("living", [(), ("main",), ("child",), ("main", "child")])
@pytest.mark.parametrize("state", [State.FINISHED, State.DELIVERED])
def test_what_has_ended_is_left_to_its_delivery(state, living):
    assert decide(job(state), living=living) == (Action.WAIT, "")


@pytest.mark.parametrize("living", [("child",), ("main", "child")])
def test_what_runs_runs_on_even_without_its_minion(living):
    assert decide(job(State.RUNNING), living=living) == (Action.WAIT, "")


def test_what_was_accepted_and_never_begun_may_run_whatever_it_is():
    assert decide(job(State.ACCEPTED)) == (Action.RUN, "")
    assert decide(job(State.ACCEPTED), living=("main",)) == (Action.WAIT, "")


@pytest.mark.parametrize("step", [0, -600, 600])
def test_what_was_accepted_long_ago_has_no_process(step):
    """However the time of day was set meanwhile: *changed* is one."""
    now = [NOW]
    decide = Recovery(attempts=2, rerun=(), clock=lambda: now[0], alive=lambda who: who == "main")
    found = job(State.ACCEPTED, changed=NOW + step)
    assert decide(found, tuple) == (Action.WAIT, "")
    now[0] += recovery.NOT_BEGUN - 1
    assert decide(found, tuple) == (Action.WAIT, "")
    now[0] += 1
    assert decide(found, tuple) == (Action.RUN, "")


def test_what_is_gone_is_forgotten():
    now = [NOW]
    decide = Recovery(attempts=2, rerun=(), clock=lambda: now[0], alive=lambda who: who == "main")
    decide(job(State.ACCEPTED), tuple)
    decide.forget([job(State.RUNNING)])
    now[0] += recovery.NOT_BEGUN
    assert decide(job(State.ACCEPTED), tuple) == (Action.WAIT, "")


@pytest.mark.parametrize("lives", [True, False])
def test_a_held_job_runs_when_it_has_been_nowhere_for_a_while(lives):
    """Also under the minion that held it: 'saltutil.clear_cache' empties the queues."""
    now, places, living = [NOW], {"1"}, {"main"}
    decide = Recovery(
        attempts=2,
        rerun=(),
        clock=lambda: now[0],
        alive=lambda who: who in living,
    )

    def after(seconds):
        now[0] += seconds
        return decide(job(State.HELD), lambda: places)[0]

    assert after(0) is Action.WAIT
    if not lives:
        living.clear()
    assert after(100) is Action.WAIT, "it lies in a queue"
    places.clear()
    assert after(100) is Action.WAIT, "the minion may just have taken it out"
    places.add("1")
    assert after(recovery.HAND_OVER) is Action.WAIT
    places.clear()
    assert after(1) is Action.WAIT
    assert after(recovery.HAND_OVER - 1) is Action.WAIT
    assert after(1) is Action.RUN


@pytest.mark.parametrize("fun", functions.named(Kind.RESUMABLE))
def test_state_runs_are_resumed(fun):
    assert decide(job(State.RUNNING, fun)) == (Action.RUN, "")


@pytest.mark.parametrize("fun", ["cmd.run", "state.apply"])
def test_what_has_not_begun_runs_whatever_it_is(fun):
    assert decide(job(State.RUNNING, fun, unbegun=1)) == (Action.RUN, "")
    assert decide(job(State.RUNNING, fun, unbegun=1, attempts=4)) == (Action.RUN, "")
    action, reason = decide(job(State.RUNNING, fun, unbegun=1, attempts=5))
    assert (action, reason) == (Action.REPORT, "the minion was stopped 5 times as it began")


def test_what_was_killed_before_it_began_is_reported_as_that():
    found = job(State.RUNNING, unbegun=1)
    action, reason = decide(found, living=("main",))
    assert action is Action.REPORT
    assert "had not begun, so nothing was done" in recovery.interruption(found, reason, NOW)


@pytest.mark.parametrize("transactional", [True, False])
def test_what_a_transaction_had_done_does_not_stay(transactional):
    said = recovery.interruption(job(State.RUNNING), "x", NOW, transactional=transactional)
    assert ("unless it was in a transaction that was not closed" in said) is transactional


def test_other_functions_are_reported_unless_they_are_listed():
    action, reason = decide(job(State.RUNNING, "cmd.run"))
    assert action is Action.REPORT
    assert "safeupdate:rerun" in reason
    assert decide(job(State.RUNNING, "test.echo"), rerun=("test.*",)) == (Action.RUN, "")
    assert decide(job(State.RUNNING, "test.echo"), rerun=("test.ping",))[0] is Action.REPORT


@pytest.mark.parametrize("fun", functions.named(Kind.WAITS))
def test_who_waits_for_an_update_runs_when_the_wait_is_over(fun):
    for living in ((), ("main",)):
        held = job(State.HELD, fun)
        assert decide(held, living=living, wait_is_over=lambda job: False)[0] is Action.WAIT
        assert decide(held, living=living, wait_is_over=lambda job: True)[0] is Action.RUN
        assert (
            decide(held, living=living, wait_is_over=lambda job: True, queued=True)[0]
            is Action.WAIT
        )
    assert decide(job(State.RUNNING, fun)) == (Action.RUN, "")


def test_attempts_are_bounded():
    assert decide(job(State.RUNNING, "state.apply", attempts=1))[0] is Action.RUN
    action, reason = decide(job(State.RUNNING, "state.apply", attempts=2))
    assert action is Action.REPORT
    assert "2 times in a row" in reason


def test_a_killed_job_of_a_living_minion_is_reported_and_never_resumed():
    action, reason = decide(job(State.RUNNING, "state.apply"), living=("main",))
    assert action is Action.REPORT
    assert "killed" in reason


def test_salt_itself_may_resume():
    found = job(State.RUNNING, "state.apply")
    assert decide(found, stand_down=True, since=NOW - 1)[0] is Action.WAIT
    late = decide(found, stand_down=True, since=NOW - recovery.STAND_DOWN)
    assert late[0] is Action.REPORT
    assert decide(job(State.ACCEPTED), stand_down=True, since=NOW)[0] is Action.RUN


def test_the_report_says_when_why_and_what_to_do():
    text = recovery.interruption(job(State.RUNNING, changed=0.0), "of a power cut", 61.0)
    assert "of a power cut" in text
    assert "1970-01-01 00:00:00 UTC" in text
    assert "1970-01-01 00:01:01 UTC" in text
    assert "publish it again" in text
