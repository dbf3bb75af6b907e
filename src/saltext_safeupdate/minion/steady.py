"""
The clock of the loop in the minion's main process.

Tornado times its callbacks by the time of day. If somebody sets it back by ten minutes, Salt does
not check its queues for ten minutes, and the jobs that were held there would not begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.host import processes


def keep(minion: Any, since_boot: Callable[[], float] = processes.since_boot) -> None:
    """
    Make the time of this minion's loop continue from now, whatever the clock is set to.

    Callbacks that are scheduled already are not affected: the time of the loop does not jump.
    """
    for periodic in getattr(minion, "periodic_callbacks", {}).values():
        keep_loop(getattr(periodic, "io_loop", None), since_boot)


def keep_loop(loop: Any, since_boot: Callable[[], float] = processes.since_boot) -> None:
    """Do the same for this loop."""
    # The loop of another Salt may accept no other time.
    if "time" not in getattr(loop, "__dict__", ("time",)):
        offset = loop.time() - since_boot()
        loop.time = lambda: offset + since_boot()
