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


@frozen
class Begun:
    """
    The programs of upgrade steps that *update* has begun, in their order, with the *versions*
    before and after. *undone* are the programs that have taken them back, *failed* says which of
    these could not.
    """

    update: str
    versions: tuple[str, str]
    programs: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


# The Salt that the minion goes back to when it leaves its slots.
UNSLOTTED: Fact[Unslotted] = Fact("unslotted", Unslotted)
# The version whose upgrade steps this minion has been through.
STEPS_SINCE: Fact[str] = Fact("steps-since", str)
# What an update that has not ended has begun of them.
STEPS_BEGUN: Fact[Begun] = Fact("steps-begun", Begun)
# The steps of earlier updates whose work is on this host, without what their programs add.
STEPS_TAKEN: Fact[tuple[str, ...]] = Fact("steps-taken", tuple[str, ...])
# The minion is about to run without us.
LEAVING: Fact[Asked] = Fact("leaving", Asked)
# Directories that were made for our file, and go with it.
MADE: Fact[tuple[str, ...]] = Fact("made", tuple[str, ...])
# A restart that was asked for while an update ended.
RESTART: Fact[Owed] = Fact("restart", Owed)
