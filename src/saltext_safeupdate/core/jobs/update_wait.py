"""
The end of the wait of a job that waits for an update.

The minion starts no process for such a job before that. The job is held in the ledger, so no
update and no restart has to wait for it. The minion that runs in the end returns it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UnreadableError
from ..record.store import Store
from ..record.update import Update

DEFAULT_TIMEOUT = 3600.0


def find(store: Store, update: object) -> Update | None:
    """Return the update with this ID, or the newest."""
    if not store.exists():
        return None
    return store.latest() if update is None else store.get(str(update))


class Waits:
    """
    Tells whether the wait of a job is over.

    The time of day tells how long a job had waited before this process saw it; a clock that was set
    back counts as no wait. From then on *monotonic* counts, which nobody sets.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._deadlines: dict[str, float] = {}

    def is_over(self, key: str, call: Mapping[str, Any], accepted: float | None) -> bool:
        """
        Tell whether the job has nothing to wait for any more.

        *accepted* is when the minion accepted it, in epoch seconds; None if that is now.
        """
        update, timeout = _arguments(call)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            return True
        now = self._monotonic()
        if key not in self._deadlines:
            waited = 0.0 if accepted is None else max(0.0, self._clock() - accepted)
            known = self._deadlines.items()
            self._deadlines = {each: until for each, until in known if until > now}
            self._deadlines[key] = now + timeout - waited
        try:
            found = find(self._store, update)
        except UnreadableError:
            # The function itself reports that.
            return True
        return found is None or found.phase.final or now >= self._deadlines[key]


def _arguments(call: Mapping[str, Any]) -> tuple[object, object]:
    """Return the arguments as the function receives them."""
    words: dict[str, object] = {"update": None, "timeout": DEFAULT_TIMEOUT}
    names = iter(tuple(words))
    for given in call.get("arg") or ():
        if isinstance(given, dict) and given.get("__kwarg__"):
            words |= given
        else:
            words[next(names, "")] = given
    return words["update"], words["timeout"]
