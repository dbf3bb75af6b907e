"""
Answers of a minion about publications that it has not accepted.

Only those that it has *missed* are published to it again: they are meant for it, and came while it
was restarted, or was brought back after a crash. It was *away* if it was off or unreachable then,
or somebody had stopped it.
"""

from __future__ import annotations

MISSED, AWAY, NOT_MEANT, UNDECIDED = "missed", "away", "not meant", "undecided"


def about(number: int | str) -> str:
    """Return the name of a publication in such an answer."""
    return f"#{number}"
