"""Whether the minion of this host can be handed over, and how the next one announces itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.generations import meeting
from ..core.generations.table import Generations
from ..core.host import processes
from ..core.jobs import guard_file
from ..core.record.store import Store
from ..core.settings import Settings
from ..this_host import Host
from . import parentless

_ALONE = (
    "the minion itself is the main process of its unit, as with '--disable-keepalive', and cannot "
    "outlive it"
)


def is_set_up(opts: Mapping[str, Any], settings: Settings) -> bool:
    """
    Tell whether a minion with these opts prepares to be handed over when it starts.

    It starts no program, so that a minion which never restarts has no cost. Other obstacles are
    found later, and then a restart waits.
    """
    return guard_file.hands_over(settings) and not of_opts(opts)


def obstacle(host: Host) -> str:
    """Return why restarts of this host's minion wait for jobs; empty if they do not wait."""
    if host.settings.restart != "handover":
        return "'safeupdate:restart' is 'wait'"
    guard = host.stop_guard
    if guard is None:
        return f"the minion is no service of systemd, but of {host.services.name}"
    return of_opts(host.opts) or guard.obstacle()


def described(host: Host) -> str:
    """
    Return what happens to jobs in the next restart by others: ``handover``, or ``wait: <why>``.

    Raise SafeUpdateError.
    """
    why_not = obstacle(host) or _of_running(host)
    return f"wait: {why_not}" if why_not else "handover"


def _of_running(host: Host) -> str:
    """Return why the running minion cannot be handed over although it is set up correctly."""
    generations = Generations(host.store)
    serving = generations.serving()
    if serving is None or not processes.alive(serving.process):
        return "no minion with this extension runs"
    if processes.parent(processes.pid(serving.process)) == 1:
        return _ALONE
    if not meeting.can_be_asked(host.settings.run_dir, serving.process):
        return "the running minion cannot be asked; if it did not just start, restart it once"
    return generations.crowded()


def of_opts(opts: Mapping[str, Any]) -> str:
    """Return why a minion with these opts cannot be handed over; empty if it can."""
    if not opts.get("multiprocessing", True):
        return "'multiprocessing' is off, so its jobs are threads of the minion itself"
    if opts.get("ipc_mode") == "tcp":
        return "with 'ipc_mode: tcp' two minions cannot have their event sockets side by side"
    return ""


def of_process(opts: Mapping[str, Any], bus: str, generations: Generations) -> str:
    """
    Return why this main process cannot be handed over now; empty if it can.

    *bus* is the directory of its own event sockets.
    """
    if not bus:
        return of_opts(opts) or "it has no event sockets of its own"
    if os.getppid() == 1:
        return _ALONE
    if not parentless.is_possible():
        return "it was not started by Salt's own program"
    return generations.crowded()


def announce(settings: Settings, store: Store) -> None:
    """
    Announce that this process, the main process of a minion, claims each job that it runs.

    It has the hooks, and is not connected yet. Without an earlier minion there is nothing to do.
    Raise SafeUpdateError.
    """
    generations = Generations(store)
    if generations.overlapping():
        generations.begins(processes.me())
