"""
Who sends what reaches the workers of a master: only whom its channel has verified.

All that is taken from minions (:mod:`.hooks`, :mod:`.notes`, :mod:`.replies`) rests on it. It holds
for the whole master, so also for what Salt itself does with a message.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)

# How messages come that the channel has dealt with: sealed, so it knows the sender, or in the
# open, so no minion's word is taken from them.
_KNOWN = ("aes", "clear")
# Seconds from one line in the log to the next.
_COMPLAINT_INTERVAL = 60.0


class Gate:
    """Stands before the function by which a worker takes messages. *clock* must not jump."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._complain_at = 0.0
        self._dropped = 0

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of *original*: it passes on what the channel has verified."""

        @functools.wraps(original)
        def _handle_payload(*args: Any, **kwargs: Any) -> Any:
            if is_verified(kwargs.get("payload", args[1] if len(args) > 1 else None)):
                return original(*args, **kwargs)
            self._tell()
            return _nothing()

        return _handle_payload

    def _tell(self) -> None:
        """Log at most once a minute: whoever sends such messages must not fill the log."""
        self._dropped += 1
        now = self._clock()
        if now >= self._complain_at:
            log.warning(
                "safeupdate: dropped %d messages that the channel has not verified. No minion of "
                "Salt sends such messages; find out who on the network does.",
                self._dropped,
            )
            self._complain_at, self._dropped = now + _COMPLAINT_INTERVAL, 0


def is_verified(payload: object) -> bool:
    """Tell whether the channel has dealt with a message; what is none at all is left to Salt."""
    # Salt itself calls the function without a message, for its statistics.
    if not isinstance(payload, Mapping) or "enc" not in payload:
        return True
    enc = payload["enc"]
    return isinstance(enc, str) and enc in _KNOWN


async def _nothing() -> tuple[dict[str, Any], dict[str, str]]:
    """Answer as Salt does to a command that it does not have."""
    return {}, {"fun": "send_clear"}
