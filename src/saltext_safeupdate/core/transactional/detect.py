"""Is this a transactional system, is this process in a transaction, who holds the lock?"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from ..errors import CommandError
from ..host import processes
from ..host.command import Run
from .roots import GET_READ_ONLY, MOUNTINFO, QUERY_TIMEOUT, running_root

TOOL = "transactional-update"
PID_FILE = Path("/run/transactional-update.pid")
TUKIT_LOCK = Path("/run/tukit.lock")
# struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def transactional(
    run: Run,
    *,
    mountinfo: Path = MOUNTINFO,
    which: Callable[[str], str | None] = shutil.which,
) -> bool:
    """Return whether the tool is installed and the root is a read-only btrfs snapshot."""
    if not which(TOOL) or running_root(mountinfo.read_text(encoding="utf-8")) is None:
        return False
    try:
        answer = run(GET_READ_ONLY, timeout=QUERY_TIMEOUT)
    except CommandError:
        return False  # btrfs-progs is missing: the tool cannot work either
    return answer.stdout.strip() == "ro=true"


def lock_holder(pid_file: Path = PID_FILE, tukit_lock: Path = TUKIT_LOCK) -> int | None:
    """Return the pid of the process that keeps the tool busy, or ``None``."""
    return _live_pid(pid_file) or _lock_pid(tukit_lock)


def _live_pid(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    if not re.fullmatch(r"[1-9]\d{0,9}", text):
        return None
    try:
        os.kill(int(text), 0)
    except ProcessLookupError:
        return None  # the tool itself replaces such a file
    except PermissionError:
        pass
    # A killed process holds nothing, even if its parent has not collected it yet.
    return int(text) if processes.start_time(int(text)) else None


def _lock_pid(path: Path) -> int | None:
    """Ask for the lock's holder without taking it: tukit would fail on that."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)
