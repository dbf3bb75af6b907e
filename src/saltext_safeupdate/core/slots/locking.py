"""A lock on a file, for one process at a time; the kernel releases it when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from ..errors import LockHeldError
from ..host.files import open_private

_INTERVAL = 0.05


@contextlib.contextmanager
def alone(
    path: str,
    *,
    timeout: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """
    Hold the lock, which may take *timeout* seconds.

    Raise LockHeldError if another process has it, and OSError if the file cannot be used.
    """
    deadline = monotonic() + timeout
    fd = open_private(path)
    try:
        while not _taken(fd):
            if monotonic() >= deadline:
                raise LockHeldError(
                    f"Another process changes the slots in {os.path.dirname(path)}. Nothing was "
                    "changed; try again when it has ended."
                )
            sleep(_INTERVAL)
        yield
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
