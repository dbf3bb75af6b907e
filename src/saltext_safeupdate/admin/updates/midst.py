"""A restart of the system or of the minion during a state run, which continues after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ...core.errors import InputError, one_line
from ...core.host import processes
from ...core.jobs import current
from ...ordering import runs
from ...this_host import Host
from . import inside, steering

_TRANSACTIONAL = (
    "Nothing was done: {why}. Use 'transactional_update.rebooted', and what needs the new snapshot "
    "in a run of its own."
)
_NOT_PUBLISHED = (
    "Nothing was done: only a job that a master published continues after the boot, or after the "
    "restart, and only a state function. This job was started by salt-call, by a schedule, or "
    "inside another function; or it is not recorded, see 'safeupdate.check'."
)
_PARALLEL = (
    "Nothing was done: a state with 'parallel: True' cannot restart the process of the others. "
    "Remove 'parallel'; the state waits for the running ones."
)
_THREADS = (
    "Nothing was done: with 'multiprocessing: False' a run cannot continue after a restart. Set "
    "'multiprocessing: True'."
)


def reboot(
    opts: dict[str, Any], name: str, timeout: object, message: object = None
) -> dict[str, Any]:
    """
    Reboot the system here; the run of this thread continues after the boot.

    It returns in test mode only. Raises SafeUpdateError if nothing was done.
    """
    seconds = _seconds(timeout)
    if opts["test"]:
        changes = {"boot": {"old": processes.boot(), "new": "the next boot"}}
        return {"result": None, "changes": changes, "comment": "The system would be rebooted here."}
    if inside.here():
        raise InputError(_TRANSACTIONAL.format(why="this runs inside a transaction"))
    host = Host(opts)
    if host.activation.by_boot:
        raise InputError(_TRANSACTIONAL.format(why="this is a transactional system"))
    suspend = _suspending(opts)
    said = one_line(str(message or f"safeupdate: state {name}"))
    return suspend(processes.identity(1), seconds, lambda: host.services.reboot(said))


def restart(opts: dict[str, Any], name: str, timeout: object) -> dict[str, Any]:
    """
    Restart the minion here; the run continues after it, when all other jobs have ended.

    It returns in test mode only. Raises SafeUpdateError if nothing was done.
    """
    seconds = _seconds(timeout)
    if opts["test"]:
        changes = {"minion": {"old": "this process", "new": "the next one"}}
        return {"result": None, "changes": changes, "comment": "The minion would restart here."}
    host = Host(opts)
    suspend = _suspending(opts)
    reason = f"state {name}, during its run"
    return suspend("", seconds, lambda: steering.restart(host, reason))


# Requisites for which Salt calls 'mod_watch' of a state, in its place and at the end of the run.
_WATCHING = frozenset(("watch", "watch_any", "watch_all", "listen"))


def is_left_to_watching(low: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]) -> bool:
    """
    Tell whether a state does nothing by itself, because others say when it is to do something.

    *low* is the state, *chunks* are all of its run: one may have it listen.
    """
    if _WATCHING & low.keys():
        return True
    names = (low.get("__id__"), low.get("name"))
    return any(
        kind == low.get("state") and name in names
        for chunk in chunks
        for each in chunk.get("listen_in") or ()
        if isinstance(each, Mapping)
        for kind, name in each.items()
    )


def watched(
    opts: dict[str, Any], function: str, name: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Reboot or restart here, as a state of this *function* does if what it watches has changed."""
    timeout = given.get("timeout", 600)
    if function == "rebooted":
        return reboot(opts, name, timeout, given.get("message"))
    return restart(opts, name, timeout)


def _seconds(timeout: object) -> float:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < float(str(timeout)) < math.inf:
        raise InputError("'timeout' must be a number of seconds above 0. Nothing was done.")
    return float(str(timeout))


def _suspending(opts: dict[str, Any]) -> Callable[..., NoReturn]:
    """Return what suspends the run of this thread. Raise InputError if nothing can."""
    run, job = runs.current(), current.get()
    if run is not None and run.remote:
        raise InputError(_PARALLEL)
    if not opts.get("multiprocessing", True):
        raise InputError(_THREADS)
    if run is None or run.suspend is None or job is None or not job.may_go_back:
        raise InputError(_NOT_PUBLISHED)
    return run.suspend
