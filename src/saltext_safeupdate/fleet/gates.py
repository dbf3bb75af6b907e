"""Whether another minion may begin; and if none ever may, why."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from . import standing, window
from .plan import Wave
from .rollout import LEFT, Minion, Mode, Rollout, Step, since

# The number of names in a reason, and of characters of a minion's own one: its row has all of it.
_SHOWN, _LONGEST = 3, 240
_RETRY, _END = "'retry' asks again when the cause is gone", "'abort' ends it"
# The minion itself keeps a version that it has rolled back in quarantine.
_ALLOWED = " and 'safeupdate.unquarantine' allows the version there"


def open_now(rollout: Rollout, now: float) -> bool:
    """Return whether the settings of the rollout allow any start now."""
    if rollout.mode is not Mode.RUNNING or now < rollout.plan.request.at:
        return False
    return len(shut(rollout, now)) < len(_begun(rollout))


def shut(rollout: Rollout, now: float) -> set[str]:
    """Return the groups whose waves have begun and whose windows are closed."""
    return {group for group in _begun(rollout) if not is_open(rollout, group, now)}


def is_open(rollout: Rollout, group: str, now: float) -> bool:
    """Return whether the windows of a group are open."""
    wanted = rollout.plan.request.of(group)
    return window.is_open(wanted.windows, now, wanted.closed)


def _begun(rollout: Rollout) -> list[str]:
    """Return the groups of the waves that have begun, each once."""
    return list(dict.fromkeys(each.group for each in rollout.plan.waves[: rollout.wave + 1]))


def next_begin(rollout: Rollout, now: float) -> float:
    """
    Return when the present wave may be started, in epoch seconds.

    This is *now* if it may be started now, and ``NEVER`` if it may never be started again.
    """
    wave = rollout.current or rollout.plan.waves[-1]
    wanted = rollout.plan.request.of(wave.group)
    return window.next_begin(wanted.windows, now, wanted.closed)


def failures(rollout: Rollout) -> str:
    """Return why the failures stop the rollout, and what to do; empty if they do not."""
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
        told = f"canary {first}"
    elif len(counted) > rollout.plan.failed:
        first = min(counted)
        told = f"{rollout.plan.exceeded(len(counted))}: {first}"
    else:
        return over(rollout)
    following = _following(counted.values(), "'resume' continues without what has failed")
    return f"{told} is {counted[first].told(_LONGEST)}. {following}"


def _following(minions: Iterable[Minion], resume: str) -> str:
    """Return what to do about minions; *resume* says what that does."""
    steps = {minion.step for minion in minions}
    allowed = _ALLOWED if Step.ROLLED_BACK in steps else ""
    again = [_RETRY + allowed] if any(step.bad or step in LEFT for step in steps) else []
    return f"No other begins: {', '.join([*again, resume, _END])}"


def too_few(rollout: Rollout, wave: Wave, done: Collection[str], needed: int) -> str:
    """Return that too few minions of an ended wave are done, which are not, and what to do."""
    left = {name: rollout.minions[name] for name in wave.minions if name not in done}
    told = [f"{name} ({_why_not(minion)})" for name, minion in list(left.items())[:_SHOWN]]
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    found = list(left.values())
    busy = [each for each in found if standing.begins_anew(each)]
    if len(left) == len(wave.minions) and all(each.step is Step.HELD for each in found):
        # The rollout cannot continue without them: they have shown nothing.
        following = (
            "No other begins: 'retry' asks again when they are not held, a new plan draws other "
            f"canaries, {_END}"
        )
    elif busy:
        others = " and continues without the others" if len(busy) < len(found) else ""
        following = _following(found, f"'resume' waits again for what is busy{others}")
    else:
        following = _following(found, "'resume' continues without them")
    return (
        f"only {len(done)} of {len(wave.minions)} minions of wave {rollout.wave + 1} are done, "
        f"and {needed} have to be; not {', '.join(told)}{more}. {following}"
    )


def _why_not(minion: Minion) -> str:
    if minion.step is Step.HELD:
        return f"held: {minion.reason}"
    if minion.away:
        return "does not answer"
    return f"busy: {minion.reason}" if standing.is_busy(minion) else minion.told(_LONGEST)


def over(rollout: Rollout) -> str:
    """Say that minions are left that may never be started; empty if no minion is."""
    known, of = rollout.minions, rollout.plan.group_of
    waiting = {of[name] for name in rollout.begun() if known[name].step is Step.WAITING}
    at = max(rollout.looked, rollout.plan.request.at)
    asked = [rollout.plan.request.of(group) for group in waiting]
    if not asked or any(
        window.next_begin(each.windows, at, each.closed) < window.NEVER for each in asked
    ):
        return ""
    return "no window opens any more, so nobody else can begin; make a new plan for the rest"


def full(rollout: Rollout) -> str:
    """Return why no minion can begin although one should; empty if that ends by itself."""
    known = rollout.minions
    if any(minion.step.active for minion in known.values()):
        return ""
    ready = _ready(rollout)
    held = {
        name: standing.holds(rollout, known[name])
        for name in standing.down(rollout)
        # A minion that has only just not answered is asked again.
        if known[name].away or not standing.in_doubt(rollout, known[name])
    }
    room, of = standing.Room(rollout, held), rollout.plan.group_of
    # A minion that is to try again, and may be at work, takes its part already.
    if not ready or any(room.has(name, name not in held) for name in ready):
        return ""
    most = rollout.plan.unavailable
    if room.left >= 1:
        # There is room for other minions, but not for one more of its group.
        group = of[ready[0]]
        most = rollout.plan.limits[group]
        held = {name: why for name, why in held.items() if of[name] == group}
    told = [f"{name} ({why})" for name, why in list(held.items())[:_SHOWN]]
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    where = f" of {of[ready[0]]}" if room.left >= 1 else ""
    return (
        f"nobody can begin: {most}{where} may be away at once, and {len(held)} "
        f"{'is' if len(held) == 1 else 'are'}: {', '.join(told)}{more}. 'resume' continues "
        "without them"
    )


def never(rollout: Rollout) -> bool:
    """Return whether that lasts until somebody does something."""
    room = standing.Room(rollout, standing.given_up(rollout))
    if not any(room.has(name) for name in _ready(rollout)):
        return True
    if rollout.full_since is None:
        return False
    return since(rollout, rollout.full_since) >= rollout.plan.request.late_timeout


def _ready(rollout: Rollout) -> list[str]:
    """Return the minions that should begin and answer, in groups whose windows are open."""
    known, of = rollout.minions, rollout.plan.group_of
    closed = shut(rollout, rollout.looked)
    return [
        name
        for name in rollout.begun()
        if known[name].step is Step.WAITING and not known[name].away and of[name] not in closed
    ]
