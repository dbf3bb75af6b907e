"""Times in ISO 8601 next to the numbers of the revisions of a minion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import times

# The lists of the answer whose rows have a time, and the key of it.
_ROWS = {"skipped": "at", "slots": "staged"}


def revisions(found: Mapping[str, Any], zone: object = times.UTC) -> dict[str, Any]:
    """
    Return the revisions with ``times`` in each row that has a time.

    *zone* is as for :func:`.times.zone`. Raises InputError if it is unknown.
    """
    times.zone(zone)
    dated = {
        name: [times.beside(row, (key,), zone) for row in found[name]]
        for name, key in _ROWS.items()
        if name in found
    }
    return {**found, **dated}
