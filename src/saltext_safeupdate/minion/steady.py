"""
The clock of the loop in the minion's main process.

Tornado times its callbacks by the time of day. If somebody sets that back by ten minutes, Salt does
not look into its queues for ten minutes, and the jobs that were held there would not begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.host import processes


def keep(minion: Any, since_boot: Callable[[], float] = processes.since_boot) -> None:
    """
    Have the loop of this minion go on from the time of now, whatever the clock is set to.

    What has been timed already stays so: the time that the loop sees makes no step.
    """
    for periodic in getattr(minion, "periodic_callbacks", {}).values():
        loop: Any = getattr(periodic, "io_loop", None)
        # Of another Salt, it may be one that takes no other time.
        if "time" not in getattr(loop, "__dict__", ("time",)):
            offset = loop.time() - since_boot()
            loop.time = lambda offset=offset: offset + since_boot()
