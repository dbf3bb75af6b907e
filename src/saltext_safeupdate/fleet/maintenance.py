"""Minions whose hosts people work on: a rollout leaves them alone, and does not wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import sending
from .actions import Action, Tell
from .plan import Wave
from .rollout import BAD, Rollout, Step

_WAITS = "waits for canaries on whose hosts people work: "
# The number of them that a message names.
_NAMED = 5


def heed(rollout: Rollout, drained: Mapping[str, str], now: float) -> list[Action]:
    """
    Take into account which minions people have *drained* on the master, and why.

    None of them is started, and a request is taken back unless it is known to have begun. A drained
    minion that is away, or whose update fails, counts neither as away nor as failed. Afterwards, a
    minion that was left alone continues in its own wave.
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
        # If it has failed meanwhile, the reason stays: a policy includes it again.
        if minion.drained and name not in drained and minion.step not in BAD:
            # A minion that is still away counts again.
            minion.drained = minion.excused = False
            if minion.step is Step.HELD:
                minion.come_to(Step.WAITING, "")
                if rollout.why.startswith(_WAITS):
                    rollout.why = ""
                rollout.note(now, f"{name}: is not drained any more")
    return actions


def awaited(rollout: Rollout, wave: Wave) -> list[str]:
    """Return the canaries of a wave that will begin by themselves after their drain."""
    found = wave.minions if wave.canary else ()
    known = rollout.minions
    return [name for name in found if known[name].drained and known[name].step is Step.HELD]


def wait(rollout: Rollout, names: Sequence[str], now: float) -> list[Action]:
    """Say once that the rollout waits for these canaries."""
    told = ", ".join(f"{name} ({rollout.minions[name].reason})" for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    why = f"{_WAITS}{told}{more}. 'undrain' continues it; a new plan draws other canaries"
    if rollout.why == why:
        return []
    rollout.why = why
    rollout.note(now, why)
    return [Tell("waiting", {"why": why})]
