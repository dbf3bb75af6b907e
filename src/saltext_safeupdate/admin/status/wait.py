"""Wait for the end of an update, in a process that the update does not wait for."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ...core.errors import InputError, LockHeldError
from ...core.host import locks
from ...core.jobs import current, update_wait
from ...core.record.update import Update
from ...this_host import Host
from .status import described

# Seconds between two looks at the record.
_POLL_INTERVAL = 0.5


def wait(
    host: Host,
    wanted: object,
    timeout: object,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the record when it has its last phase, or as it is after *timeout* seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise InputError("'timeout' must be a number of seconds above 0.")
    found = _find(host, wanted)
    job = current.get()
    # A job of the minion was held as long, maybe on the other side of a restart.
    if found.phase.final or (job is not None and job.waited):
        return described(found)
    _refuse_to_wait_for_ourselves(host)
    deadline = monotonic() + timeout
    while not found.phase.final and monotonic() < deadline:
        sleep(_POLL_INTERVAL)
        found = _find(host, wanted)
    if found.phase.final and host.opts.get("__cli") == "salt-call":
        # Modules that this program has not loaded yet may be gone: the new version answers.
        with contextlib.suppress(OSError):
            os.execv(sys.argv[0], sys.argv)  # noqa: S606 (itself)
    return described(found)


def _find(host: Host, wanted: object) -> Update:
    found = update_wait.find(host.store, wanted)
    if found is None:
        which = "no update yet" if wanted is None else f"no update {wanted}"
        raise InputError(f"There is {which}; 'safeupdate.history' lists those there were.")
    return found


def _refuse_to_wait_for_ourselves(host: Host) -> None:
    if current.get() is None:
        # Started by a job, such as by one of its commands?
        lock = locks.adopt(host.settings.run_dir, "jobs")
        if lock is None:
            return
        lock.close()
    raise LockHeldError(
        "The update waits for the job that asks for this to end. Call 'safeupdate.wait' on its "
        "own, not in a state or a command of a job."
    )
