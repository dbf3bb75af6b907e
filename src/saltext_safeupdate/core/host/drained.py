"""
Whether an administrator has this minion take no new jobs for a while.

It is a file that says until when, by the clock of the boot that nobody sets. So it ends by itself,
whether or not anything of ours runs then, survives a restart of the minion, and no reboot.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from . import processes
from .files import make_private, remove, text, write_atomic

# Seconds for which jobs may be held, and if nobody says for how long.
MOST, USUAL = 86400.0, 3600.0
_NAME = "drained"


class Drained(NamedTuple):
    """How many seconds are left, and why."""

    left: float
    reason: str


def begin(run_dir: str, seconds: float, reason: str) -> None:
    """Have new jobs held for that long from now on. Raises OSError."""
    make_private(run_dir)
    until = processes.since_boot() + min(seconds, MOST)
    told = {"boot": processes.boot(), "until": until, "reason": reason}
    write_atomic(os.path.join(run_dir, _NAME), json.dumps(told))


def end(run_dir: str) -> bool:
    """Let new jobs start; tell whether they were held. Raises OSError."""
    was = look(run_dir) is not None
    remove(os.path.join(run_dir, _NAME))
    return was


def look(run_dir: str) -> Drained | None:
    """Return what holds new jobs; None if nothing does. An unreadable file holds nothing."""
    path = os.path.join(run_dir, _NAME)
    # Each job asks this on its way in, and an exception costs more than the question.
    if not os.access(path, os.F_OK):
        return None
    try:
        told = json.loads(text(path))
        left = float(told["until"]) - processes.since_boot()
        if told["boot"] == processes.boot() and 0 < left <= MOST:
            return Drained(left, str(told["reason"]))
    except (OSError, ValueError, TypeError, KeyError):
        # No drain may hold jobs forever: it is better lost than without an end.
        return None
    return None
