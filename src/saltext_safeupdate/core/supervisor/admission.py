"""Whether an update may begin beside the other minions that run from the same packages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import LockHeldError, SafeUpdateError
from ..host.locks import Lock
from ..host.minions import Minion
from ..record.phase import Phase
from ..record.store import Store
from .initiator import Initiator

_NOTHING = "Nothing was changed."


@contextlib.contextmanager
def admitted(by: Initiator) -> Iterator[None]:
    """
    Let nobody else on this host begin an update meanwhile; the record is to be written in it.

    Raise LockHeldError if another minion updates the same packages, or restarts now, and
    SafeUpdateError if it could not be restarted with ours, or its jobs not be waited for.
    """
    unaware = by.unaware()
    if unaware:
        raise SafeUpdateError(f"{' '.join(unaware)} {_NOTHING}")
    if not by.others:
        yield
        return
    lock = Lock(by.settings.registry_dir, "update")
    try:
        if not lock.wait_exclusive(by.write_timeout, clock=by.clock, sleep=by.sleep):
            raise LockHeldError(f"Another minion of this host begins an update. {_NOTHING}")
        for each in by.others:
            _refuse(by, each)
        yield
    finally:
        lock.close()


def _refuse(by: Initiator, other: Minion) -> None:
    if by.services.name != "systemd":
        raise SafeUpdateError(
            f"The minion {other} runs from the same packages, and without systemd it cannot be "
            f"restarted with this one. {_NOTHING} Stop it, or move its configuration away."
        )
    store = Store(other.database)
    last = store.latest() if store.exists() else None
    if last is None or last.phase.final or last.awaits_boot:
        return
    if last.kind == "restart" and last.phase in (Phase.REQUESTED, Phase.WAITING):
        return
    what = "updates the same packages" if last.kind == "update" else "restarts now"
    raise LockHeldError(
        f"The minion {other} {what} (update {last.id}, {last.phase.value}). {_NOTHING} Wait for "
        "its end ('safeupdate.status' there) and try again."
    )
