"""Whether an update may begin although other minions run from the same packages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import LockHeldError, SafeUpdateError
from ..host.locks import Lock, held
from ..host.minions import Minion
from ..record.phase import Phase
from ..record.store import Store
from .initiator import Initiator

_NOTHING = "Nothing was changed."
_BEFORE = (Phase.REQUESTED, Phase.WAITING)


@contextlib.contextmanager
def admitted(by: Initiator, *, at_once: bool = False) -> Iterator[None]:
    """
    Keep all others on this host from beginning an update; write the record inside this context.

    *at_once* says that the update cannot wait until others stop holding jobs of the other minions.

    Raise LockHeldError if another minion updates the same packages or restarts now. Raise
    SafeUpdateError if another minion could not be restarted with ours, or its jobs not waited for.
    """
    unaware = by.unaware()
    if unaware:
        raise SafeUpdateError(f"{' '.join(unaware)} {_NOTHING}")
    if not by.others:
        yield
        return
    lock = Lock(by.settings.registry_dir, "update")
    try:
        if not by.wait_until(lock.try_exclusive):
            raise LockHeldError(f"Another minion of this host begins an update. {_NOTHING}")
        for each in by.others:
            _refuse(by, each, at_once)
        yield
    finally:
        lock.close()


def _refuse(by: Initiator, other: Minion, at_once: bool) -> None:
    if by.services.name != "systemd":
        raise SafeUpdateError(
            f"The minion {other} runs from the same packages, and without systemd it cannot be "
            f"restarted with this one. {_NOTHING} Stop it, or move its configuration away."
        )
    store = Store(other.database)
    last = store.latest() if store.exists() else None
    waits = last is not None and last.kind == "restart" and last.phase in _BEFORE
    if last is None or last.phase.final or last.awaits_boot or waits:
        if at_once and held(other.run_dir, "drain"):
            raise LockHeldError(
                f"The minion {other} runs from the same packages and is about to stop or restart. "
                f"{_NOTHING} Try again when it has."
            )
        return
    what = "updates the same packages" if last.kind == "update" else "restarts now"
    raise LockHeldError(
        f"The minion {other} {what} (update {last.id}, {last.phase.value}). {_NOTHING} Wait for "
        "its end ('safeupdate.status' there) and try again."
    )
