"""The parts of a request besides the version; minions with older versions know all of them."""

from __future__ import annotations

from .request import Request


def manner(request: Request) -> dict[str, bool | str]:
    """Return the options for the update of a minion."""
    told: dict[str, bool | str] = {
        "allow_downgrade": request.allow_downgrade,
        "back": bool(request.back),
        "source": request.source,
    }
    return {name: value for name, value in told.items() if value}


def to_fetch(request: Request, goal: tuple[str, str]) -> dict[str, str]:
    """Return what to download; the *goal* are the versions of Salt and of this extension."""
    where = {"source": request.source} if request.source else {}
    return {"version": goal[0], "extension": goal[1], **where}
