"""One generation of the minion: a main process, from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..host.reach import Address


class Standing(Enum):
    """What a generation is to the minion now."""

    # Its main process works, and its engine has not reported yet.
    STARTING = "starting"
    SERVING = "serving"
    # Another one has reported since.
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Report:
    """
    What the engine says when it begins its work.

    ``at`` is when, in epoch seconds, ``boot`` the name of that boot of the host. ``master`` tells
    whether the return of a job shows that a master hears of this minion, ``masters`` has the
    addresses that the configuration names, and ``port`` is where each other master listens; 0: not
    known. ``hooked`` tells whether the main process has our hooks; None: not yet, it is to restart
    for that. ``took`` is how many seconds it took from its start to the report; None: not known.
    ``startup_delay`` is up to how many seconds Salt sleeps at first. ``version`` is that of Salt,
    ``extension`` that of this extension.
    """

    at: float
    boot: str = ""
    version: str = ""
    extension: str = ""
    master: bool = False
    masters: tuple[Address, ...] = ()
    port: int = 0
    hooked: bool | None = True
    took: float | None = None
    startup_delay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A job that the supervisor has a generation do, as if its master had published it."""

    jid: str
    fun: str
    arg: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Generation:
    """
    What is known of one.

    ``process`` is the identity of its main process. ``report`` is None if its engine has not
    reported. ``masters`` are those that it works for, each with whether it is connected; None: it
    has not noted them. ``refused`` is the JID of the probe whose return its master could not store,
    though it was there. ``idle`` tells that no job of it ran any more when a restart ended it, but
    the one with that JID; None: not that it is known.
    """

    process: str
    standing: Standing
    report: Report | None = None
    masters: tuple[tuple[str, bool], ...] | None = None
    probe: Probe | None = None
    refused: str | None = None
    idle: str | None = None
