"""Minions whose hosts people work on: a rollout leaves them alone, and waits for none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import sending
from .actions import Action, Tell
from .plan import Wave
from .rollout import BAD, Rollout, Step

_WAITS = "waits for canaries on whose hosts people work: "
# So many of them are named.
_NAMED = 5


def heed(rollout: Rollout, drained: Mapping[str, str], now: float) -> list[Action]:
    """
    Take into account who is *drained*, and why: by the word of people at the master.

    Nobody of them is started, and a request is taken back of which it is not known to have begun.
    Whoever is away, or fails what had begun, counts neither as away nor as failed. When that is
    over, whoever was left alone for it goes on in its own wave.
    """
    names = sorted(drained.keys() & rollout.minions.keys())
    known = [name for name in names if rollout.minions[name].step is not Step.UPDATING]
    actions = sending.take_back(rollout, known)
    for name in names:
        minion = rollout.minions[name]
        minion.drained = True
        if minion.step is Step.WAITING:
            minion.come_to(Step.HELD, drained[name])
            rollout.note(now, f"{name}: {drained[name]}")
        minion.excused = minion.excused or minion.away
        if minion.step in BAD and not minion.forgiven:
            minion.forgiven = True
            rollout.note(now, f"{name}: is no failure of the rollout: {drained[name]}")
    for name, minion in rollout.minions.items():
        # Of one that has failed meanwhile it stays known why: a policy brings it along.
        if minion.drained and name not in drained and minion.step not in BAD:
            # Whoever is still away counts again.
            minion.drained = minion.excused = False
            if minion.step is Step.HELD:
                minion.come_to(Step.WAITING, "")
                if rollout.why.startswith(_WAITS):
                    rollout.why = ""
                rollout.note(now, f"{name}: is not drained any more")
    return actions


def awaited(rollout: Rollout, wave: Wave) -> list[str]:
    """Return the canaries of a wave that begin by themselves when they are not drained any more."""
    found = wave.minions if wave.canary else ()
    known = rollout.minions
    return [name for name in found if known[name].drained and known[name].step is Step.HELD]


def wait(rollout: Rollout, names: Sequence[str], now: float) -> list[Action]:
    """Say once that the rollout waits for these canaries."""
    told = ", ".join(f"{name} ({rollout.minions[name].reason})" for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    why = f"{_WAITS}{told}{more}. 'undrain' has it go on; a new plan draws other canaries"
    if rollout.why == why:
        return []
    rollout.why = why
    rollout.note(now, why)
    return [Tell("waiting", {"why": why})]
