"""Reports of the engine about a restart that has waited for jobs although it should not have."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..core.jobs import guard_file
from ..core.record.store import Store
from ..core.record.typed import Fact

log = logging.getLogger(__name__)

# The last report: the next minion reads it, too.
_TOLD: Fact[str] = Fact("waited_restart", str)


class WaitedRestart:
    """Reports each reason once, by *send*, which tells whether a master got it."""

    def __init__(self, run_dir: str, store: Store, send: Callable[[str], bool]) -> None:
        self._run_dir = run_dir
        self._store = store
        self._send = send
        self._last: str | None = None

    def is_current(self) -> bool:
        """Tell whether there is nothing to report."""
        return guard_file.waited(self._run_dir) == self._last

    def look(self) -> None:
        """Report it if it is new. Raise SafeUpdateError; then it is tried again."""
        why = guard_file.waited(self._run_dir)
        if why == self._last:
            return
        if why != (self._store.replaceable(_TOLD) or ""):
            if why and not self._send(why):
                return
            if why:
                log.warning("safeupdate: a restart has waited for jobs: %s", why)
            self._store.set_fact(_TOLD, why)
        self._last = why
