"""How a rollout ends: when nothing more can happen, and without which minions."""

from __future__ import annotations

from collections.abc import Sequence

from .actions import Action, Tell
from .rollout import Minion, Mode, Rollout, Step, since


def end(rollout: Rollout, now: float) -> list[Action]:
    """End the rollout if nothing more can happen, or continue with the next part."""
    active = any(minion.step.active for minion in rollout.minions.values())
    if active or rollout.mode not in (Mode.ABORTING, Mode.RUNNING):
        return []
    waiting = [m for m in rollout.minions.values() if m.step is Step.WAITING]
    if rollout.mode is Mode.ABORTING:
        for minion in waiting:
            minion.come_to(Step.CANCELLED, "the rollout was aborted")
        return _close(rollout, Mode.ABORTED, now)
    # A minion may say late that it is to be rebooted, when its wave is over.
    awaited = [m for m in rollout.minions.values() if m.step is Step.TO_REBOOT]
    if rollout.current is not None or not all(map(goes_on_without, awaited)):
        return []
    if waiting and not rollout.plan.request.leave_late:
        if rollout.late_since is None:
            rollout.late_since = rollout.elapsed
            rollout.note(now, f"waits for {len(waiting)} minions that are away or busy")
        if since(rollout, rollout.late_since) < rollout.plan.request.late_timeout:
            return []
    for minion in waiting:
        _miss(minion)
    if rollout.part + 1 < len(rollout.goals):
        return _next_part(rollout, now)
    return _close(rollout, Mode.FINISHED, now)


def leave(rollout: Rollout, late: Sequence[str], now: float) -> None:
    """End with the present wave: without the *late* minions, no other may begin."""
    first = f"{late[0]} is {'drained' if rollout.minions[late[0]].drained else 'busy'}"
    for name, minion in rollout.minions.items():
        if minion.step is not Step.WAITING:
            continue
        if name in late or minion.away:
            _miss(minion)
        else:
            minion.come_to(Step.CANCELLED, f"is left to the next rollout: {first}")
    rollout.wave, rollout.part = len(rollout.plan.waves), len(rollout.goals) - 1
    rollout.note(now, f"ends without {', '.join(late)}: {first}, and too few others are done")


def _miss(minion: Minion) -> None:
    why = "was away" if minion.away else "could not begin"
    if minion.busy_since is not None and not minion.away:
        why = f"was busy ({minion.reason})"
    minion.come_to(Step.MISSED, f"{why} until the end of the rollout")


def _next_part(rollout: Rollout, now: float) -> list[Action]:
    """Begin again with the next goal, for all minions that have reached the last one."""
    rollout.part += 1
    rollout.wave, rollout.wave_began, rollout.late_since = 0, rollout.elapsed, None
    for minion in rollout.minions.values():
        if minion.step is Step.DONE:
            to_next_goal(minion)
    rollout.note(now, "the extension is up to date; Salt comes next")
    return [Tell("part", {"goal": rollout.part})]


def to_next_goal(minion: Minion) -> None:
    minion.come_to(Step.WAITING)
    minion.forgiven = False
    minion.staged, minion.not_before, minion.tries, minion.busy_since = "", 0.0, 0, None


def _close(rollout: Rollout, mode: Mode, now: float) -> list[Action]:
    rollout.mode = mode
    done = rollout.count(Step.DONE)
    rollout.note(now, f"{mode.value}: {done} of {len(rollout.minions)} minions are done")
    return [Tell(mode.value, {"done": done, "minions": len(rollout.minions)})]


def goes_on_without(minion: Minion) -> bool:
    """Return whether somebody has resumed although the host is still to be rebooted."""
    return minion.step is Step.TO_REBOOT and minion.forgiven
