"""Facts that more than one room reads."""

from __future__ import annotations

from ..frozen import frozen
from .parts import Owed
from .typed import Fact


@frozen
class Asked:
    """
    What goes with all that is kept for a minion: what is known of the one with this *config* file,
    *files* elsewhere, and *directories* if they are empty then.
    """

    config: str
    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


@frozen
class Unslotted:
    """The *program* that the unit of the minion starts without a slot, and its Salt's *version*."""

    version: str
    program: str


# What the minion goes back to when it leaves its slots.
UNSLOTTED: Fact[Unslotted] = Fact("unslotted", Unslotted)
# The version whose upgrade steps this minion has been through.
STEPS_SINCE: Fact[str] = Fact("steps-since", str)
# The minion is about to run without us.
LEAVING: Fact[Asked] = Fact("leaving", Asked)
# Directories that were made for our file, and go with it.
MADE: Fact[tuple[str, ...]] = Fact("made", tuple[str, ...])
# A restart that was asked for while an update ended.
RESTART: Fact[Owed] = Fact("restart", Owed)
