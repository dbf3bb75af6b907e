"""
How long processes had to wait for their host: for a processor, for a disk, or for a hypervisor.

A program that comes up late on a busy host is not a program that hangs. The kernel knows the
difference: one that hangs waits for nothing that the host has.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from . import processes

_PROC = "/proc"
# Indexes behind "cpu" in the first line of /proc/stat: the time that a hypervisor took away.
_STEAL_FIELD = 7
# The index behind the name in /proc/<pid>/stat of the time spent by the process itself; the time
# of the kernel for it comes next.
_USER_FIELD = 11
_WAITS_FOR_DISK = "D"
_NANOSECOND = 1e-9


class HostWait:
    """Tells, each time it is asked, how long a process or one below it has waited since then."""

    def __init__(
        self, proc: str = _PROC, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._monotonic = monotonic
        self._asked: float | None = None
        self._queued: dict[int, float] = {}
        self._steal = (0, 0)

    def __call__(self, pid: int) -> float:
        """
        Return the seconds for which the one that waited most could not go on for the host.

        At most the time that has passed. 0.0 if the kernel does not count it, and the first time.
        """
        now = self._monotonic()
        passed = 0.0 if self._asked is None else now - self._asked
        self._asked = now
        family = _family(pid, self._proc) if pid else []
        queued = {each.pid: self._queue_time(each.pid) for each in family}
        # A process that has begun since then has only waited since then.
        waits = [each - self._queued.get(name, 0.0) for name, each in queued.items()]
        if any(each.state == _WAITS_FOR_DISK for each in family):
            waits.append(passed)
        self._queued = queued
        return min(passed, max([0.0, *waits]) + passed * self._stolen())

    def _queue_time(self, pid: int) -> float:
        """Return how long the process was ready to run and did not."""
        try:
            with open(os.path.join(self._proc, str(pid), "schedstat"), encoding="ascii") as file:
                return int(file.read().split()[1]) * _NANOSECOND
        except (OSError, ValueError, IndexError):
            return 0.0

    def _stolen(self) -> float:
        """Return the share of the time that a hypervisor took away from all processors."""
        try:
            with open(os.path.join(self._proc, "stat"), encoding="ascii") as file:
                counted = [int(word) for word in file.readline().split()[1 : _STEAL_FIELD + 2]]
            now = (counted[_STEAL_FIELD], sum(counted))
        except (OSError, ValueError, IndexError):
            return 0.0
        steal, total = (new - old for new, old in zip(now, self._steal, strict=True))
        first, self._steal = self._steal == (0, 0), now
        return 0.0 if first or total <= 0 else max(0.0, steal / total)


def describe(pid: int, proc: str = _PROC) -> str:
    """Say what a process and those below it have done so far; empty if it is not there."""
    there, family = processes.age(pid), _family(pid, proc)
    if there is None or not family:
        return ""
    used = sum(each.ticks for each in family) / os.sysconf("SC_CLK_TCK")
    return (
        f"Its main process {pid} has run for {there:.0f} s, with {used:.1f} s of processor time "
        f"for it and its {len(family) - 1} children. "
    )


class _Process(NamedTuple):
    pid: int
    state: str
    parent: int
    ticks: int


def _family(pid: int, proc: str) -> list[_Process]:
    """Return a process and all below it that are alive."""
    everyone = [each for each in map(_look, _pids(proc), itertools.repeat(proc)) if each]
    below: dict[int, list[_Process]] = {}
    for each in everyone:
        below.setdefault(each.parent, []).append(each)
    found = [each for each in everyone if each.pid == pid]
    # It grows while it is gone through.
    for each in found:
        found += below.get(each.pid, [])
    return found


def _pids(proc: str) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _look(pid: int, proc: str) -> _Process | None:
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks = int(fields[_USER_FIELD]) + int(fields[_USER_FIELD + 1])
        return _Process(pid, fields[0], int(fields[1]), ticks)
    except (OSError, ValueError, IndexError):
        return None
