"""The phases of an update, and the only table of the ways between them."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where an update is. A phase is on disk before its side effect begins."""

    REQUESTED = "requested"
    CHECKING = "checking"
    STAGING = "staging"
    # Other jobs are awaited. New ones may be held meanwhile.
    WAITING = "waiting"
    # From here on an update is brought to its end.
    INSTALLING = "installing"
    # The job that installed has to end, and its return to reach its master.
    DELIVERING = "delivering"
    # The package manager finishes what it left half done.
    REPAIRING = "repairing"
    # The extensions are put in place, and the upgrade steps run.
    STEPPING = "stepping"
    # All is in place in a snapshot, which the next boot activates.
    WAITING_FOR_BOOT = "waiting_for_boot"
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
    # Committed at once if there is nothing to change.
    Phase.CHECKING: {Phase.STAGING, Phase.WAITING, Phase.COMMITTED} | _GIVE_UP,
    Phase.STAGING: {Phase.WAITING} | _GIVE_UP,
    # A deferred restart installs nothing.
    Phase.WAITING: {Phase.INSTALLING, Phase.DELIVERING, Phase.POSTPONED} | _GIVE_UP,
    # And if there was nothing to change after all.
    Phase.INSTALLING: {Phase.DELIVERING, Phase.COMMITTED, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.DELIVERING: {
        Phase.REPAIRING,
        Phase.STEPPING,
        Phase.WAITING_FOR_BOOT,
        Phase.RESTARTING,
        Phase.ROLLING_BACK,
        Phase.FAILED,
    },
    Phase.REPAIRING: {Phase.STEPPING, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.WAITING_FOR_BOOT: {Phase.STEPPING, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.STEPPING: {Phase.RESTARTING, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.RESTARTING: {Phase.WATCHING, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.WATCHING: {Phase.COMMITTED, Phase.ROLLING_BACK, Phase.FAILED},
    Phase.ROLLING_BACK: {Phase.ROLLED_BACK, Phase.FAILED},
}
# The supervisor changes its packages in these, or what belongs to them.
CHANGING = (Phase.INSTALLING, Phase.REPAIRING, Phase.STEPPING, Phase.ROLLING_BACK)
# The new minion, or the old one that is back, has not shown yet that it works.
PROVING = (Phase.RESTARTING, Phase.WATCHING, Phase.ROLLING_BACK)
# Nothing of the minion changes in these.
BEFORE_INSTALLING = (Phase.REQUESTED, Phase.CHECKING, Phase.STAGING, Phase.WAITING)
