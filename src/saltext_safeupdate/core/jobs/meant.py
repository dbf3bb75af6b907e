"""Answers of a minion about publications that it has not accepted: are they meant for it?"""

from __future__ import annotations

MEANT, NOT_MEANT, UNDECIDED = "meant", "not meant", "undecided"


def about(number: int | str) -> str:
    """Return the name of a publication in such an answer."""
    return f"#{number}"
