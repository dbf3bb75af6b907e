"""Telling our own processes from strangers: a pid counts only with its start time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

Identity = tuple[int, int]


def start_time(pid: int) -> int | None:
    """Return when *pid* started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def identity(pid: int) -> Identity:
    return pid, start_time(pid) or 0


def alive(who: Identity) -> bool:
    return start_time(who[0]) == who[1]


def kill(who: Identity, sig: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process if it is still the one that was recorded."""
    if alive(who):
        with contextlib.suppress(ProcessLookupError):
            os.kill(who[0], sig)


def wait_gone(who: Identity, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while alive(who):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def first_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def arguments(pid: int) -> list[str]:
    """Return the words that a process was started with; none of one that is gone."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return []
    return text.split("\0")[:-1]


def sharing_netns(path: str) -> list[Identity]:
    """Return the processes whose network namespace is the one at *path*."""
    try:
        wanted = os.stat(path)
    except OSError:
        return []
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            seen = os.stat(f"/proc/{entry.name}/ns/net")
        except OSError:
            continue
        if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
            found.append(identity(int(entry.name)))
    return found


def with_environment(setting: str) -> list[Identity]:
    """Return the processes that were started with *setting* (``NAME=value``)."""
    wanted = setting.encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment:
            found.append(identity(int(entry.name)))
    return found


def holders(lock: Path) -> list[int]:
    """Return the PIDs of the processes that hold a lock on the file."""
    found = lock.stat()
    # Other file systems have files of the same number.
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    rows = map(str.split, Path("/proc/locks").read_text().splitlines())
    # The lines of who waits have an arrow before the kind.
    return [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == file]


def free_memory() -> int:
    """Return how many bytes programs could have without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, size, *_ = line.split()
        if name == "MemAvailable:":
            return int(size) * 1024
    return 0
