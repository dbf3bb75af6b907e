"""What one process of a master at a time may do: two would each begin it, with their own limits."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.errors import LockHeldError
from .cache import ROOT
from .store_lock import opened


@contextlib.contextmanager
def alone(opts: Mapping[str, Any], name: str, busy: str) -> Iterator[None]:
    """
    Hold the lock file *name* of this master meanwhile.

    Raises LockHeldError, with the message *busy*, if another process holds it; and CacheError.
    """
    directory = os.path.join(str(opts["cachedir"]), ROOT)
    fd = opened(directory, name)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise LockHeldError(busy) from err
        yield
    finally:
        os.close(fd)
