"""Minions that a policy leaves alone, and why, according to rollouts that are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..fleet import tidying
from ..fleet.rollout import BAD, Rollout, Step
from ..fleet.versions import stand_for_each_other
from .store import Store

# How often a minion is updated to a version within a day: if it does not stay, it is given up.
MOST_TIMES, DAY = 3, tidying.DAY


@dataclass
class _Goal:
    """The minions that are left alone for a goal, and how often each was updated lately."""

    found: dict[str, str] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)


def by_goal(store: Store, goals: Iterable[str], now: float) -> dict[str, dict[str, str]]:
    """
    Return the minions that are not updated to each goal again before somebody has looked, and why.

    A goal is a version of Salt, or one of this extension for groups that want nothing else. These
    are minions that failed in the newest rollout to it, that were taken back from it while it is
    not kept from all minions, or that do not reach it, or do not keep it. A failure while people
    worked on the host says nothing about the version.
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
        # A rollout may have thousands of minions, so it is read once for all goals.
        if rollout := store.rollout(name):
            for each in told:
                _learn(each, rollout, recent)
    return {goal: _left_alone(goal, each) for goal, each in known.items()}


def _learn(goal: _Goal, rollout: Rollout, recent: bool) -> None:
    name = rollout.plan.id
    if rollout.plan.request.back:
        # If a whole fleet was taken back, the version is in quarantine until somebody allows it.
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
        minion: f"was to be updated to {goal} {number} times within a day, and does not run it"
        for minion, number in known.times.items()
        if number >= MOST_TIMES
    }
