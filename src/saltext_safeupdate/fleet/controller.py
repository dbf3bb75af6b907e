"""
The next actions of a rollout: a function of the stored data, the minions' answers, and the time.

This module decides everything and does nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..core.errors import argument
from . import checkpoints, ending, gates, judge, maintenance, sending, standing, way_back, window
from .actions import Action, Quarantine, Tell
from .checkpoints import AFTER, BEFORE, Verdict
from .judge import Report
from .plan import Wave
from .rollout import Minion, Mode, Rollout, Step, since, time_between

# Seconds until a minion is asked again whose update was postponed or refused for now: the first
# times, in which its wave waits for it, and later.
ATTEMPT_INTERVAL, BUSY_INTERVAL = 300.0, 1800.0
# The number of canaries that have to roll a version back until it is kept from all minions.
QUARANTINE = 2


def advance(
    rollout: Rollout,
    reports: Iterable[Report],
    now: float,
    because: str = "",
    kept: str = "",
    verdicts: Iterable[Verdict] = (),
    drained: Mapping[str, str] = MappingProxyType({}),
) -> list[Action]:
    """
    Take the reports into account and return the next actions; *now* is in epoch seconds.

    *because* is why the version is kept from all minions, and *kept* its name in the quarantine;
    empty if it is not. *verdicts* come from gates. *drained* are the minions on whose hosts people
    work, and why. Store the rollout before any of the actions.
    """
    if rollout.mode.final:
        return []
    rollout.elapsed += time_between(rollout, now)
    rollout.looked = now
    actions = _listen(rollout, reports, now)
    _time_out(rollout)
    checkpoints.hear(rollout, verdicts, now)
    actions += maintenance.heed(rollout, drained, now)
    if because and rollout.mode is not Mode.ABORTING:
        actions += _kept_from_all(rollout, because, kept, now)
    actions += _judge_wave(rollout, now)
    starts = gates.open_now(rollout, now)
    if (wave := rollout.current) is not None and not _is_over(rollout, wave):
        closed, asked = _before(rollout, wave, now)
        actions += asked
        # While its windows are closed, minions of other groups that come back begin.
        starts = starts and not (closed and gates.is_open(rollout, wave.group, now))
    if not starts:
        rollout.counting = None
    if rollout.mode is Mode.RUNNING:
        actions += sending.stage(rollout, now)
    if starts and standing.counted(rollout):
        actions += _start(rollout, now)
    actions += _wait_for_room(rollout, now, starts=starts)
    actions += sending.again(rollout)
    actions += sending.ask(rollout, starts=starts)
    actions += ending.end(rollout, now)
    return actions


# -- answers of minions --------------------------------------------------------------------


def _listen(rollout: Rollout, reports: Iterable[Report], now: float) -> list[Action]:
    told: list[Action] = []
    for report in judge.in_order(reports):
        minion = rollout.minions.get(report.minion)
        if minion is None or report.question > rollout.question:
            continue
        fresh, before = report.question > minion.answered, minion.step
        moved = judge.heed(minion, report, rollout.goal_of(report.minion, minion.part))
        if fresh:
            minion.silent_since, minion.away, minion.excused = None, False, False
        if moved:
            told += _moved(rollout, report.minion, before, now)
    return told


def _moved(rollout: Rollout, name: str, before: Step, now: float) -> list[Action]:
    minion = rollout.minions[name]
    busy = minion.step is Step.WAITING
    if minion.step is Step.DONE:
        minion.done = minion.part + 1
        if minion.done <= rollout.part:
            # The others are further: somebody has resumed without it, or had it try again.
            rollout.note(now, f"{name}: done, and continues with the goal of the others")
            ending.to_next_goal(minion)
            return []
    if minion.step is Step.CANCELLED and rollout.mode is Mode.RUNNING:
        # It says so only now, and somebody has resumed meanwhile.
        minion.come_to(Step.WAITING)
        minion.tries = 0
    if minion.step is Step.TO_REBOOT:
        minion.seconds = rollout.elapsed - minion.asked
    elif before is Step.TO_REBOOT:
        # Its time starts with the boot: nobody knew when that would be.
        minion.asked = rollout.elapsed - (minion.seconds if minion.step.settled else 0.0)
    if minion.step is Step.WAITING:
        interval = BUSY_INTERVAL if minion.tries >= standing.MOST_TRIES else ATTEMPT_INTERVAL
        minion.not_before = rollout.elapsed + interval
        if busy and minion.busy_since is None:
            minion.busy_since = rollout.elapsed
    elif minion.step.settled or minion.step is Step.TO_REBOOT:
        minion.busy_since = None
    if before.settled and minion.step.settled and minion.step is not Step.DONE:
        # With one verdict after the other, the wave would soak, and the history grow, forever.
        return []
    if minion.step.bad or minion.step is Step.DONE:
        # Somebody may have resumed without it, but not with this failure.
        minion.forgiven = False
    if minion.step.settled:
        minion.settled_at = rollout.elapsed
        minion.seconds = rollout.elapsed - minion.asked
        rollout.note(now, f"{name}: {minion.told()}")
    data: dict[str, object] = {"minion": name, "step": minion.step.value, "reason": minion.reason}
    return [Tell(f"minion/{minion.step.value}", data)]


def _time_out(rollout: Rollout) -> None:
    """Note which minions are away, and which take too long."""
    for name, minion in rollout.minions.items():
        if minion.silent_since is None and minion.staged != "asked" and not minion.step.active:
            # Most of thousands only wait, or are done.
            continue
        wanted = rollout.plan.of(name)
        if minion.step.active and rollout.elapsed - minion.asked > wanted.minion_timeout:
            last = f"the last that is known of it is '{minion.phase or 'asked'}'"
            why = f"has not ended after {wanted.minion_timeout:g} s; {last}"
            _timed_out(rollout, name, minion, why)
        if minion.step is Step.TO_REBOOT and _silent(rollout, minion) > wanted.minion_timeout:
            why = f"has not come back from its reboot after {wanted.minion_timeout:g} s"
            _timed_out(rollout, name, minion, why)
        # A minion that was not asked anything is not silent.
        if _silent(rollout, minion) > wanted.silence_timeout:
            minion.away = True
        if minion.staged == "asked" and rollout.elapsed - minion.staging > wanted.minion_timeout:
            minion.staged = "failed"


def _timed_out(rollout: Rollout, name: str, minion: Minion, why: str) -> None:
    minion.come_to(Step.TIMED_OUT, why)
    rollout.note(rollout.looked, f"{name}: {why}")
    minion.settled_at = rollout.elapsed
    # As with every failure: somebody may have resumed without it before that.
    minion.forgiven = False


def _silent(rollout: Rollout, minion: Minion) -> float:
    """Return for how many seconds a minion has left every question unanswered."""
    return 0.0 if minion.silent_since is None else since(rollout, minion.silent_since)


# -- waves ---------------------------------------------------------------------------------


def _judge_wave(rollout: Rollout, now: float) -> list[Action]:
    """Stop, or continue with the next wave."""
    if rollout.mode in (Mode.ABORTING, Mode.STOPPED):
        return _quarantine(rollout)
    told = _quarantine(rollout)
    if why := gates.failures(rollout):
        return told + _stop(rollout, why, now)
    wave = rollout.current
    if wave is None or rollout.mode is not Mode.RUNNING or not _is_over(rollout, wave):
        return told
    if why := _too_few(rollout, wave):
        return told + _without_enough(rollout, wave, why, now)
    return told + _go_on(rollout, wave, now)


def _go_on(rollout: Rollout, wave: Wave, now: float) -> list[Action]:
    """Continue with the next wave, once the last one has soaked and its gates say yes."""
    last = max((rollout.minions[name].settled_at for name in wave.minions), default=0.0)
    soaked = rollout.elapsed - max(last, rollout.wave_began)
    waves = len(rollout.plan.waves)
    if rollout.wave + 1 < waves and soaked < rollout.plan.request.of(wave.group).soak:
        return []
    # Also if no minion of it has begun: one that comes back later would pass a closed gate.
    closed, asked = _before(rollout, wave, now)
    if not closed:
        closed, asked = checkpoints.closed(rollout, AFTER, wave, now)
    if closed:
        return asked
    rollout.wave += 1
    rollout.wave_began = rollout.elapsed
    rollout.note(now, f"wave {rollout.wave} of {waves} is over")
    told: list[Action] = [Tell("wave", {"over": rollout.wave, "of": waves})]
    return told + checkpoints.pause_after(rollout, rollout.wave - 1, now)


def _before(rollout: Rollout, wave: Wave, now: float) -> tuple[bool, list[Action]]:
    """Return whether a gate before the wave is still closed, and ask it if minions may begin."""
    if gates.open_now(rollout, now) and gates.is_open(rollout, wave.group, now):
        return checkpoints.closed(rollout, BEFORE, wave, now)
    checkpoints.forget(rollout)
    # No minion of it ever begins if its windows do not open again.
    shut = bool(checkpoints.lacks(rollout, BEFORE, wave))
    return shut and gates.next_begin(rollout, now) < window.NEVER, []


def _without_enough(rollout: Rollout, wave: Wave, why: str, now: float) -> list[Action]:
    """Stop, wait for minions that are busy or drained, or end without them."""
    drained = maintenance.awaited(rollout, wave)
    awaited = [*_awaited(rollout, wave), *drained]
    if not awaited or _too_few(rollout, wave, awaited):
        return _stop(rollout, why, now)
    if rollout.plan.request.leave_late:
        ending.leave(rollout, awaited, now)
        return []
    return maintenance.wait(rollout, drained, now) if drained else []


def _quarantine(rollout: Rollout) -> list[Action]:
    """Keep a version that two canaries have rolled back from all minions."""
    version, _ = rollout.goal
    back = [
        name
        for wave in rollout.plan.waves
        if wave.canary
        for name in wave.minions
        if rollout.minions[name].step is Step.ROLLED_BACK
        and rollout.minions[name].part == rollout.part
        # People who work on a host may have broken it.
        and not rollout.minions[name].drained
        # Somebody has allowed it in spite of these: others have to roll it back.
        and not (rollout.quarantined and rollout.minions[name].forgiven)
    ]
    if version and len(back) >= QUARANTINE and not rollout.because:
        rollout.quarantined = True
        rollout.because = f"rolled back by {', '.join(back)} in rollout {rollout.plan.id}"
    if not rollout.because or rollout.kept:
        return []
    # Again until it is stored: a master may die before that.
    return [Quarantine(rollout.keeps or rollout.plan.request.version, rollout.because)]


def _kept_from_all(rollout: Rollout, because: str, kept: str, now: float) -> list[Action]:
    """Stop, and take back requests that have not begun: the version is in quarantine by now."""
    version = rollout.plan.request.version or kept
    why = (
        f"{version} is in quarantine: {because}. To continue: salt-run safeupdate.allow "
        f"{argument(kept or version)}, then 'resume'"
    )
    stops = rollout.mode in (Mode.RUNNING, Mode.PAUSED)
    return (_stop(rollout, why, now) if stops else []) + sending.take_back(rollout, rollout.minions)


def _is_over(rollout: Rollout, wave: Wave) -> bool:
    """Return whether no minion of the wave is at work, about to begin, or to be rebooted."""
    found = [rollout.minions[name] for name in wave.minions]
    return all(
        m.step.settled
        or (m.step is Step.WAITING and (m.away or standing.is_busy(m)))
        or ending.goes_on_without(m)
        for m in found
    )


def _awaited(rollout: Rollout, wave: Wave) -> list[str]:
    """Return the minions of a wave that are busy, and not for too long."""
    longest, known = rollout.plan.request.late_timeout, rollout.minions
    busy = [name for name in wave.minions if standing.is_busy(known[name])]
    return [name for name in busy if since(rollout, known[name].busy_since) < longest]


def _too_few(rollout: Rollout, wave: Wave, awaited: Sequence[str] = ()) -> str:
    """Return why too few minions of an ended wave are done or *awaited*; empty if enough are."""
    if rollout.wave + 1 >= len(rollout.plan.waves):
        return ""
    sample = rollout.plan.request.of(wave.group).sample
    known = rollout.minions
    there = [n for n in wave.minions if known[n].step is not Step.HELD or n in awaited]
    # Canaries that are all held have shown nothing.
    least = min(sample.needs(len(wave.minions)), int(wave.canary))
    needed = max(sample.needs(len(there)), least)
    done = [
        name
        for name in there
        if rollout.minions[name].step is Step.DONE
        or rollout.minions[name].forgiven
        or rollout.minions[name].excused
        or name in awaited
    ]
    return "" if len(done) >= needed else gates.too_few(rollout, wave, done, needed)


def _stop(rollout: Rollout, why: str, now: float) -> list[Action]:
    rollout.mode, rollout.why = Mode.STOPPED, why
    rollout.note(now, f"stopped: {why}")
    return [Tell("stopped", {"why": why})]


# -- actions -------------------------------------------------------------------------------


def _start(rollout: Rollout, now: float) -> list[Action]:
    """Ask minions to update: of this wave, and of earlier ones if they were away then."""
    found: list[Action] = []
    room = standing.Room(rollout, standing.down(rollout))
    shut = gates.shut(rollout, now)
    for name in rollout.begun():
        minion = rollout.minions[name]
        if minion.step is not Step.WAITING or minion.staged == "asked":
            continue
        if (room.left < 1 and not minion.engaged) or rollout.plan.group_of[name] in shut:
            continue
        if minion.away or standing.in_doubt(rollout, minion):
            continue
        if rollout.elapsed < max(minion.not_before, rollout.wave_began + _delay(rollout, name)):
            continue
        takes = not standing.holds(rollout, minion)
        if not room.has(name, takes):
            continue
        if takes:
            room.take(name)
        found.append(_begin(rollout, name, minion))
    return found


def _begin(rollout: Rollout, name: str, minion: Minion) -> Action:
    if not sending.is_out(minion):
        # If an earlier request may be at work, the same number asks for its result.
        sending.number(rollout, minion)
    minion.tries += 1
    minion.come_to(Step.ASKED, "")
    minion.asked = rollout.elapsed
    minion.engaged, minion.forgiven, minion.cancelled = True, False, False
    minion.part = minion.done
    if (wanted := rollout.goals[minion.part][0]) and not minion.before:
        minion.before = way_back.ran(minion, wanted)
    return sending.send(rollout, name, minion)


def _wait_for_room(rollout: Rollout, now: float, *, starts: bool) -> list[Action]:
    """Say why no minion can begin, and stop if that does not end by itself."""
    if rollout.mode is not Mode.RUNNING:
        rollout.full_since = None
        return []
    if not (starts and standing.counted(rollout)):
        # Outside its windows, or before all minions were asked again, it stays as it was.
        return []
    why = gates.full(rollout)
    if not why:
        if rollout.full_since is not None:
            rollout.why = ""
        rollout.full_since = None
        return []
    if gates.never(rollout):
        rollout.full_since = None
        return _stop(rollout, why, now)
    rollout.why = why
    if rollout.full_since is not None:
        return []
    rollout.full_since = rollout.elapsed
    rollout.note(now, why)
    return [Tell("waiting", {"why": why})]


def _delay(rollout: Rollout, name: str) -> float:
    """Return how long after its wave a minion begins; always the same for one minion."""
    spread = zlib.crc32(f"{rollout.plan.id} {name}".encode()) / 2**32
    return spread * rollout.plan.of(name).jitter
