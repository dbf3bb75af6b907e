"""What else on this host runs from the packages of an update."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..host.daemons import Daemon
from ..host.minions import Minion

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
    Return what speaks against an update: jobs that it cannot wait for.

    *known* are the main processes of the minions whose jobs it waits for, our own included.
    """
    return [
        (
            f"{each.unit} ({each.program}) runs from the same packages without this extension: "
            "an update does not wait for its jobs, and it goes on with old and new code mixed.",
            "Set the extension up there and restart it, or stop it. Or set "
            "'safeupdate:other_minions' to 'report', and restart it after the update.",
        )
        for each in daemons
        if each.has_jobs and each.pid not in known
    ]


def masters(daemons: Sequence[Daemon]) -> list[Told]:
    """Return what is to be known of a master beside the minion."""
    return [
        (
            f"{each.unit} ({each.program}) runs from the same packages: the package manager may "
            "restart it during the update, or it runs on with old and new code mixed.",
            "Choose a time at which its minions can do without it, and restart it after the update "
            "if the package manager has not. Minions with this extension send it what they "
            "returned meanwhile.",
        )
        for each in daemons
        if not each.has_jobs
    ]
