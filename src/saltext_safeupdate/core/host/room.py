"""Room on file systems: what has to stay free, how much is, and whether it can be used."""

from __future__ import annotations

import os
from collections.abc import Callable

# Bytes that have to stay free: jobs that run meanwhile have to be recorded, and Salt writes a file
# for each of them.
RESERVE = 32 << 20
# Every package of Salt has files in there.
PROGRAMS = "/usr"

Statvfs = Callable[[str], os.statvfs_result]


def free(directory: str, statvfs: Statvfs = os.statvfs) -> int:
    """Return how many bytes are free for everybody where a directory is, or is to be made."""
    while not os.path.exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    system = statvfs(directory)
    return system.f_bavail * system.f_frsize


def is_read_only(directory: str, statvfs: Statvfs = os.statvfs) -> bool:
    """Tell whether the file system of a directory is mounted without a way to write to it."""
    return bool(statvfs(directory).f_flag & os.ST_RDONLY)


def size(directory: str) -> int:
    """Return how many bytes the files below a directory take; 0 if it is not there."""
    return sum(
        os.lstat(os.path.join(place, name)).st_blocks * 512
        for place, _, names in os.walk(directory)
        for name in names
    )


def shortage(
    directory: str, wanted: int, *, having: str = "", statvfs: Statvfs = os.statvfs
) -> str:
    """
    Say that a directory has no room for that many bytes and the reserve; empty if it has.

    What is below the directory *having* counts as free: it is part of them, or makes room.
    """
    found = free(directory, statvfs) + (size(having) if having else 0)
    wanted += RESERVE
    if found >= wanted:
        return ""
    return (
        f"the file system of {directory} has {shown(found)} free, and {shown(wanted)} are needed. "
        f"Free {shown(wanted - found)}"
    )


def shown(count: int) -> str:
    return f"{max(1, count >> 20)} MiB"
