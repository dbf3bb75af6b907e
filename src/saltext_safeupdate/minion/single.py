"""A minion that is never handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Single:
    """The replacement of :class:`.succession.Succession` for a minion that is never handed over."""

    bus = ""
    is_on_trial = serves_on = is_handed_over = False

    def is_mine(self, minion: Any, data: dict[str, Any]) -> bool:
        """Return that this generation starts the job."""
        return True

    def starts(self, due: str, at: float) -> bool:
        """Return that this generation starts the job of its schedule."""
        return True

    def look(self, minion: Any) -> bool:
        """Return that no other generation processes the queues."""
        return False

    def told(self, original: Callable[..., Any], minion: Any, package: bytes) -> Any:
        """Pass an event on to Salt only."""
        return original(minion, package)
