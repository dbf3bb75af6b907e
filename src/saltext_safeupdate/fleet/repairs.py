"""Which drift can be repaired safely, and the result of a repair."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from . import inventory
from .inventory import Drift, Record
from .versions import kept_from_all, same

# How a minion is repaired: it is updated to the version that was requested last, or restarted.
UPDATE, RESTART = "update", "restart"


@dataclass(frozen=True)
class Repair:
    """A request to a minion. *version* is the version of an update."""

    minion: str
    what: str
    version: str = ""


def choose(
    drifts: Iterable[Drift],
    records: Mapping[str, Record],
    *,
    master: str,
    quarantined: Collection[str],
    taken: Mapping[str, str],
) -> tuple[list[Repair], dict[str, str]]:
    """
    Return the repairs, at most one for each minion, and the minions that are left alone, and why.

    *quarantined* are versions that no minion may get; *taken* are minions that belong to a rollout,
    with its name; *master* is the version of their master.
    """
    wanted: dict[str, str] = {}
    for drift in drifts:
        if drift.repair and wanted.get(drift.minion) != UPDATE:
            wanted[drift.minion] = drift.repair
    repairs: list[Repair] = []
    left: dict[str, str] = {}
    for minion, what in sorted(wanted.items()):
        record = records[minion]
        version = record.intended if what == UPDATE else ""
        if minion in taken:
            left[minion] = f"it belongs to the rollout {taken[minion]}"
        elif what == UPDATE and record.held:
            left[minion] = f"it is held: {record.held}"
        elif record.phase not in inventory.QUIET:
            left[minion] = f"an update is under way there: {record.phase}"
        elif kept_from_all(dict.fromkeys([*quarantined, *record.quarantined], ""), version)[0]:
            left[minion] = f"{version} is in quarantine"
        elif inventory.newer(version, master):
            left[minion] = f"{version} is newer than its master, which has {master}"
        else:
            repairs.append(Repair(minion, what, version))
    return repairs, left


def outcome(repair: Repair, record: Record, number: int, told: int, refused: str) -> str | None:
    """
    Return the result of a repair: None while it is under way, empty if it is done, or the failure.

    *record* is the minion's newest answer, *told* the number of its newest request, *number* our
    request's number, *refused* why it does not accept it.
    """
    if record.answer != inventory.REPORT:
        return "; ".join(record.problems)
    if repair.what == UPDATE and told != number:
        if told > number:
            return "it has taken a newer request from somebody else"
        return refused or None
    if record.phase == "unknown" or record.phase not in inventory.QUIET:
        return None
    if repair.what == RESTART:
        return None if _waits_for_restart(record) else ""
    return _updated(repair, record)


def _updated(repair: Repair, record: Record) -> str:
    if record.phase not in ("committed", "idle"):
        return record.phase.replace("_", " ")
    if same(record.running, repair.version):
        return ""
    return f"it says that it is {record.phase}, but runs {record.running}"


def _waits_for_restart(record: Record) -> bool:
    """Return whether the running version differs from the installed one."""
    found = inventory.drift(record, record.minion, "", record.seen)
    return any(drift.repair == RESTART for drift in found)
