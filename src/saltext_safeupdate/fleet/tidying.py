"""Which of the stored rollouts and plans need not be kept any more."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .rollout import BAD
from .stored import Outline

# What is kept of rollouts that are over, and of plans that were never run: as many of each, and for
# as many seconds. People compare with the last quarter.
KEPT, KEPT_SECONDS = 1000, 90 * 86400.0
# As many minions as all of them have together: a hundred rollouts of 10,000 are 150 MB. A policy
# begins many that have one or two.
KEPT_MINIONS = 1_000_000
# How many times as long the failures and ways back are kept, by their age alone: a policy leaves
# alone whom they name, and would else bring a version again to those that it has broken.
LONGER = 4
# Seconds for which all are: a policy counts what it has done within a day.
DAY = 86400.0


def gone(
    over: Mapping[str, Outline],
    never_run: Mapping[str, float],
    now: float,
    *,
    kept: int = KEPT,
    seconds: float = KEPT_SECONDS,
    minions: int = KEPT_MINIONS,
) -> list[str]:
    """
    Return the names of what is *over*, or was *never run* and planned then, that may go.

    If all of it is older than that, the clock may be ahead, as after a power cut: then only the
    number counts.
    """
    newest = max((*(each.looked for each in over.values()), *never_run.values()), default=now)
    sound = now - newest <= seconds
    found: list[str] = []
    room, left = minions, kept
    for name, outline in sorted(over.items(), key=lambda row: (-row[1].looked, row[0])):
        if is_remembered(outline):
            old = sound and outline.looked < now - LONGER * seconds
            found += [name] * old
            continue
        size = sum(outline.counts.values())
        recent = sound and outline.looked >= now - min(DAY, seconds)
        old = outline.looked < (now - seconds if sound else -math.inf)
        if old or (not recent and (left < 1 or room < size)):
            found.append(name)
        else:
            left, room = left - 1, room - size
    planned = sorted(((at, name) for name, at in never_run.items()), reverse=True)
    for number, (at, name) in enumerate(planned):
        if number >= kept or (sound and at < now - seconds):
            found.append(name)
    return sorted(found)


def is_remembered(outline: Outline) -> bool:
    """Tell whether it says whom nobody should bring somewhere again without looking."""
    return bool(outline.back) or any(outline.counts.get(step.value) for step in BAD)
