"""A minion that no other generation of it runs beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Single:
    """What :class:`.succession.Succession` is to a minion that is never handed over."""

    bus = ""
    is_on_trial = serves_on = False

    def is_mine(self, minion: Any, data: dict[str, Any]) -> bool:
        """Return that this generation starts the job."""
        return True

    def starts(self, due: str, at: float) -> bool:
        """Return that this generation starts the job of its schedule."""
        return True

    def look(self, minion: Any) -> bool:
        """Return that the queues are for this generation to work on."""
        return False

    def told(self, original: Callable[..., Any], minion: Any, package: bytes) -> Any:
        """Let an event tell nothing but what it tells Salt."""
        return original(minion, package)
