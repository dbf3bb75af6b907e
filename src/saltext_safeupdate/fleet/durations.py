"""How long minions take, who is slow, and what is left to do."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .rollout import Minion, Rollout, Step

# A minion is slow if it takes this many times as long as the median of the fleet, and at least
# that many seconds longer.
SLOW, SLOW_SECONDS = 3.0, 60.0
# Seconds over which the rate is taken.
RECENT = 900.0
# As many durations make a median that others are compared with.
SAMPLE = 5


@dataclass(frozen=True)
class Usual:
    """What minions take, in seconds: mean, median and the longest; *count* of them."""

    count: int
    mean: float
    median: float
    longest: float


def usual(seconds: Iterable[float]) -> Usual | None:
    """Return what is usual; None without a duration."""
    found = sorted(seconds)
    if not found:
        return None
    return Usual(len(found), statistics.fmean(found), statistics.median(found), found[-1])


def by_phase(minions: Iterable[Minion]) -> dict[str, Usual]:
    """Return what is usual for each phase of an update that has ended well."""
    found: dict[str, list[float]] = {}
    for minion in minions:
        if minion.step is Step.DONE:
            for phase, seconds in minion.phases.items():
                found.setdefault(phase, []).append(seconds)
    return {phase: made for phase in found if (made := usual(found[phase]))}


def slow(rollout: Rollout) -> dict[str, float]:
    """Return who takes or took much longer than the others, with the seconds."""
    done = [m.seconds for m in rollout.minions.values() if m.step is Step.DONE]
    if len(done) < SAMPLE:
        return {}
    limit = max(SLOW * statistics.median(done), statistics.median(done) + SLOW_SECONDS)
    taken = {
        name: rollout.elapsed - minion.asked if minion.step.active else minion.seconds
        for name, minion in rollout.minions.items()
        if minion.step.active or minion.step is Step.DONE
    }
    return {name: seconds for name, seconds in taken.items() if seconds > limit}


def rate(rollout: Rollout) -> float:
    """Return how many minions an hour have been done of late; 0 if none was."""
    recent = min(rollout.elapsed, RECENT)
    begin = rollout.elapsed - recent
    done = sum(m.step is Step.DONE and m.settled_at > begin for m in rollout.minions.values())
    return done * 3600 / recent if recent else 0.0


def remaining(rollout: Rollout) -> float:
    """Return how many seconds the rest may take, by those that are done; 0 if nobody knows."""
    known = usual(m.seconds for m in rollout.minions.values() if m.step is Step.DONE)
    if known is None or rollout.mode.final:
        return 0.0
    wanted, waves = rollout.plan.request, rollout.plan.waves[rollout.wave :]
    rounds = 0
    for wave in waves:
        left = _left(rollout, wave.minions)
        most = rollout.plan.unavailable
        rounds += -(-left // max(min(most, rollout.plan.limits.get(wave.group, most)), 1))
    own = [wanted.of(wave.group) for wave in waves]
    pauses = sum(each.soak for each in own[:-1]) + sum(each.jitter for each in own) / 2
    return rounds * known.median + pauses


def _left(rollout: Rollout, names: Sequence[str]) -> int:
    return sum(
        not rollout.minions[name].step.settled and not rollout.minions[name].away for name in names
    )
