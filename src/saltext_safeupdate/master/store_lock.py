"""Locks for what is read and written back in the cache; they hold for the processes of one host."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from ..core.errors import CacheError
from ..core.host import rights
from ..core.host.files import make_private, open_private

# What runners and the engine write, and what engines alone do: one does not wait for the other.
RECORDS, ENGINE = "store.lock", "rollouts.lock"


@contextlib.contextmanager
def locked(directory: str, name: str) -> Iterator[None]:
    """Have what is read and written back in here changed by nobody else of this master."""
    fd = opened(directory, name)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def opened(directory: str, name: str) -> int:
    """Open the file of a lock, and make it if need be. Raises CacheError."""
    path = os.path.join(directory, name)
    try:
        make_private(directory)
        return open_private(path)
    except OSError as err:
        raise CacheError(
            f"{path} cannot be opened ({err}), so nothing was stored. See that the user "
            f"{rights.user()} may write to the 'cachedir' of the master."
        ) from err
