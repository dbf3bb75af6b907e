"""Work that leaves the processors to others first."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

log = logging.getLogger("salt-safeupdate")

# Added to the nice value. The kernel gives a process of 5 a third of the time of one of 0, if both
# want a whole processor (``sched_prio_to_weight`` in kernel/sched/core.c: 335 and 1024).
_NICER = 5


@contextlib.contextmanager
def in_background() -> Iterator[None]:
    """
    Run in the background, and so do the programs that start meanwhile.

    On a machine that is idle nothing becomes slower. If this process may not return to where it
    was, it stays in the background: a container may lack CAP_SYS_NICE.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, min(before + _NICER, 19))
    except OSError as err:
        log.info("jobs share the processors with the update: %s", err.strerror)
    try:
        yield
    finally:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, before)
        except OSError as err:
            log.info("the rest of the update runs in the background as well: %s", err.strerror)
