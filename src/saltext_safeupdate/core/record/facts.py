"""Facts that more than one room reads."""

from __future__ import annotations

from ..frozen import frozen
from .parts import Owed
from .typed import Fact


@frozen
class Asked:
    """
    Data that is removed together with all other data of a minion: about the minion with this
    *config* file, *files* elsewhere, and *directories* if they are empty then.
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


@frozen
class PendingKey:
    """The main *process* of a minion, and the *name* under which no master has its key yet."""

    process: str
    name: str


# The Salt that the minion goes back to when it leaves its slots.
UNSLOTTED: Fact[Unslotted] = Fact("unslotted", Unslotted)
# The version whose upgrade steps this minion has been through.
STEPS_SINCE: Fact[str] = Fact("steps-since", str)
# The steps that an update has begun, while it has not ended.
STEPS_BEGUN: Fact[Begun] = Fact("steps-begun", Begun)
# The steps of earlier updates whose work is on this host, without what their programs add.
STEPS_TAKEN: Fact[tuple[str, ...]] = Fact("steps-taken", tuple[str, ...])
# The minion is about to run without us.
LEAVING: Fact[Asked] = Fact("leaving", Asked)
# Directories that were made for our file, and are removed with it.
MADE: Fact[tuple[str, ...]] = Fact("made", tuple[str, ...])
# A minion that waits until a master accepts its key.
PENDING_KEY: Fact[PendingKey] = Fact("pending-key", PendingKey)
# A restart that was requested while an update ended.
RESTART: Fact[Owed] = Fact("restart", Owed)
