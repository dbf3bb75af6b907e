"""Whether a package manager is at work, seen without taking any of its locks."""

from __future__ import annotations

import os
from collections.abc import Iterable

_LOCKS = "/proc/locks"


def lock_taken(paths: Iterable[str], table: str = _LOCKS) -> bool:
    """Tell whether a process has a POSIX lock on one of the files."""
    inodes = set()
    for path in paths:
        try:
            inodes.add(str(os.stat(path).st_ino))
        except OSError:
            continue
    try:
        with open(table, encoding="ascii", errors="replace") as file:
            return any(_inode(line) in inodes for line in file)
    except OSError:
        return False


def _inode(line: str) -> str:
    """Return the inode of a line of ``/proc/locks``; empty if the process only waits."""
    fields = line.split()
    if len(fields) < 6 or fields[1] not in ("POSIX", "OFDLCK") or fields[3] != "WRITE":
        return ""
    return fields[5].rpartition(":")[2]


def process_runs(pid_files: Iterable[str], proc: str = "/proc") -> bool:
    """Tell whether a process whose PID is in one of the files still runs."""
    for path in pid_files:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                pid = file.read().strip()
        except OSError:
            continue
        if pid.isdigit() and os.path.exists(os.path.join(proc, pid)):
            return True
    return False
