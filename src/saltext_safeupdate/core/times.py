"""Times next to the numbers that programs read: in ISO 8601, in UTC or in another zone."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any

from .errors import InputError

UTC, LOCAL = "UTC", "local"


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
