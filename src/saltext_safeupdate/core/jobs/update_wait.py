"""
When the wait of a job that waits for the end of an update is over.

The minion starts no process for such a job before that. The job is held in the ledger, so no
update and no restart has to wait for it, and the minion that runs in the end returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..record.store import Store
from ..record.update import Update

DEFAULT_TIMEOUT = 3600.0


def find(store: Store, update: object) -> Update | None:
    """Return the update with this ID, or the newest."""
    if not store.exists():
        return None
    return store.latest() if update is None else store.get(str(update))


def is_over(store: Store, call: Mapping[str, Any], accepted: float, now: float) -> bool:
    """Tell whether a job with this call has nothing to wait for, or not any more."""
    update, timeout = _arguments(call)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return True
    found = find(store, update)
    return found is None or found.phase.final or now >= accepted + timeout


def _arguments(call: Mapping[str, Any]) -> tuple[object, object]:
    """Return the arguments as the function gets them."""
    words: dict[str, object] = {"update": None, "timeout": DEFAULT_TIMEOUT}
    names = iter(tuple(words))
    for given in call.get("arg") or ():
        if isinstance(given, dict) and given.get("__kwarg__"):
            words |= given
        else:
            words[next(names, "")] = given
    return words["update"], words["timeout"]
