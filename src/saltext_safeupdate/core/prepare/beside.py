"""Other daemons of this host that run from the packages of an update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ..host import reach
from ..host.daemons import Daemon
from ..host.minions import Minion
from ..host.servers import MASTER, Server

# The unit and what there is to say of it: a problem and its fix.
Told = tuple[str, str]


def minions(others: Sequence[Minion]) -> list[Told]:
    """Return what is to be known of the minions that are updated with this one."""
    return [
        (
            f"The minion {each} runs from the same packages.",
            f"Nothing has to be done: the update also waits for its jobs and restarts {each.unit}.",
        )
        for each in others
    ]


def unaware(daemons: Sequence[Daemon], known: Collection[int]) -> list[Told]:
    """
    Return the reasons against an update: jobs that it cannot wait for.

    *known* are the main processes of the minions whose jobs it waits for, our own included.
    """
    return [
        (
            f"{each.unit} ({each.program}) runs from the same packages without this extension: "
            "an update does not wait for its jobs, and it continues with old and new code mixed.",
            "Set the extension up there and restart it, or stop it. Or set "
            "'safeupdate:other_minions' to 'report', and restart it after the update.",
        )
        for each in daemons
        if each.has_jobs and each.pid not in known
    ]


def is_own(
    found: Sequence[Server],
    names: Sequence[str],
    port: int,
    is_here: Callable[[str], bool] = reach.is_here,
) -> bool:
    """
    Tell whether the master of a minion is one of these, and so is updated with it.

    *names* are the names of all its masters, and *port* is where the minion sends its requests.
    """
    here = any(each.program == MASTER and each.port == port for each in found)
    return here and bool(names) and all(map(is_here, names))


def masters(daemons: Sequence[Daemon]) -> list[Told]:
    """Return what is to be known of a master that is updated with the minion."""
    return _away(each for each in daemons if each.program == MASTER)


def servers(daemons: Sequence[Daemon]) -> list[Told]:
    """Return the same of a syndic or an API: its master may be started in another way."""
    return _away(each for each in daemons if each.program != MASTER and not each.has_jobs)


def _away(daemons: Iterable[Daemon]) -> list[Told]:
    return [
        (
            f"{each.unit} ({each.program}) runs from the same packages: it is updated with this "
            "minion, and away meanwhile.",
            "Choose a time at which its minions can do without it for minutes. It is started "
            "before the minion, and goes back with it if it does not work. Minions with this "
            "extension send it what they returned meanwhile.",
        )
        for each in daemons
    ]
