"""
The lock of Salt's queues: what a state run that puts itself into one does while it has it.

It writes what it was called with, such as a pillar, and Salt has others read that file. Ours put
runs there that go on behind a restart, and it is for nobody else to look into.

While two minions use the queues, the lock may go. A minion that starts removes its file, because
one that was killed may have left it. In a handover, a state run of the minion before may have it at
this moment: Salt would fail that run when it gives the lock back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import salt.utils.state

_NAME = "acquire_queue_lock"
# The attribute of our function that says what it does.
_DONE = "safeupdate"


class _Lock:
    """A lock whose file may be gone when it is given back."""

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
    """A lock under which files are made for nobody else to look into."""

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
    """Have this process, that of a job, write into queues what nobody else can read."""
    _wrap(_Private)


def may_vanish() -> None:
    """Have this process, that of a job, go on if the next minion has removed its lock."""
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
