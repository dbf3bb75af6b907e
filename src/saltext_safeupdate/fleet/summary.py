"""
A rollout as data for people and programs.

The schema is part of the interface: keys are added, never renamed, and ``schema`` grows if
the meaning of a key changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import times
from . import durations, gates, standing, window
from .rollout import Minion, Mode, Rollout, Step
from .stored import Outline

SCHEMA = 1
# Keys of a summary whose values are seconds since 1970.
TIMES = ("began", "looked", "window_begins")
# The most rows of minions in a summary.
_MOST_ROWS = 20
# The order in which minions are shown.
ORDER = (
    Step.FAILED,
    Step.TIMED_OUT,
    Step.ROLLED_BACK,
    Step.REFUSED,
    Step.SUPERSEDED,
    Step.UPDATING,
    Step.ASKED,
    Step.TO_REBOOT,
    Step.MISSED,
    Step.CANCELLED,
    Step.HELD,
    Step.WAITING,
    Step.DONE,
)


def summary(rollout: Rollout, now: float) -> dict[str, Any]:
    """Return the status of the rollout, without a row for each minion."""
    known = durations.usual(m.seconds for m in rollout.minions.values() if m.step is Step.DONE)
    wanted = rollout.plan.request
    begins = gates.next_begin(rollout, now) if rollout.plan.waves else window.NEVER
    found = {
        "schema": SCHEMA,
        "rollout": rollout.plan.id,
        "mode": rollout.mode.value,
        "exit_status": exit_status(rollout),
        "why": rollout.why,
        "version": wanted.version,
        "extension": wanted.extension,
        "back": wanted.back,
        "by": rollout.by,
        "began": rollout.began,
        "looked": rollout.looked,
        "goal": " ".join(part for part in rollout.goal if part),
        "wave": min(rollout.wave + 1, len(rollout.plan.waves)),
        "waves": [_wave(rollout, number) for number in range(len(rollout.plan.waves))],
        "minions": len(rollout.minions),
        "counts": {step.value: n for step in ORDER if (n := rollout.count(step))},
        "down": len(standing.down(rollout)),
        "may_be_down": rollout.plan.unavailable,
        "may_fail": rollout.plan.failed,
        "left_out": len(rollout.plan.left_out),
        "staged": sum(minion.staged == "done" for minion in rollout.minions.values()),
        "waits_for": _waits_for(rollout),
        "seconds": None
        if known is None
        else {"mean": known.mean, "median": known.median, "longest": known.longest},
        "rate": durations.rate(rollout),
        "remaining": durations.remaining(rollout),
        "window_begins": begins if now < begins < window.NEVER else None,
        "problems": problems(rollout),
    }
    return times.beside(found, TIMES)


def _wave(rollout: Rollout, number: int) -> dict[str, Any]:
    wave = rollout.plan.waves[number]
    found = [rollout.minions[name] for name in wave.minions]
    return {
        "group": wave.group,
        "canary": wave.canary,
        "minions": len(found),
        "done": sum(minion.step is Step.DONE for minion in found),
        "bad": sum(minion.step.bad for minion in found),
        "active": sum(minion.step.active for minion in found),
        "away": sum(minion.away for minion in found),
        "state": _state(rollout, number),
    }


def _state(rollout: Rollout, number: int) -> str:
    if number < rollout.wave:
        return "over"
    if number > rollout.wave:
        ends = rollout.mode in (Mode.ABORTING, Mode.ABORTED)
        return "not begun" if ends else "to come"
    return "aborted" if rollout.mode is Mode.ABORTED else "under way"


def _waits_for(rollout: Rollout) -> dict[str, int]:
    """Return how many jobs the updates under way wait for, by minion."""
    found = {name: m.waits_for for name, m in rollout.minions.items() if m.waits_for}
    return dict(sorted(found.items(), key=lambda row: -row[1])[:_MOST_ROWS])


def problems(rollout: Rollout, most: int = _MOST_ROWS) -> list[dict[str, str]]:
    """Return the problems that a person has to look at, the worst first."""
    rows = [
        {"minion": name, "what": minion.step.value, "why": minion.reason}
        for name, minion in rollout.minions.items()
        if minion.step.bad
    ]
    rows.sort(key=lambda row: (ORDER.index(Step(row["what"])), row["minion"]))
    rows += [
        {"minion": name, "what": "slow", "why": f"{seconds:.0f} s so far"}
        for name, seconds in sorted(durations.slow(rollout).items(), key=lambda row: -row[1])
    ]
    rows += [
        {"minion": name, "what": m.step.value, "why": "a reboot of its host activates the update"}
        for name, m in rollout.minions.items()
        if m.step is Step.TO_REBOOT
    ]
    rows += [
        {"minion": name, "what": m.step.value, "why": m.reason}
        for name, m in rollout.minions.items()
        if m.step is Step.HELD
    ]
    rows += [
        {"minion": name, "what": "busy", "why": m.reason}
        for name, m in rollout.minions.items()
        if m.step is Step.WAITING and m.busy_since is not None and not m.away
    ]
    rows += [
        {"minion": name, "what": "away", "why": "does not answer"}
        for name in rollout.minions
        if rollout.minions[name].away and not rollout.minions[name].step.bad
    ]
    return rows[:most]


def rows(rollout: Rollout) -> list[dict[str, Any]]:
    """Return a row for each minion, in the order of the waves."""
    return [
        _row(name, rollout.minions[name], number)
        for number, wave in enumerate(rollout.plan.waves, 1)
        for name in wave.minions
    ]


def _row(name: str, minion: Minion, wave: int) -> dict[str, Any]:
    return {
        "minion": name,
        "wave": wave,
        "step": minion.step.value,
        "phase": minion.phase,
        "waits_for": minion.waits_for,
        "version": minion.version,
        "reason": minion.reason,
        "away": minion.away,
        "asked": minion.asked if minion.requests else None,
        "seconds": minion.seconds,
        "phases": dict(minion.phases),
    }


def exit_status(rollout: Rollout) -> int:
    """
    Return 0 if all are done, 1 if some are not, 2 if it has stopped or pauses, 3 while it runs.

    Minions that were left out because of a problem are not done. Held minions do not count, as long
    as another one is done.
    """
    counts = {step.value: rollout.count(step) for step in (Step.DONE, Step.HELD)}
    return _exit_status(
        rollout.mode, _all_done(counts, len(rollout.minions), len(rollout.plan.unfit))
    )


def _all_done(counts: Mapping[str, int], minions: int, unfit: int) -> bool:
    done, held = (counts.get(step.value, 0) for step in (Step.DONE, Step.HELD))
    return done + held == minions and not unfit and bool(done or not held)


def _exit_status(mode: Mode, all_done: bool) -> int:
    if mode is Mode.FINISHED:
        return 0 if all_done else 1
    if mode is Mode.ABORTED:
        return 1
    return 3 if mode in (Mode.RUNNING, Mode.ABORTING) else 2


def line(outline: Outline) -> dict[str, Any]:
    """Return a rollout for a list of all of them: some keys of :func:`summary`."""
    minions = sum(outline.counts.values())
    return {
        "mode": outline.mode.value,
        "why": outline.why,
        "version": outline.version,
        "extension": outline.extension,
        "back": outline.back,
        "counts": {s.value: outline.counts[s.value] for s in ORDER if s.value in outline.counts},
        "minions": minions,
        "exit_status": _exit_status(
            outline.mode,
            _all_done(outline.counts, minions, outline.unfit),
        ),
    }
