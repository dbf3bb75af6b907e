"""What a person does with a rollout: pause, resume, retry, abort."""

from __future__ import annotations

from collections.abc import Iterable

from . import controller
from .actions import Action
from .rollout import Mode, Rollout, Step


def pause(rollout: Rollout, why: str, now: float) -> list[Action]:
    """Start nobody more; who has begun goes on."""
    if rollout.mode is Mode.RUNNING:
        rollout.mode, rollout.why = Mode.PAUSED, why
        rollout.note(now, f"paused: {why}")
    return []


def resume(rollout: Rollout, now: float) -> list[Action]:
    """Go on, and accept the failures that there are."""
    if rollout.mode in (Mode.PAUSED, Mode.STOPPED):
        wave = rollout.current.minions if rollout.current is not None else ()
        for name, minion in rollout.minions.items():
            accepted = minion.step.bad or (name in wave and minion.away)
            minion.forgiven = minion.forgiven or accepted
        rollout.mode, rollout.why = Mode.RUNNING, ""
        rollout.note(now, "resumed")
    return []


def retry(rollout: Rollout, names: Iterable[str], now: float) -> list[Action]:
    """Let minions that have failed try again, in the wave that is under way."""
    for name in names:
        minion = rollout.minions[name]
        if minion.step.bad or minion.step is Step.MISSED:
            minion.step, minion.forgiven, minion.not_before = Step.WAITING, False, 0.0
            minion.staged, minion.tries = "", 0
            rollout.note(now, f"{name}: is to try again")
    if rollout.mode is Mode.STOPPED and not controller.failures(rollout):
        rollout.mode, rollout.why = Mode.RUNNING, ""
    return []


def abort(rollout: Rollout, why: str, now: float) -> list[Action]:
    """Start nobody more, and take back what has not begun."""
    if rollout.mode.final:
        return []
    rollout.mode, rollout.why = Mode.ABORTING, why
    rollout.note(now, f"aborted: {why}")
    found: list[Action] = []
    for name, minion in rollout.minions.items():
        if minion.step.active and not minion.cancelled:
            minion.cancelled = True
            controller.number(rollout, minion)
            found.append(controller.send(rollout, name, minion))
    return found
