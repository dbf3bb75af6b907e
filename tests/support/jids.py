"""JIDs of a time of the test's own."""

from datetime import datetime, timezone


def jid_of(at):
    """Return the JID that a master makes at this time, in seconds since 1970."""
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y%m%d%H%M%S%f}"
