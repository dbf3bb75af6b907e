"""Whether the minion of this host can be handed over, and what the next one says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.generations.table import Generations
from ..core.host import processes
from ..core.record.store import Store
from ..core.settings import Settings
from ..this_host import Host

# Earlier minions that may still have jobs at the same time: each holds the memory of a minion.
MOST = 5


def obstacle(host: Host) -> str:
    """Return why a restart waits for jobs although it is not to; empty if it does not."""
    if host.settings.restart != "handover":
        return ""
    guard = host.stop_guard
    if guard is None:
        return f"the minion is no service of systemd, but of {host.services.name}"
    return of_opts(host.opts) or guard.obstacle()


def is_possible(host: Host) -> bool:
    """Tell whether a restart waits for nobody."""
    return host.settings.restart == "handover" and not obstacle(host)


def of_opts(opts: Mapping[str, Any]) -> str:
    """Return why a minion with these opts cannot be handed over; empty if it can."""
    if not opts.get("multiprocessing", True):
        return "'multiprocessing' is off, so its jobs are threads of the minion itself"
    if opts.get("ipc_mode") == "tcp":
        return "with 'ipc_mode: tcp' two minions cannot have their event sockets side by side"
    return ""


def crowded(generations: Generations) -> str:
    """Return why one more minion may not stay beside the next one; empty if it may."""
    try:
        earlier = len(generations.overlapping()) + len(generations.leaving())
    except SafeUpdateError as err:
        return str(err)
    if earlier < MOST:
        return ""
    return f"{earlier} earlier minions still have jobs, which is as many as may stay"


def announce(settings: Settings, store: Store) -> None:
    """
    Say that this process, the main one of a minion, claims each job that it runs.

    It has the hooks, and is not connected yet. Without an earlier minion there is nothing to say.
    Raises SafeUpdateError.
    """
    generations = Generations(store)
    if generations.overlapping():
        generations.begins(processes.me())
