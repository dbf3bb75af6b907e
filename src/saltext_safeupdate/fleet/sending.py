"""Messages to minions: questions, requests and their withdrawal, downloads; and repetitions."""

from __future__ import annotations

from collections.abc import Iterable

from . import standing, window
from .actions import Action, Ask, Cancel, Stage, Start
from .rollout import Minion, Mode, Rollout, Step, since

# Seconds between two questions to minions that are being updated, and to all others.
ASK_INTERVAL, SURVEY_INTERVAL = 5.0, 60.0
# Seconds until a request that a minion does not know is sent again.
AGAIN_INTERVAL = 60.0
# The most minions that download at once, as a multiple of those that may be away.
STAGING = 4
# Steps of minions that are not known to be at work, but may be.
_LATE = (Step.WAITING, Step.TIMED_OUT, Step.HELD)
# The most minions that are asked again at once for a late answer: if a whole fleet is cut off, not
# all of it is asked again and again.
DOUBTED = 200


def stage(rollout: Rollout, now: float) -> list[Action]:
    """Let this wave and the next one download, or all minions, some at a time."""
    wanted = rollout.plan.request
    if not wanted.stage or not window.is_open(wanted.stage_windows, now):
        return []
    waves = rollout.plan.waves[rollout.wave : _staged_until(rollout)]
    ahead = [name for wave in waves for name in wave.minions]
    busy = sum(rollout.minions[name].staged == "asked" for name in ahead)
    room = max(STAGING * rollout.plan.unavailable, STAGING) - busy
    chosen = [
        name
        for name in ahead
        if not rollout.minions[name].staged
        and not rollout.minions[name].away
        and rollout.minions[name].step is Step.WAITING
        # Otherwise its next goal is not the one that the others download.
        and rollout.minions[name].done == rollout.part
    ][: max(room, 0)]
    for name in chosen:
        rollout.minions[name].staged = "asked"
        rollout.minions[name].staging = rollout.elapsed
    fresh = frozenset(chosen)
    # A minion that was told to download and has not begun was not reached.
    chosen += [
        name
        for name in ahead
        if rollout.minions[name].staged == "asked"
        and name not in fresh
        and rollout.elapsed - rollout.minions[name].told_to_stage > AGAIN_INTERVAL
    ]
    for name in chosen:
        rollout.minions[name].told_to_stage = rollout.elapsed
    return [Stage(tuple(chosen))] if chosen else []


def _staged_until(rollout: Rollout) -> int:
    """Return the number of waves whose minions download now."""
    whole = rollout.plan.request.stage == "all"
    return len(rollout.plan.waves) if whole else rollout.wave + 2


def again(rollout: Rollout) -> list[Action]:
    """
    Send requests again that minions do not seem to have received.

    While too many others are away, such a minion must not begin: if it answers, and does not know
    the request, it begins when there is room; if it is silent, the request is sent later.
    """
    found: list[Action] = []
    room: standing.Room | None = None
    for name in rollout.begun():
        minion = rollout.minions[name]
        if minion.step is not Step.ASKED and not minion.cancelled:
            continue
        # In a running rollout, a minion that is to try again gets its next request instead.
        stays = minion.step is not Step.WAITING or rollout.mode is not Mode.RUNNING
        late = minion.step in _LATE and minion.engaged and stays
        lost = minion.step is Step.ASKED or minion.step.active or late
        sends = rollout.mode is Mode.RUNNING or minion.cancelled
        if not (lost and sends and rollout.elapsed - minion.sent > AGAIN_INTERVAL):
            continue
        if not minion.cancelled:
            # A minion that has been asked has its part already.
            room = room or standing.Room(rollout, standing.down(rollout))
            if not room.has(name, 0):
                _wait_again(rollout, minion)
                continue
        found.append(send(rollout, name, minion))
    return found


def _wait_again(rollout: Rollout, minion: Minion) -> None:
    """Let a minion begin again that answers and has not begun. It keeps its part."""
    if not standing.in_doubt(rollout, minion):
        minion.come_to(Step.WAITING)
        minion.tries -= 1


def number(rollout: Rollout, minion: Minion) -> None:
    """Give its next request a higher number than all before."""
    minion.number = max(rollout.plan.number, rollout.first) + minion.requests
    minion.requests += 1


def is_out(minion: Minion) -> bool:
    """Return whether it was sent a request for its goal whose end is not known."""
    ours = minion.number > 0 and minion.part == minion.done
    return ours and minion.engaged and not minion.cancelled


def take_back(rollout: Rollout, names: Iterable[str]) -> list[Action]:
    """
    Let the minions of *names* drop their requests, unless they have begun to install.

    A minion that has timed out, or is to try again after that, may still be about to begin.
    """
    found: list[Action] = []
    for name in names:
        minion = rollout.minions[name]
        late = minion.step in _LATE and is_out(minion)
        if (minion.step.active or late) and not minion.cancelled:
            minion.cancelled = True
            number(rollout, minion)
            found.append(send(rollout, name, minion))
    return found


def send(rollout: Rollout, name: str, minion: Minion) -> Action:
    rollout.question += 1
    minion.sent = rollout.elapsed
    _awaited(rollout, minion)
    if minion.cancelled:
        return Cancel(name, minion.number, rollout.question)
    return Start(name, rollout.goal_of(name, minion.part), minion.number, rollout.question)


def _awaited(rollout: Rollout, minion: Minion) -> None:
    """Note that the minion has been asked a question."""
    if minion.silent_since is None:
        minion.silent_since = rollout.elapsed


def _asked_again(rollout: Rollout, minion: Minion) -> bool:
    """Return whether its answer is late. A slow host gets at most two questions instead of one."""
    late = since(rollout, minion.silent_since) - standing.DOUBT
    return 0 < late <= 2 * ASK_INTERVAL


def ask(rollout: Rollout, *, starts: bool) -> list[Action]:
    """
    Ask minions that are at work often, and all others rarely.

    Minions of later waves are asked while starts are allowed: they may be away, too.
    """
    counts = starts and rollout.counting is None
    survey = counts or since(rollout, rollout.surveyed) >= SURVEY_INTERVAL
    if not survey and since(rollout, rollout.asked) < ASK_INTERVAL:
        return []
    if survey:
        chosen = list(rollout.minions) if starts else rollout.begun()
    else:
        known = rollout.minions.items()
        chosen = [name for name, minion in known if minion.step.active]
        # An answer may have been lost.
        asked = [n for n, m in known if m.silent_since is not None and not m.away]
        chosen += [n for n in asked if _asked_again(rollout, rollout.minions[n])][:DOUBTED]
    # Minions of the next wave download already.
    ahead = rollout.plan.waves[: _staged_until(rollout)]
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
    if counts:
        rollout.counting = rollout.elapsed
    for name in chosen:
        _awaited(rollout, rollout.minions[name])
    return [Ask(tuple(chosen), rollout.question)]
