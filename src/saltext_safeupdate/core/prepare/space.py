"""Whether the file systems that an update writes to have room for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..host import room

# Files that have to stay free on each file system that is written to.
_FILES = 20_000


class Lack(NamedTuple):
    """What a file system lacks: the code of the finding, what it is, and how to fix it."""

    code: str
    problem: str
    fix: str


def lacking(
    needed: Mapping[str, int],
    *,
    statvfs: Callable[[str], os.statvfs_result],
    device: Callable[[str], int],
    exists: Callable[[str], bool],
) -> Iterator[Lack]:
    """Yield what is lacking. *needed* are bytes by directory."""
    systems: dict[int, dict[str, int]] = {}
    for directory, size in needed.items():
        systems.setdefault(device(_there(directory, exists)), {})[directory] = size
    for places in systems.values():
        wanted, names = sum(places.values()) + room.RESERVE, ", ".join(sorted(places))
        system = statvfs(_there(min(places), exists))
        free = system.f_bavail * system.f_frsize
        if system.f_flag & os.ST_RDONLY:
            yield Lack(
                "read-only",
                f"The file system of {names} is mounted read-only.",
                "Mount it for writing; on a transactional system, update in a transaction.",
            )
        elif free < wanted:
            yield Lack(
                "disk-space",
                f"The file system of {names} has {room.shown(free)} free; the update needs "
                f"{room.shown(wanted)} there.",
                f"Free at least {room.shown(wanted - free)}.",
            )
        elif system.f_files and system.f_favail < _FILES:
            yield Lack(
                "disk-space",
                f"The file system of {names} has room for {system.f_favail} files only; the "
                f"update needs {_FILES}.",
                "Remove files that are not needed.",
            )


def _there(directory: str, exists: Callable[[str], bool]) -> str:
    """Return the directory, or the nearest above it that exists."""
    while not exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory
