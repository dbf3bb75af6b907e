"""Job IDs: whether a text is one, and when its master made it."""

from __future__ import annotations

import datetime
import re

# As Salt makes them from the time in UTC, with 'unique_jid' and the PID of the master's process.
_JID = re.compile(r"(\d{20})(?:_\d{1,7})?", re.ASCII)


def is_jid(text: str) -> bool:
    """Tell whether it names one job. Startup states, for example, have "req" at every start."""
    return _JID.fullmatch(text) is not None


def made_at(jid: str) -> float | None:
    """Return when its master made it, in epoch seconds by the master's clock; None if unknown."""
    found = _JID.fullmatch(jid)
    if found is None:
        return None
    try:
        made = datetime.datetime.strptime(found[1], "%Y%m%d%H%M%S%f")
    except ValueError:
        return None
    return made.replace(tzinfo=datetime.timezone.utc).timestamp()
