"""Whether another minion may begin; and if none ever may, why."""

from __future__ import annotations

from . import standing, window
from .rollout import Mode, Rollout, Step, since

# Names that a reason has.
_SHOWN = 3


def open_now(rollout: Rollout, now: float) -> bool:
    """Tell whether minions may be started at this time of day, as far as the rollout is asked."""
    wanted = rollout.plan.request
    if rollout.mode is not Mode.RUNNING or now < wanted.at:
        return False
    return window.is_open(wanted.windows, now, wanted.closed)


def over(rollout: Rollout) -> str:
    """Return that nobody may ever be started again, and somebody is still to be; else empty."""
    wanted = rollout.plan.request
    waiting = any(minion.step is Step.WAITING for minion in rollout.minions.values())
    at = max(rollout.looked, wanted.at)
    if not waiting or window.next_begin(wanted.windows, at, wanted.closed) < window.NEVER:
        return ""
    return "no window opens any more, so nobody else can begin; make a new plan for the rest"


def full(rollout: Rollout) -> str:
    """Return why nobody can begin although somebody is to; empty if it only takes its time."""
    known = rollout.minions
    if any(minion.step.active for minion in known.values()):
        return ""
    ready = [n for n in rollout.begun() if known[n].step is Step.WAITING and not known[n].away]
    held = {
        name: standing.holds(rollout, known[name])
        for name in standing.down(rollout)
        # Who has only just not answered is asked again.
        if known[name].away or not standing.in_doubt(rollout, known[name])
    }
    free = rollout.plan.unavailable - len(held)
    # One that is to try again, and may be at work, takes its part already.
    if not ready or any(free >= (name not in held) for name in ready):
        return ""
    told = [f"{name} ({why})" for name, why in list(held.items())[:_SHOWN]]
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    return (
        f"nobody can begin: {rollout.plan.unavailable} may be away at once, and {len(held)} "
        f"{'is' if len(held) == 1 else 'are'}: {', '.join(told)}{more}. 'resume' goes on without "
        "them"
    )


def never(rollout: Rollout) -> bool:
    """Tell whether that lasts until somebody does something."""
    if len(standing.given_up(rollout)) >= rollout.plan.unavailable:
        return True
    if rollout.full_since is None:
        return False
    return since(rollout, rollout.full_since) >= rollout.plan.request.late_timeout
