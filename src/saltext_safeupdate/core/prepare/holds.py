"""What keeps a host as it is: the settings of the minion, or a lock of the package manager."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

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


def locked(manager: Locks, own: Collection[str]) -> str:
    """Return which own packages keep their version; empty if none does."""
    names = sorted(manager.version_locked(own))
    return f"the package manager keeps the version of {', '.join(names)} locked" if names else ""
