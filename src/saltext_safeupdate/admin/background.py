"""Work that nobody waits for, in a process of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)

Spawn = Callable[[Callable[[], object]], None]


def spawner(opts: Mapping[str, Any]) -> Spawn:
    """Return what has work done in the background of a job."""
    # A thread must not fork: that is what a job is in a minion without processes.
    return _fork if opts.get("multiprocessing", True) else _thread


def _thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _fork(work: Callable[[], object]) -> None:
    """Do the work in a child of a child, which PID 1 or the minion looks after."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        # Whoever reads what the job prints does not wait for us.
        for number in (0, 1, 2):
            os.dup2(null, number)
        work()
    except BaseException:
        log.exception("safeupdate: work in the background failed")
    finally:
        os._exit(0)
