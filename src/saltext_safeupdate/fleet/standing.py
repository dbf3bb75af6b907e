"""
Minions that count against ``max_unavailable``: all that are or may be away, in any wave.


A minion in an unknown state counts. One that a person has accepted with ``resume`` does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .rollout import BROKEN, Minion, Rollout, Step, since

# Seconds without an answer after which a minion is in doubt. It counts as away, with all the
# consequences, only after the ``silence_timeout`` of the rollout.
DOUBT = 15.0
# How often a minion is asked that cannot begin, until its wave continues without it.
MOST_TRIES = 3


def holds(rollout: Rollout, minion: Minion) -> str:
    """Return why a minion takes a part of the budget; empty if it takes no part."""
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
    """Return whether the minion should have answered a question by now."""
    return minion.silent_since is not None and since(rollout, minion.silent_since) > DOUBT


def is_busy(minion: Minion) -> bool:
    """Return whether it was asked repeatedly, and has not begun through no fault of its own."""
    asked = minion.busy_since is not None and minion.tries >= MOST_TRIES
    return asked and minion.step is Step.WAITING


def begins_anew(minion: Minion) -> bool:
    """Return whether ``resume`` has a busy minion asked again, as if it had not been asked."""
    return is_busy(minion) and not (minion.away or minion.engaged)


def down(rollout: Rollout) -> list[str]:
    """Return the minions that are away, may be, or may not come back by themselves."""
    # Only these of thousands have to be checked closely.
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
    """Return how many more may be away; below 0 if too many are."""
    return rollout.plan.unavailable - len(down(rollout))


class Room:
    """How many more may be away: of all, and of each group with a limit of its own."""

    def __init__(self, rollout: Rollout, away: Iterable[str]) -> None:
        plan, gone = rollout.plan, list(away)
        self._of = plan.group_of
        self.left = plan.unavailable - len(gone)
        counted = Counter(self._of[name] for name in gone)
        self._groups = {group: most - counted[group] for group, most in plan.limits.items()}

    def has(self, name: str, more: int = 1) -> bool:
        """Return whether there is room for so many *more* of its group."""
        return self.left >= more and self._groups.get(self._of[name], more) >= more

    def take(self, name: str) -> None:
        """Note that this minion may be away from now on."""
        self.left -= 1
        if self._of[name] in self._groups:
            self._groups[self._of[name]] -= 1


def counted(rollout: Rollout) -> bool:
    """Return whether all were asked since starts are allowed, and have had time to answer."""
    if rollout.counting is None:
        return False
    return since(rollout, rollout.counting) > DOUBT or not any(
        minion.silent_since is not None and not minion.away for minion in rollout.minions.values()
    )


def given_up(rollout: Rollout) -> list[str]:
    """Return the minions that do not come back unless somebody acts."""
    return [
        name
        for name, minion in rollout.minions.items()
        if minion.step is Step.FAILED and holds(rollout, minion)
    ]
