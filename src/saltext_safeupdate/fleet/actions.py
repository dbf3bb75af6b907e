"""
What a rollout has done: asked for by it, done by others.

Actions may be lost, or done twice after a restart: each carries a number, and a minion takes
a request of a number once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .rollout import Goal


@dataclass(frozen=True)
class Ask:
    """Ask minions how far they are."""

    minions: tuple[str, ...]
    question: int


@dataclass(frozen=True)
class Stage:
    """Have minions download what they will install."""

    minions: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Ask a minion to update to *goal*, by a request of that number."""

    minion: str
    goal: Goal
    number: int
    question: int


@dataclass(frozen=True)
class Cancel:
    """
    Have a minion drop a request that it has not begun to install.

    It refuses all lower numbers from then on, so a request that is still on its way is too late.
    """

    minion: str
    number: int
    question: int


@dataclass(frozen=True)
class Check:
    """Ask a gate, by the question of that number, whether the rollout may go on."""

    gate: str
    number: int
    moment: str
    wave: int


@dataclass(frozen=True)
class Quarantine:
    """Keep a version from everybody until somebody allows it again."""

    version: str
    because: str


@dataclass(frozen=True)
class Tell:
    """Tell the world, by an event."""

    what: str
    data: dict[str, object] = field(default_factory=dict)


Action = Ask | Stage | Start | Cancel | Check | Quarantine | Tell
