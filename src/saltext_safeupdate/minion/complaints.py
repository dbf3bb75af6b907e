"""Log an error that every job meets, but not for every job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..core.errors import SafeUpdateError

log = logging.getLogger(__name__)

# Seconds between two log lines about an unusable database.
_INTERVAL = 60.0


class Complaints:
    """Logs at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def log(self, what: str, jid: object, err: SafeUpdateError) -> None:
        """Log *what*, with ``%s`` for the JID, and the error that caused it."""
        now = self._clock()
        if self._last is None or now >= self._last + _INTERVAL:
            self._last = now
            log.error(f"safeupdate: {what}: %s", jid, err)

    def tell(self, err: SafeUpdateError) -> None:
        """Log an error that does not concern a single job."""
        now = self._clock()
        if self._last is None or now >= self._last + _INTERVAL:
            self._last = now
            log.error("safeupdate: %s", err)
