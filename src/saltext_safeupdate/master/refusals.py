"""Refusals of a rollout, by the runner that plans it, or by the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import InputError, LockHeldError, argument
from ..fleet import versions
from ..fleet.rollout import LEFT, Mode, Rollout, said


def refuse_kept(quarantined: Mapping[str, str], *wanted: str) -> None:
    """Raise InputError for a version that is kept from all minions."""
    for version in wanted:
        kept, because = versions.kept_from_all(quarantined, version)
        if not kept:
            continue
        raise InputError(
            f"{version} is in quarantine: {because}. Nothing was started; if the version is good "
            f"after all, salt-run safeupdate.allow {argument(kept)} allows it again, and with "
            "everywhere=True also on the minions that went back."
        )


def refuse_unkept(quarantined: Iterable[str], version: str) -> None:
    """Raise InputError: the version to allow is not in quarantine."""
    there = ", ".join(sorted(quarantined)) or "nothing"
    raise InputError(
        f"{version} is not in quarantine under that name, so nothing was allowed. In quarantine "
        f"is {there}; give one of these as it is written."
    )


def note_allowed(found: Rollout, allowed: Mapping[str, Mapping[str, Any]]) -> None:
    """Note in a resumed rollout who has allowed its version since it began."""
    for version, told in allowed.items():
        at, line = float(told["at"]), f"{version} was allowed again{said(str(told['by']))}"
        ours = any(versions.stand_for_each_other(version, each) for each in found.versions)
        if ours and at >= found.began and (at, line) not in found.history:
            found.note(at, line)


def refuse_beside(other: Rollout, minions: Iterable[str], now: float) -> None:
    """Raise LockHeldError if another rollout that is not over has one of these minions."""
    both = sorted(set(minions).intersection(other.minions))
    if other.mode.final or not both:
        return
    age = max(now - other.plan.created, 0.0) / 60
    sample = ", ".join(both[:3]) + (f" and {len(both) - 3} more" if len(both) > 3 else "")
    raise LockHeldError(
        f"The rollout {other.plan.id} is not over, and {sample} belongs to it. It is "
        f"{other.mode.value}, {age:.0f} minutes old, and driven by {shown(other.owner)}. Nothing "
        f"was started; wait for its end, or end it: 'salt-run safeupdate.abort {other.plan.id}'."
    )


def refuse_aborting(found: Rollout) -> None:
    """Raise InputError for a rollout that is being aborted."""
    if found.mode is Mode.ABORTING:
        raise InputError(
            f"The rollout {found.plan.id} is being aborted: minions that have begun come to their "
            "end, and no other begins. Nothing was changed; make a new plan after that."
        )


def driven_by_other(name: str, owner: str, own: str) -> str:
    """Return the message about a rollout that another engine drives, and not *own*."""
    if shown(owner) == shown(own):
        return (
            f"The rollout {name} was begun by this master with another account, or by another "
            "master of this name. Without another one, the account was lost, and nobody drives it: "
            f"'salt-run safeupdate.resume {name} take_over=True' continues it."
        )
    return (
        f"The rollout {name} is driven by {shown(owner)}; ask there. If that master is gone for "
        f"good, 'salt-run safeupdate.resume {name} take_over=True' continues it on this one."
    )


def shown(owner: str) -> str:
    """Return the name of an owner for people."""
    return owner.rpartition("/")[0] or owner or "nobody"


def failed(found: Rollout, wanted: Iterable[str]) -> list[str]:
    """Return the minions to try again: the named ones, or all that have failed."""
    names = list(wanted)
    if unknown := sorted(set(names) - set(found.minions)):
        raise InputError(f"{', '.join(unknown)} do not belong to the rollout {found.plan.id}.")
    again = [
        name
        for name, minion in found.minions.items()
        if (minion.step.bad or minion.step in LEFT) and (not names or name in names)
    ]
    if not again:
        raise InputError("None of them has failed, so there is nothing to try again.")
    return again
