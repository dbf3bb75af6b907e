"""
The lock of Salt's queues, and how a state run puts itself into one while it holds the lock.

Such a run writes its arguments, such as a pillar, into a file that Salt lets others read. Our runs
that continue after a restart go there, too, and nobody else should read them.

While two minions use the queues, the lock may disappear. A minion that starts removes its file,
because a killed minion may have left it. In a handover, a state run of the former minion may hold
it at this moment: Salt would make that run fail when it releases the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import salt.utils.state

_NAME = "acquire_queue_lock"
# The attribute of our function that lists its wrappers.
_DONE = "safeupdate"


class _Lock:
    """A lock whose file may be gone when it is released."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *raised: Any) -> Any:
        try:
            return self._lock.__exit__(*raised)
        except FileNotFoundError:
            return False


class _Private:
    """A lock under which files are made that nobody else can read."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._umask = 0

    def __enter__(self) -> Any:
        value = self._lock.__enter__()
        self._umask = os.umask(0o077)
        return value

    def __exit__(self, *raised: Any) -> Any:
        os.umask(self._umask)
        return self._lock.__exit__(*raised)


def keep_private() -> None:
    """Make this process, the process of a job, write files into queues that only it can read."""
    _wrap(_Private)


def may_vanish() -> None:
    """Make this process, the process of a job, continue if its lock was removed."""
    _wrap(_Lock)


def _wrap(wrapper: Callable[[Any], Any]) -> None:
    original = getattr(salt.utils.state, _NAME, None)
    done = getattr(original, _DONE, ())
    if original is None or wrapper in done:
        return

    def acquire(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original(*args, **kwargs))

    setattr(acquire, _DONE, (*done, wrapper))
    setattr(salt.utils.state, _NAME, acquire)
