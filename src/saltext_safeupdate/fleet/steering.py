"""
The commands of a person to a rollout: pause, resume, retry, abort.


*by* is the person, for the history.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import gates, sending, standing
from .actions import Action
from .rollout import LEFT, Minion, Mode, Rollout, Step, said


def pause(rollout: Rollout, why: str, now: float, by: str = "") -> list[Action]:
    """Start no more minions; those that have begun continue."""
    if rollout.mode is Mode.RUNNING:
        rollout.mode, rollout.why = Mode.PAUSED, why
        rollout.note(now, f"paused{said(by)}: {why}")
    return []


def resume(rollout: Rollout, now: float, by: str = "") -> list[Action]:
    """
    Continue, and accept minions that failed or are away. Withdrawn requests begin again.

    If the rollout is running, minions that wait for a reboot are accepted, too. If it has stopped,
    minions that are at work for somebody else are accepted, too, and busy ones are asked again.
    """
    if rollout.mode in (Mode.PAUSED, Mode.STOPPED, Mode.RUNNING):
        stands = rollout.full_since is not None or rollout.mode is Mode.STOPPED
        for minion in rollout.minions.values():
            # Resuming after a pause does not accept minions that the rollout waits for.
            waits = rollout.mode is Mode.RUNNING and minion.step is Step.TO_REBOOT
            busy = stands and minion.engaged and not sending.is_out(minion)
            busy = busy and not minion.step.active and minion.step is not Step.TO_REBOOT
            minion.forgiven = minion.forgiven or minion.step.bad or waits or busy
            minion.excused = minion.excused or minion.away
            anew = rollout.mode is Mode.STOPPED and standing.begins_anew(minion)
            if minion.step is Step.CANCELLED or anew:
                _try_again(minion)
        rollout.full_since = None
        _go_on(rollout)
        rollout.note(now, f"resumed{said(by)}")
    return []


def retry(rollout: Rollout, names: Iterable[str], now: float, by: str = "") -> list[Action]:
    """
    Let minions that have failed try again, in the wave that is under way.

    A minion that may still be at work keeps its part of the budget until it says that it is not.
    """
    for name in names:
        minion = rollout.minions[name]
        if minion.step.bad or minion.step in LEFT:
            if minion.step is Step.SUPERSEDED:
                # It refuses numbers below the one that it has taken from somebody else.
                rollout.first = max(rollout.first, int(now * 1e6))
                minion.cancelled = True
            _try_again(minion)
            rollout.note(now, f"{name}: is to try again{said(by)}")
    # All report first: a minion may wait for its boot, and would refuse another update.
    rollout.counting = None
    if rollout.mode is Mode.STOPPED and not gates.failures(rollout):
        _go_on(rollout)
    return []


def abort(rollout: Rollout, why: str, now: float, by: str = "") -> list[Action]:
    """Start no more minions, and take back requests that have not begun."""
    if rollout.mode.final:
        return []
    rollout.mode, rollout.why = Mode.ABORTING, why
    rollout.note(now, f"aborted{said(by)}: {why}")
    return sending.take_back(rollout, rollout.minions)


def _go_on(rollout: Rollout) -> None:
    rollout.mode, rollout.why, rollout.gate = Mode.RUNNING, "", ""
    if rollout.kept:
        # It has been allowed since then, or nobody could resume.
        rollout.because, rollout.kept = "", False


def _try_again(minion: Minion) -> None:
    minion.come_to(Step.WAITING)
    minion.forgiven, minion.not_before = False, 0.0
    minion.staged, minion.tries, minion.busy_since = "", 0, None
