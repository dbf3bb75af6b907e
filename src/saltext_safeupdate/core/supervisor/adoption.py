"""Adopt a transaction of others that has changed the own packages: supervise it like an update."""

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
    Supervise the boot of a transaction of others that has changed the own packages.

    The boot that activates it is watched. If the boot fails, it is rolled back to *base*, the
    snapshot that the transaction started from, so that other changes in that snapshot are not
    lost. *before* are the versions that the next boot would have started. The transaction does not
    touch the running system, so nothing has to wait.
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
                # The process that makes that update checks its result.
                return
            reason_then = "A later transaction replaced it before the reboot."
            by.store.save(last.advance(Phase.FAILED, reason=reason_then))
            replaced = last.way_back.snapshot
        running = manager.running(own)
        if after == running:
            return
        back = by.activation.snapshots.running()
        if base:
            # The running system is known to work, and so is one with only changes of others.
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
