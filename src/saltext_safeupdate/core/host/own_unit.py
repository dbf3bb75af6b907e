"""The systemd unit that this process belongs to, if that is a minion's."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

from . import files, processes

_UNIT = re.compile(r"/([^/]+)\.service$")
_PROGRAM = "salt-minion"
# A minion that a job of these has started is in their unit.
_OTHERS = ("master", "syndic", "api", "proxy")


@functools.cache
def name() -> str:
    """
    Return the unit of the minion that this process is or belongs to; empty if that is not known.

    It is not known without systemd, for a minion that was not started by its unit, and for a
    unit that does not have "salt" in its name. A child process has the answer of its parent.
    """
    return of_processes([os.getpid(), *processes.ancestors()])


def of_processes(pids: Iterable[int], proc: str = "/proc") -> str:
    """Return it for a process and its ancestors."""
    unit = ""
    for pid in pids:
        here = _unit(files.text(f"{proc}/{pid}/cgroup"))
        if not here or (unit and here != unit):
            break
        unit = here
        words = files.text(f"{proc}/{pid}/cmdline").split("\0")
        if any(_PROGRAM in os.path.basename(word) for word in words):
            return unit
    return ""


def _unit(cgroups: str) -> str:
    for line in cgroups.splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        found = _UNIT.search(path)
        if (number == "0" or controllers == "name=systemd") and found:
            unit = found[1]
            known = "salt" in unit.lower() and not any(word in unit.lower() for word in _OTHERS)
            # The manager of a user's own services is not the one that we talk to.
            return unit if known and "/user.slice/" not in path else ""
    return ""
