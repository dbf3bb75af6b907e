"""
Questions about a new default snapshot, before anything else happens with it.

A call of the tool may end with a reboot into what it has made. Whoever has to say something to
that, says it while the call still has its turn: before services are restarted, and before a
reboot is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from .roots import Subvolume


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a new default snapshot may not stay, and which *packages* in it are the cause."""

    reason: str
    packages: Sequence[str] = ()


# Gets the snapshot that has all that the new one started from, if a boot were to go back.
Look = Callable[[Subvolume | None], Refusal | None]

_look: ContextVar[Look | None] = ContextVar("look", default=None)


@contextmanager
def looked_at_by(look: Look) -> Iterator[None]:
    """Have *look* asked about each new default snapshot that calls of this thread make."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


def refusal(base: Subvolume | None) -> Refusal | None:
    """Return why the new default snapshot, made from *base*, may not stay; None if it may."""
    look = _look.get()
    return None if look is None else look(base)
