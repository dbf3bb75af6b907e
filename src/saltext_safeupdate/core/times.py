"""Times as people and programs read them: in ISO 8601, in UTC or in another zone."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Mapping
from typing import Any

from .errors import InputError

UTC, LOCAL = "UTC", "local"
# The form of a time in a text: see ``moment`` in ``fleet/text.py``.
_TOLD = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b")


def zone(name: object) -> datetime.tzinfo | None:
    """Return the time zone of that name; None for this host's own. Raises InputError."""
    told = str(name)
    if told.lower() == LOCAL:
        return None
    if told == UTC:
        return datetime.timezone.utc
    # Imported here, because each module that is imported takes memory in each job of a minion.
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(told)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise InputError(
            f"There is no time zone {told!r} here. Say 'UTC', 'local' for the zone of this host, "
            "or a name such as 'Europe/Berlin'. Nothing was changed."
        ) from err


def iso(at: float, name: object = UTC) -> str:
    """Return a time, in seconds since 1970, such as ``2026-11-22T21:00:00+01:00``."""
    found = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).astimezone(zone(name))
    return found.isoformat(timespec="seconds")


def beside(found: Mapping[str, Any], keys: tuple[str, ...], name: object = UTC) -> dict[str, Any]:
    """
    Return plain data with ``times``: the values of these keys in ISO 8601.

    They are None without a time, and for a number that is no time. ``times`` also has the lines of
    a ``history``, in their order. Raises InputError if the zone *name* is unknown.
    """
    told = {key: _iso_or_none(found[key], name) for key in keys}
    lines = {"history": [iso(at, name) for at, _ in found["history"]]} if "history" in found else {}
    return {**found, "times": {**told, **lines}}


def _iso_or_none(at: Any, name: object) -> str | None:
    if not at:
        return None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return iso(at, name)
    return None


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
