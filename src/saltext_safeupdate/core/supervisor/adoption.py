"""A transaction of the system that brought the own packages along, looked after as an update."""

from __future__ import annotations

from collections.abc import Mapping

from ..record.parts import WayBack
from ..record.phase import Phase
from .initiator import Initiator


def adopt(
    by: Initiator,
    before: Mapping[str, str],
    *,
    base: Mapping[str, int] | None = None,
    jid: str = "",
    reason: str = "",
) -> None:
    """
    Look after a transaction of the system that has changed the own packages.

    The boot that activates it is watched, and taken back if need be: to *base*, the snapshot that
    the transaction started from, so that what others have changed there is not lost. *before* are
    the versions that the next boot would have started. What runs is not touched by it, so nothing
    has to wait.
    """
    after = by.versions()
    if after == before:
        return
    manager, own = by.manager, by.installation.own
    assert manager is not None  # noqa: S101 - it has made the transaction
    lock = by.writing()
    try:
        last, replaced = by.latest(), None
        if last is not None and not last.phase.final:
            if not last.awaits_boot or last.versions_to == after:
                # The process that makes that update looks at what became of it.
                return
            reason_then = "A later transaction took its place before the reboot."
            by.store.save(last.advance(Phase.FAILED, reason=reason_then))
            replaced = last.way_back.snapshot
        running = manager.running(own)
        if after == running:
            return
        back = by.activation.snapshots.running()
        if base:
            # What runs is known to work, and so is what only others have changed since.
            back = dict(base) if before == running else replaced or back
        update = by.store.save(
            by.new_record(
                "update",
                jid,
                reason,
                phase=Phase.DELIVERING,
                way_back=WayBack(snapshot=back),
                versions_from=running,
                versions_to=after,
            )
        )
    finally:
        lock.close()
    by.arm({})
    by.have_supervised(update)
