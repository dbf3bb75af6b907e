"""
Who counts against ``max_unavailable``: whoever is away, or may be, in whatever wave.

What is not known is counted. What a person has seen and gone on with is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .rollout import BROKEN, Minion, Rollout, Step, since

# Seconds without an answer after which nobody relies on a minion any more. It counts as away, with
# all that follows from that, only after the ``silence_timeout`` of the rollout.
DOUBT = 15.0


def holds(rollout: Rollout, minion: Minion) -> str:
    """Return why a minion takes a part of the budget; empty if it takes none."""
    if minion.step.active:
        return "is being updated"
    if minion.step in BROKEN:
        return "" if minion.forgiven else minion.step.value.replace("_", " ")
    if minion.excused or minion.forgiven:
        return ""
    if minion.engaged:
        return "may be at work"
    if minion.away:
        return "does not answer"
    return "has not answered yet" if in_doubt(rollout, minion) else ""


def in_doubt(rollout: Rollout, minion: Minion) -> bool:
    """Tell whether the minion has been asked something and should have answered by now."""
    return minion.silent_since is not None and since(rollout, minion.silent_since) > DOUBT


def down(rollout: Rollout) -> list[str]:
    """Return the minions that are away, may be, or may not come back by themselves."""
    # Of thousands only these have to be looked at closely.
    return [
        name
        for name, each in rollout.minions.items()
        if each.engaged
        or each.away
        or each.silent_since is not None
        or each.step.active
        or each.step in BROKEN
        if holds(rollout, each)
    ]


def free(rollout: Rollout) -> int:
    """Return how many more may be away; below 0 if more are than may be."""
    return rollout.plan.unavailable - len(down(rollout))


class Room:
    """How many more may be away: of all, and of each group that has a limit of its own."""

    def __init__(self, rollout: Rollout, away: Iterable[str]) -> None:
        plan, gone = rollout.plan, list(away)
        self._of = plan.group_of
        self.left = plan.unavailable - len(gone)
        counted = Counter(self._of[name] for name in gone)
        self._groups = {group: most - counted[group] for group, most in plan.limits.items()}

    def has(self, name: str, more: int = 1) -> bool:
        """Tell whether there is room for so many of them *more*."""
        return self.left >= more and self._groups.get(self._of[name], more) >= more

    def take(self, name: str) -> None:
        """Note that one of them may be away from now on."""
        self.left -= 1
        if self._of[name] in self._groups:
            self._groups[self._of[name]] -= 1


def counted(rollout: Rollout) -> bool:
    """Tell whether everybody was asked since starts are allowed, and has had time to answer."""
    if rollout.counting is None:
        return False
    return since(rollout, rollout.counting) > DOUBT or not any(
        minion.silent_since is not None and not minion.away for minion in rollout.minions.values()
    )


def given_up(rollout: Rollout) -> list[str]:
    """Return those of them that do not come back unless somebody sees to them."""
    return [
        name
        for name, minion in rollout.minions.items()
        if minion.step is Step.FAILED and holds(rollout, minion)
    ]
