"""Whether another minion may begin; and if none ever may, why."""

from __future__ import annotations

from . import standing, window
from .rollout import Mode, Rollout, Step, since

# Names that a reason has.
_SHOWN = 3


def open_now(rollout: Rollout, now: float) -> bool:
    """Tell whether anybody may be started now, as far as the rollout is asked."""
    if rollout.mode is not Mode.RUNNING or now < rollout.plan.request.at:
        return False
    return len(shut(rollout, now)) < len(_begun(rollout))


def shut(rollout: Rollout, now: float) -> set[str]:
    """Return the groups, of the waves that have begun, whose windows are closed."""
    return {group for group in _begun(rollout) if not is_open(rollout, group, now)}


def is_open(rollout: Rollout, group: str, now: float) -> bool:
    """Tell whether the windows of a group are open."""
    wanted = rollout.plan.request.of(group)
    return window.is_open(wanted.windows, now, wanted.closed)


def _begun(rollout: Rollout) -> list[str]:
    """Return the groups of the waves that have begun, each once."""
    return list(dict.fromkeys(each.group for each in rollout.plan.waves[: rollout.wave + 1]))


def next_begin(rollout: Rollout, now: float) -> float:
    """
    Return when the wave that is under way may be started, in epoch seconds.

    That is *now* if it may, and ``NEVER`` if it may never again.
    """
    wave = rollout.current or rollout.plan.waves[-1]
    wanted = rollout.plan.request.of(wave.group)
    return window.next_begin(wanted.windows, now, wanted.closed)


def over(rollout: Rollout) -> str:
    """Return that nobody may ever be started again, and somebody is still to be; else empty."""
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
    """Return why nobody can begin although somebody is to; empty if it only takes its time."""
    known = rollout.minions
    if any(minion.step.active for minion in known.values()):
        return ""
    ready = _ready(rollout)
    held = {
        name: standing.holds(rollout, known[name])
        for name in standing.down(rollout)
        # Who has only just not answered is asked again.
        if known[name].away or not standing.in_doubt(rollout, known[name])
    }
    room, of = standing.Room(rollout, held), rollout.plan.group_of
    # One that is to try again, and may be at work, takes its part already.
    if not ready or any(room.has(name, name not in held) for name in ready):
        return ""
    most = rollout.plan.unavailable
    if room.left >= 1:
        # There is room for others, and not for one more of its group.
        group = of[ready[0]]
        most = rollout.plan.limits[group]
        held = {name: why for name, why in held.items() if of[name] == group}
    told = [f"{name} ({why})" for name, why in list(held.items())[:_SHOWN]]
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    where = f" of {of[ready[0]]}" if room.left >= 1 else ""
    return (
        f"nobody can begin: {most}{where} may be away at once, and {len(held)} "
        f"{'is' if len(held) == 1 else 'are'}: {', '.join(told)}{more}. 'resume' goes on without "
        "them"
    )


def never(rollout: Rollout) -> bool:
    """Tell whether that lasts until somebody does something."""
    room = standing.Room(rollout, standing.given_up(rollout))
    if not any(room.has(name) for name in _ready(rollout)):
        return True
    if rollout.full_since is None:
        return False
    return since(rollout, rollout.full_since) >= rollout.plan.request.late_timeout


def _ready(rollout: Rollout) -> list[str]:
    """Return those who are to begin and answer, of the groups whose windows are open."""
    known, of = rollout.minions, rollout.plan.group_of
    closed = shut(rollout, rollout.looked)
    return [
        name
        for name in rollout.begun()
        if known[name].step is Step.WAITING and not known[name].away and of[name] not in closed
    ]
