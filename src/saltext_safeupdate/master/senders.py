"""
Only messages that its channel has verified reach the workers of a master.


Everything that is taken from minions (:mod:`.hooks`, :mod:`.notes`, :mod:`.replies`) relies on
that. It applies to the whole master, also to Salt's own use of a message.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)

# Kinds of messages that the channel has verified: encrypted, so it knows the sender, or clear, so
# they do not count as a minion's word.
_KNOWN = ("aes", "clear")
# Seconds between two lines in the log.
_COMPLAINT_INTERVAL = 60.0


class Gate:
    """Guards the function by which a worker takes messages. *clock* must not jump."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._complain_at = 0.0
        self._dropped = 0

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the replacement of *original*: it only passes verified messages on."""

        @functools.wraps(original)
        def _handle_payload(*args: Any, **kwargs: Any) -> Any:
            if is_verified(kwargs.get("payload", args[1] if len(args) > 1 else None)):
                return original(*args, **kwargs)
            self._tell()
            return _nothing()

        return _handle_payload

    def _tell(self) -> None:
        """Log at most once a minute: such messages must not fill the log."""
        self._dropped += 1
        now = self._clock()
        if now >= self._complain_at:
            log.warning(
                "safeupdate: dropped %d messages that the channel has not verified. No minion of "
                "Salt sends such messages; find out which host on the network does.",
                self._dropped,
            )
            self._complain_at, self._dropped = now + _COMPLAINT_INTERVAL, 0


def is_verified(payload: object) -> bool:
    """Return whether the channel has verified a message; anything else is left to Salt."""
    # Salt itself calls the function without a message, for its statistics.
    if not isinstance(payload, Mapping) or "enc" not in payload:
        return True
    enc = payload["enc"]
    return isinstance(enc, str) and enc in _KNOWN


async def _nothing() -> tuple[dict[str, Any], dict[str, str]]:
    """Return Salt's answer to an unknown command."""
    return {}, {"fun": "send_clear"}
