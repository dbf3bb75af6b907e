"""What a minion answers of publications that it has not accepted: whether they are meant for it."""

from __future__ import annotations

MEANT, NOT_MEANT, UNDECIDED = "meant", "not meant", "undecided"


def about(number: int | str) -> str:
    """Return how an answer names a publication, of which a minion says whether it is meant."""
    return f"#{number}"
