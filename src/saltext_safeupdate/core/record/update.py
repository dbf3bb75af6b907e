"""The record of one update, and the only table of the phases it may pass through."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ..errors import TransitionError
from ..host import processes


class Phase(Enum):
    """Where an update is. A phase is durable before its side effect."""

    REQUESTED = "requested"
    CHECKING = "checking"
    STAGING = "staging"
    WAITING = "waiting"
    INSTALLING = "installing"
    RESTARTING = "restarting"
    WATCHING = "watching"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    POSTPONED = "postponed"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self not in ALLOWED


_GIVE_UP = {Phase.CANCELLED, Phase.FAILED}

ALLOWED: dict[Phase, set[Phase]] = {
    Phase.REQUESTED: {Phase.CHECKING, Phase.WAITING} | _GIVE_UP,
    # Committed at once where there is nothing to change.
    Phase.CHECKING: {Phase.STAGING, Phase.WAITING, Phase.COMMITTED} | _GIVE_UP,
    Phase.STAGING: {Phase.WAITING} | _GIVE_UP,
    Phase.WAITING: {Phase.INSTALLING, Phase.RESTARTING, Phase.POSTPONED} | _GIVE_UP,
    # And where there was nothing to change after all.
    Phase.INSTALLING: {Phase.RESTARTING, Phase.COMMITTED, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.RESTARTING: {Phase.WATCHING, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.WATCHING: {Phase.COMMITTED, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.ROLLING_BACK: {Phase.ROLLED_BACK, Phase.FAILED},
}

# Nothing of the minion changes in these.
BEFORE_INSTALLING = (Phase.REQUESTED, Phase.CHECKING, Phase.STAGING, Phase.WAITING)


@dataclass(frozen=True, kw_only=True)
class Update:
    """
    One update of the minion, or one deferred restart of it.

    ``kind`` is ``update`` or ``restart``; ``versions_from`` and ``versions_to`` map own
    packages to versions; ``unit`` holds what the service was before; ``deadline`` is in
    epoch seconds; ``extra`` carries what later versions add.
    """

    id: str
    kind: str
    phase: Phase = Phase.REQUESTED
    reason: str = ""
    jid: str = ""
    pid: int = 0
    created: float = 0.0
    changed: float = 0.0
    deadline: float | None = None
    versions_from: dict[str, str] = field(default_factory=dict)
    versions_to: dict[str, str] = field(default_factory=dict)
    unit: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def requested(self) -> bool:
        """Whether the supervisor itself installs, because somebody asked for it."""
        return "request" in self.extra

    @property
    def has_way_back(self) -> bool:
        """Whether the packages of before are secured, or are in a snapshot."""
        return bool(self.extra.get("old_files") or self.extra.get("snapshot"))

    @property
    def by_boot(self) -> bool:
        """Whether a boot activates it, and takes it back."""
        return "snapshot" in self.extra

    @property
    def awaits_boot(self) -> bool:
        """Whether it waits for a boot that has not been yet."""
        return not self.phase.final and self.extra.get("awaits") == self.this_boot

    @property
    def missed_boot(self) -> bool:
        """Whether it waited for a boot, and one has been since."""
        return bool(self.extra.get("awaits", [processes.boot()])[0] != processes.boot())

    @property
    def this_boot(self) -> list[str]:
        """What a record carries that waits from now on for the next boot."""
        return [processes.boot(), self.phase.value]

    @property
    def may_be_cancelled(self) -> bool:
        """Whether nothing has begun that has to be brought to its end."""
        if self.kind == "restart":
            return self.phase is Phase.WAITING
        return self.requested and self.phase in BEFORE_INSTALLING

    def advance(self, phase: Phase, **changes: Any) -> Update:
        """Return the record in its next *phase*; raise TransitionError where there is no way."""
        if phase not in ALLOWED.get(self.phase, ()):
            raise TransitionError(
                f"Update {self.id} is {self.phase.value}: it cannot become {phase.value}."
            )
        return replace(self, phase=phase, **changes)
