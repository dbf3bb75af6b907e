"""Whom a policy leaves alone, and why: what rollouts that are over say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..fleet import tidying
from ..fleet.rollout import BAD, Rollout, Step
from ..fleet.versions import stand_for_each_other
from .store import Store

# How often a minion is brought to a version within a day: who never stays there is given up.
MOST_TIMES, DAY = 3, tidying.DAY


@dataclass
class _Goal:
    """Who is left alone of those that are to come to it, and how often each has been lately."""

    found: dict[str, str] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)


def by_goal(store: Store, goals: Iterable[str], now: float) -> dict[str, dict[str, str]]:
    """
    Return whom nobody should bring to each goal again before somebody has looked, and why.

    A goal is a version of Salt, or one of this extension for groups that want nothing else. It is
    who has failed in the newest rollout that brought it there, who was taken back from it while it
    is not kept from everybody, and who does not come there, or does not stay. What has failed
    because people worked on the host says nothing of the version.
    """
    known = {goal: _Goal() for goal in goals}
    outlines = store.outlines()
    for name, outline in outlines.items():
        taken = outlines.get(outline.back)
        brought = outline.back or outline.version or outline.extension
        brought = brought if taken is None else taken.version
        told = [each for goal, each in known.items() if stand_for_each_other(brought, goal)]
        recent = now - outline.looked < DAY
        matters = tidying.is_remembered(outline) or recent or any(each.found for each in told)
        if not (told and matters and outline.mode.final):
            continue
        # Of thousands of minions: read once, whatever it says of how many goals.
        if rollout := store.rollout(name):
            for each in told:
                _learn(each, rollout, recent)
    return {goal: _left_alone(goal, each) for goal, each in known.items()}


def _learn(goal: _Goal, rollout: Rollout, recent: bool) -> None:
    name = rollout.plan.id
    if rollout.plan.request.back:
        # Of all of a fleet, the version is in quarantine until somebody allows it again.
        if not rollout.keeps:
            back = f"was taken back by the rollout {name}; update it yourself"
            goal.found |= dict.fromkeys(rollout.minions, back)
        return
    for minion, each in rollout.minions.items():
        if each.step in BAD and not each.drained:
            reason = f" ({each.reason})" if each.reason else ""
            told = each.step.value.replace("_", " ")
            goal.found[minion] = f"{told} in the rollout {name}{reason}; update it yourself"
        elif each.step in (Step.DONE, Step.HELD, Step.MISSED, *BAD):
            if each.step is Step.DONE:
                goal.found.pop(minion, None)
            goal.times[minion] += recent


def _left_alone(goal: str, known: _Goal) -> dict[str, str]:
    return known.found | {
        minion: f"was to be brought to {goal} {number} times within a day, and is not there"
        for minion, number in known.times.items()
        if number >= MOST_TIMES
    }
