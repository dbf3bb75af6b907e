"""Work that nobody waits for, in a process of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...core.host import processes

log = logging.getLogger(__name__)

Spawn = Callable[[Callable[[], object]], None]


def spawner(opts: Mapping[str, Any]) -> Spawn:
    """Return what has work done in the background of a job."""
    # A thread must not fork: that is what a job is in a minion without processes.
    return _fork if opts.get("multiprocessing", True) else _thread


def _thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _fork(work: Callable[[], object]) -> None:
    def told() -> None:
        try:
            work()
        except BaseException:
            log.exception("safeupdate: work in the background failed")

    processes.in_background(told)
