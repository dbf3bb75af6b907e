"""What keeps a host as it is: its settings, a lock of the package manager, or the quarantine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from ..errors import argument
from .beside import Told


class Locks(Protocol):
    """Questions to a package manager."""

    def version_locked(self, packages: Iterable[str]) -> set[str]: ...


def by_settings(reason: str) -> list[Told]:
    """Return that the minion is held, and what to do; empty if it is not."""
    if not reason:
        return []
    fix = "Rollouts leave it out; remove 'safeupdate:hold' there to have it updated with others."
    return [(f"The settings of this minion hold it: {reason}.", fix)]


def by_locks(manager: Locks, own: Collection[str]) -> list[Told]:
    """Return that the version of an own package is locked, and what to do; empty if none is."""
    reason = locked(manager, own)
    if not reason:
        return []
    fix = (
        "Rollouts leave it out; remove the lock to have it updated with others. A direct request "
        "to this minion updates it, and the lock is set again."
    )
    return [(f"{reason}.", fix)]


def by_quarantine(found: Collection[tuple[str, str]]) -> list[Told]:
    """Return that these packages, with their versions, are in quarantine, and what to do."""
    if not found:
        return []
    named = ", ".join(f"{package} {version}" for package, version in sorted(found))
    versions = [argument(version) for version in sorted({version for _, version in found})]
    here = " and ".join(f"safeupdate.unquarantine {each}" for each in versions)
    everywhere = " and ".join(f"salt-run safeupdate.allow {v} everywhere=True" for v in versions)
    fix = (
        f"Find out why ('safeupdate.history'). Then allow the version here with {here}, or on all "
        f"minions with {everywhere}. Or request another version."
    )
    return [(f"This minion was rolled back from {named}.", fix)]


def locked(manager: Locks, own: Collection[str]) -> str:
    """Return which own packages keep their version; empty if none does."""
    names = sorted(manager.version_locked(own))
    return f"the package manager keeps the version of {', '.join(names)} locked" if names else ""
