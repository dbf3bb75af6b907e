"""What minions are told of a request besides the version; nothing that older ones do not know."""

from __future__ import annotations

from .request import Request


def manner(request: Request) -> dict[str, bool | str]:
    """Return how a minion is to be updated."""
    told: dict[str, bool | str] = {
        "allow_downgrade": request.allow_downgrade,
        "back": bool(request.back),
        "source": request.source,
    }
    return {name: value for name, value in told.items() if value}


def to_fetch(request: Request, goal: tuple[str, str]) -> dict[str, str]:
    """Return what minions are told to download: the *goal* are versions of Salt and of this."""
    where = {"source": request.source} if request.source else {}
    return {"version": goal[0], "extension": goal[1], **where}
