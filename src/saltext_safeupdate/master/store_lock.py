"""Locks for what is read and written back in the cache; they hold for the processes of one host."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from ..core.errors import CacheError
from ..core.host.files import make_private, open_private

# What runners and the engine write, and what engines alone do: one does not wait for the other.
RECORDS, ENGINE = "store.lock", "rollouts.lock"


@contextlib.contextmanager
def locked(directory: str, name: str) -> Iterator[None]:
    """Have what is read and written back in here changed by nobody else of this master."""
    path = os.path.join(directory, name)
    try:
        make_private(directory)
        fd = open_private(path)
    except OSError as err:
        raise CacheError(
            f"{path} cannot be opened ({err}), so nothing was stored. See that the user of the "
            "master may write to its 'cachedir'."
        ) from err
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
