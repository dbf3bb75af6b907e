"""
What a rollout does next: a function of what is stored, what minions have said, and the time.

Everything is decided here and nothing is done.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from . import judge, window
from .actions import Action, Ask, Cancel, Quarantine, Stage, Start, Tell
from .judge import Report
from .plan import Wave
from .rollout import BROKEN, Minion, Mode, Rollout, Step

# The longest time between two looks that counts as time in which the rollout was looked after.
MOST_BETWEEN = 30.0
# Seconds between two questions to minions that are being updated, and to all that have been.
ASK_INTERVAL, SURVEY_INTERVAL = 5.0, 60.0
# Seconds until a request that a minion does not know is sent again.
AGAIN_INTERVAL = 60.0
# Seconds until a minion whose update was postponed or refused for now is asked again.
ATTEMPT_INTERVAL = 300.0
# How many minions download at once, at most, as a multiple of those that may be away.
STAGING = 4
# As many canaries have to roll a version back until it is kept from everybody.
QUARANTINE = 2


def advance(rollout: Rollout, reports: Iterable[Report], now: float) -> list[Action]:
    """
    Take the reports into account and return what is to be done; *now* is in epoch seconds.

    Store the rollout before anything of that is done.
    """
    if rollout.mode.final:
        return []
    rollout.elapsed += min(max(now - rollout.looked, 0.0), MOST_BETWEEN)
    rollout.looked = now
    actions: list[Action] = []
    actions += _listen(rollout, reports, now)
    _time_out(rollout)
    actions += _judge_wave(rollout, now)
    if rollout.mode is Mode.RUNNING:
        actions += _stage(rollout)
        actions += _start(rollout, now)
    actions += _again(rollout)
    actions += _ask(rollout)
    actions += _end(rollout, now)
    return actions


# -- what minions say ----------------------------------------------------------------------


def _listen(rollout: Rollout, reports: Iterable[Report], now: float) -> list[Action]:
    told: list[Action] = []
    ordered = sorted(reports, key=lambda report: (report.minion, report.question, repr(report)))
    for report in ordered:
        minion = rollout.minions.get(report.minion)
        if minion is None or report.question > rollout.question:
            continue
        fresh = report.question > minion.answered
        moved = judge.heed(minion, report, rollout.goal)
        if fresh:
            minion.silent_since, minion.away = -1.0, False
        if moved:
            told += _moved(rollout, report.minion, minion, now)
    return told


def _moved(rollout: Rollout, name: str, minion: Minion, now: float) -> list[Action]:
    if minion.step is Step.WAITING:
        minion.not_before = rollout.elapsed + ATTEMPT_INTERVAL
    if minion.step.settled:
        minion.settled_at = rollout.elapsed
        minion.seconds = rollout.elapsed - minion.asked
        rollout.note(now, f"{name}: {minion.step.value} {minion.reason}".rstrip())
    data: dict[str, object] = {"minion": name, "step": minion.step.value, "reason": minion.reason}
    return [Tell(f"minion/{minion.step.value}", data)]


def _time_out(rollout: Rollout) -> None:
    """Note who is away, and who takes too long."""
    wanted = rollout.plan.request
    for name in rollout.begun():
        minion = rollout.minions[name]
        if minion.step.active and rollout.elapsed - minion.asked > wanted.minion_timeout:
            minion.step = Step.TIMED_OUT
            minion.settled_at = rollout.elapsed
            minion.reason = (
                f"has not ended after {wanted.minion_timeout:g} s; it was "
                f"{minion.phase or 'asked'} when it was heard of last"
            )
            rollout.note(rollout.looked, f"{name}: {minion.reason}")
        # Who was not asked anything cannot have kept silent.
        if 0 <= minion.silent_since < rollout.elapsed - wanted.silence_timeout:
            minion.away = True
        if minion.staged == "asked" and rollout.elapsed - minion.staging > wanted.minion_timeout:
            minion.staged = "failed"


def down(rollout: Rollout) -> list[str]:
    """Return the minions that are away, may be, or may not come back by themselves."""
    begun = set(rollout.begun())
    return [
        name
        for name, minion in rollout.minions.items()
        if minion.step.active or minion.step in BROKEN or (minion.away and name in begun)
    ]


# -- waves ---------------------------------------------------------------------------------


def _judge_wave(rollout: Rollout, now: float) -> list[Action]:
    """Stop, or go on to the next wave."""
    if rollout.mode in (Mode.ABORTING, Mode.STOPPED):
        return _quarantine(rollout)
    told = _quarantine(rollout)
    if why := failures(rollout):
        return told + _stop(rollout, why, now)
    wave = rollout.current
    if wave is None or rollout.mode is not Mode.RUNNING or not _is_over(rollout, wave):
        return told
    if why := _too_few(rollout, wave):
        return told + _stop(rollout, why, now)
    last = max((rollout.minions[name].settled_at for name in wave.minions), default=0.0)
    soaked = rollout.elapsed - max(last, rollout.wave_began)
    if rollout.wave + 1 < len(rollout.plan.waves) and soaked < rollout.plan.request.soak:
        return told
    rollout.wave += 1
    rollout.wave_began = rollout.elapsed
    rollout.note(now, f"wave {rollout.wave} of {len(rollout.plan.waves)} is over")
    return [*told, Tell("wave", {"over": rollout.wave, "of": len(rollout.plan.waves)})]


def _quarantine(rollout: Rollout) -> list[Action]:
    """Keep a version from everybody that two canaries have rolled back."""
    version = rollout.plan.request.version
    back = [
        name
        for wave in rollout.plan.waves
        if wave.canary
        for name in wave.minions
        if rollout.minions[name].step is Step.ROLLED_BACK
    ]
    if rollout.quarantined or not version or len(back) < QUARANTINE:
        return []
    rollout.quarantined = True
    because = f"rolled back by {', '.join(back)} in rollout {rollout.plan.id}"
    return [Quarantine(version, because)]


def failures(rollout: Rollout) -> str:
    """Return why what has failed stops the rollout; empty if it does not."""
    counted = {
        name: minion
        for name, minion in rollout.minions.items()
        if minion.step.bad and not minion.forgiven
    }
    canaries = [
        name
        for wave in rollout.plan.waves
        if wave.canary
        for name in wave.minions
        if name in counted
    ]
    if canaries:
        first = canaries[0]
        return f"canary {first} is {_described(counted[first])}"
    if len(counted) > rollout.plan.failed:
        first = min(counted)
        return (
            f"{len(counted)} minions have failed, and {rollout.plan.failed} may; {first} is "
            f"{_described(counted[first])}"
        )
    return ""


def _described(minion: Minion) -> str:
    step = minion.step.value.replace("_", " ")
    return f"{step} ({minion.reason})" if minion.reason else step


def _is_over(rollout: Rollout, wave: Wave) -> bool:
    """Tell whether nobody of the wave is at work or about to begin."""
    found = [rollout.minions[name] for name in wave.minions]
    return all(minion.step.settled or (minion.away and not minion.step.active) for minion in found)


def _too_few(rollout: Rollout, wave: Wave) -> str:
    """Return why too few of a wave that is over are done; empty if enough are."""
    if rollout.wave + 1 >= len(rollout.plan.waves):
        return ""
    needed = rollout.plan.request.sample.needs(len(wave.minions))
    done = [
        name
        for name in wave.minions
        if rollout.minions[name].step is Step.DONE or rollout.minions[name].forgiven
    ]
    if len(done) >= needed:
        return ""
    rest = ", ".join(name for name in wave.minions if name not in done)
    return (
        f"only {len(done)} of {len(wave.minions)} minions of wave {rollout.wave + 1} are done, "
        f"and {needed} have to be; not {rest}"
    )


def _stop(rollout: Rollout, why: str, now: float) -> list[Action]:
    rollout.mode, rollout.why = Mode.STOPPED, why
    rollout.note(now, f"stopped: {why}")
    return [Tell("stopped", {"why": why})]


# -- what is to be done --------------------------------------------------------------------


def _stage(rollout: Rollout) -> list[Action]:
    """Have this wave and the next one download, some at a time."""
    if not rollout.plan.request.stage:
        return []
    waves = rollout.plan.waves[rollout.wave : rollout.wave + 2]
    ahead = [name for wave in waves for name in wave.minions]
    busy = sum(rollout.minions[name].staged == "asked" for name in ahead)
    room = max(STAGING * rollout.plan.unavailable, STAGING) - busy
    chosen = [
        name
        for name in ahead
        if not rollout.minions[name].staged
        and not rollout.minions[name].away
        and rollout.minions[name].step is Step.WAITING
    ][: max(room, 0)]
    for name in chosen:
        rollout.minions[name].staged = "asked"
        rollout.minions[name].staging = rollout.elapsed
    # One that was told to and has not begun was not reached.
    chosen += [
        name
        for name in ahead
        if rollout.minions[name].staged == "asked"
        and name not in chosen
        and rollout.elapsed - rollout.minions[name].told_to_stage > AGAIN_INTERVAL
    ]
    for name in chosen:
        rollout.minions[name].told_to_stage = rollout.elapsed
    return [Stage(tuple(chosen))] if chosen else []


def _start(rollout: Rollout, now: float) -> list[Action]:
    """Ask minions to update: those of this wave, and those that were away when theirs began."""
    wanted = rollout.plan.request
    if now < wanted.at or not window.is_open(wanted.windows, now):
        return []
    found: list[Action] = []
    slots = rollout.plan.unavailable - len(down(rollout))
    for name in rollout.begun():
        minion = rollout.minions[name]
        if minion.step is not Step.WAITING or minion.away or minion.staged == "asked":
            continue
        if rollout.elapsed < max(minion.not_before, rollout.wave_began + _delay(rollout, name)):
            continue
        if slots <= 0:
            break
        slots -= 1
        minion.tries += 1
        minion.step, minion.asked, minion.reason = Step.ASKED, rollout.elapsed, ""
        number(rollout, minion)
        found.append(send(rollout, name, minion))
    return found


def _again(rollout: Rollout) -> list[Action]:
    """Send again what a minion does not seem to have got."""
    found: list[Action] = []
    for name in rollout.begun():
        minion = rollout.minions[name]
        lost = minion.step is Step.ASKED or (minion.cancelled and minion.step.active)
        sends = rollout.mode is Mode.RUNNING or minion.cancelled
        if lost and sends and rollout.elapsed - minion.sent > AGAIN_INTERVAL:
            found.append(send(rollout, name, minion))
    return found


def number(rollout: Rollout, minion: Minion) -> None:
    """Give its next request a number that is higher than all before."""
    minion.number = max(rollout.plan.number, rollout.first) + minion.requests
    minion.requests += 1


def send(rollout: Rollout, name: str, minion: Minion) -> Action:
    rollout.question += 1
    minion.sent = rollout.elapsed
    _awaited(rollout, minion)
    if minion.cancelled:
        return Cancel(name, minion.number, rollout.question)
    return Start(name, rollout.goal, minion.number, rollout.question)


def _awaited(rollout: Rollout, minion: Minion) -> None:
    """Note that the minion has been asked something."""
    if minion.silent_since < 0:
        minion.silent_since = rollout.elapsed


def _delay(rollout: Rollout, name: str) -> float:
    """Return how long after its wave a minion begins; always the same for one minion."""
    spread = zlib.crc32(f"{rollout.plan.id} {name}".encode()) / 2**32
    return spread * rollout.plan.request.jitter


def _ask(rollout: Rollout) -> list[Action]:
    """Ask those that are at work often, and all others of the waves that have begun seldom."""
    begun = rollout.begun()
    survey = rollout.elapsed - rollout.surveyed >= SURVEY_INTERVAL
    if not survey and rollout.elapsed - rollout.asked < ASK_INTERVAL:
        return []
    chosen = [name for name in begun if survey or rollout.minions[name].step.active]
    # Those of the next wave download already.
    ahead = rollout.plan.waves[: rollout.wave + 2]
    chosen += [
        name
        for wave in ahead
        for name in wave.minions
        if rollout.minions[name].staged == "asked" and not rollout.minions[name].step.active
    ]
    chosen = sorted(set(chosen))
    if not chosen:
        return []
    rollout.question += 1
    rollout.asked = rollout.elapsed
    if survey:
        rollout.surveyed = rollout.elapsed
    for name in chosen:
        _awaited(rollout, rollout.minions[name])
    return [Ask(tuple(chosen), rollout.question)]


def _end(rollout: Rollout, now: float) -> list[Action]:
    """End the rollout if nothing more can come of it, or go on to what comes next."""
    active = any(minion.step.active for minion in rollout.minions.values())
    if active or rollout.mode not in (Mode.ABORTING, Mode.RUNNING):
        return []
    waiting = [m for m in rollout.minions.values() if m.step is Step.WAITING]
    if rollout.mode is Mode.ABORTING:
        for minion in waiting:
            minion.step, minion.reason = Step.CANCELLED, "the rollout was aborted"
        return _close(rollout, Mode.ABORTED, now)
    if rollout.current is not None:
        return []
    if waiting:
        if rollout.late_since < 0:
            rollout.late_since = rollout.elapsed
            rollout.note(now, f"waits for {len(waiting)} minions that are away")
        if rollout.elapsed - rollout.late_since < rollout.plan.request.late_timeout:
            return []
        for minion in waiting:
            minion.step, minion.reason = Step.MISSED, "was away until the end of the rollout"
    if rollout.part + 1 < len(rollout.goals):
        return _next_part(rollout, now)
    return _close(rollout, Mode.FINISHED, now)


def _next_part(rollout: Rollout, now: float) -> list[Action]:
    """Begin anew with the next goal, for all that have come to the one before."""
    rollout.part += 1
    rollout.wave, rollout.wave_began, rollout.late_since = 0, rollout.elapsed, -1.0
    for minion in rollout.minions.values():
        if minion.step is Step.DONE:
            minion.step, minion.staged, minion.not_before = Step.WAITING, "", 0.0
            minion.tries = 0
    rollout.note(now, "the extension is up to date; Salt comes next")
    return [Tell("part", {"goal": rollout.part})]


def _close(rollout: Rollout, mode: Mode, now: float) -> list[Action]:
    rollout.mode = mode
    done = rollout.count(Step.DONE)
    rollout.note(now, f"{mode.value}: {done} of {len(rollout.minions)} minions are done")
    return [Tell(mode.value, {"done": done, "minions": len(rollout.minions)})]
