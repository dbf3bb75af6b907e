"""Gates, and a person, that have to say yes before a wave begins, or before it is over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .actions import Action, Check, Tell
from .plan import Wave
from .rollout import Mode, Rollout, since

# Seconds between two questions to a gate.
INTERVAL = 60.0
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Verdict:
    """The answer of a gate to the question of that number, and *why*."""

    gate: str
    number: int
    opens: bool
    why: str = ""


def hear(rollout: Rollout, verdicts: Iterable[Verdict], now: float) -> None:
    """
    Take verdicts of gates into account, if they answer one of the questions under way.

    If a gate takes long, it is asked again meanwhile, and answers the first question.
    """
    for each in verdicts:
        moment, _, gate = rollout.gate.partition(" ")
        if gate != each.gate or not gate:
            continue
        if not rollout.gate_from <= each.number <= rollout.gate_number:
            # The question was about something else, or from before the rollout stopped.
            continue
        if each.opens:
            rollout.passed[_key(rollout, moment, gate)] = rollout.elapsed
            rollout.note(now, f"the gate {gate} says yes {moment} wave {rollout.wave + 1}")
            rollout.gate, why = "", ""
        else:
            # Earlier questions are out of date.
            rollout.gate_from = each.number
            told = each.why or "it does not say why"
            why = f"waits {moment} wave {rollout.wave + 1}: the gate {gate} says no: {told}"
        # A rollout that has stopped says why.
        rollout.why = why if rollout.mode is Mode.RUNNING else rollout.why


def closed(rollout: Rollout, moment: str, wave: Wave, now: float) -> tuple[bool, list[Action]]:
    """Return whether a gate is still closed, and the next actions: ask it, or stop."""
    wanted = rollout.plan.request.of(wave.group)
    for name in lacks(rollout, moment, wave):
        if rollout.gate != f"{moment} {name}":
            rollout.gate, rollout.gate_asked = f"{moment} {name}", None
            rollout.gate_since, rollout.gate_from = rollout.elapsed, rollout.gate_number + 1
        if since(rollout, rollout.gate_since) >= wanted.gate_timeout:
            return True, _too_long(rollout, name, wanted.gate_timeout, now)
        if since(rollout, rollout.gate_asked) < INTERVAL:
            return True, []
        rollout.gate_asked = rollout.elapsed
        rollout.gate_number += 1
        return True, [Check(name, rollout.gate_number, moment, rollout.wave + 1)]
    return False, []


def lacks(rollout: Rollout, moment: str, wave: Wave) -> list[str]:
    """Return the gates of the present wave that have not said yes, in their order."""
    wanted = rollout.plan.request.of(wave.group)
    names = wanted.gate_before if moment == BEFORE else wanted.gate_after
    return [name for name in names if _key(rollout, moment, name) not in rollout.passed]


def forget(rollout: Rollout) -> None:
    """Note that nobody may begin now: no gate is asked, and this time does not count as a no."""
    if not rollout.gate.startswith(f"{BEFORE} "):
        return
    rollout.gate = ""
    if rollout.mode is Mode.RUNNING:
        rollout.why = ""


def _too_long(rollout: Rollout, name: str, seconds: float, now: float) -> list[Action]:
    last = f": {rollout.why}" if rollout.why else ", and has not answered"
    rollout.mode = Mode.STOPPED
    rollout.why = f"the gate {name} has not said yes for {seconds:g} s{last}. 'resume' asks again"
    rollout.gate = ""
    rollout.note(now, f"stopped: {rollout.why}")
    return [Tell("stopped", {"why": rollout.why})]


def _key(rollout: Rollout, moment: str, name: str) -> str:
    return f"{rollout.part}/{rollout.wave}/{moment}/{name}"


def pause_after(rollout: Rollout, over: int, now: float) -> list[Action]:
    """Pause if a person has to look after the wave with the number *over* (from 0)."""
    waves = rollout.plan.waves
    if over + 1 >= len(waves):
        return []
    wave, following = waves[over], waves[over + 1]
    when = rollout.plan.request.of(wave.group).pause_after
    last = wave.group != following.group
    if not (when == "waves" or (when == "canaries" and wave.canary) or (when == "groups" and last)):
        return []
    what = {"canaries": f"the canaries of {wave.group}", "groups": f"all of {wave.group}"}
    told = what.get(when, f"wave {over + 1}")
    rollout.mode = Mode.PAUSED
    rollout.why = f"{told} are done" if when != "waves" else f"{told} is done"
    rollout.why += ", and a person has to look: 'resume' continues, 'abort' ends it"
    rollout.note(now, f"paused: {rollout.why}")
    return [Tell("paused", {"why": rollout.why, "by": ""})]
