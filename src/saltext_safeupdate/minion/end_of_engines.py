"""The end of the engines of a minion that is handed over: the next one has its own."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

# Seconds that they may take after they were told to end.
_TIMEOUT = 10.0


class EndOfEngines:
    """Tells the engines to end, and kills those that do not."""

    def __init__(self) -> None:
        self._told_at: float | None = None

    def tell(self, minions: Iterable[Any], now: float) -> None:
        """Tell the engines of all parts of the minion to end, and restart none of them."""
        self._told_at = now
        for minion in minions:
            minion.process_manager.stop_restarting()
            minion.process_manager.send_signal_to_processes(signal.SIGTERM)

    def kill_late(self, minions: Iterable[Any], now: float) -> None:
        """Kill, once, the engines that have not ended in time."""
        if self._told_at is None or now < self._told_at + _TIMEOUT:
            return
        self._told_at = None
        for minion in minions:
            minion.process_manager.kill_children()
