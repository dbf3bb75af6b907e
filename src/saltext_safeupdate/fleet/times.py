"""Times as people and programs read them: by :mod:`..core.times`, and in texts."""

from __future__ import annotations

import datetime
import re

from ..core.times import UTC, beside, iso, zone

__all__ = ["UTC", "beside", "in_zone", "iso", "zone"]

# The form of :func:`.text.moment`.
_TOLD = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b")


def in_zone(text: str, name: object) -> str:
    """Return a text with its times in another zone than UTC."""
    wanted = zone(name)
    if str(name) == UTC:
        return text

    def other(match: re.Match[str]) -> str:
        try:
            at = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
            return at.astimezone(wanted).isoformat(sep=" ", timespec="seconds")
        except (ValueError, OverflowError):
            # A minion may write anything, also a time that does not exist in the other zone.
            return match[0]

    return _TOLD.sub(other, text)
