"""
The lock of Salt's queues, while two minions use them.

A minion that starts removes the file of this lock, because one that was killed may have left it.
In a handover, a state run of the minion before may have it at this moment: Salt would fail that run
when it gives the lock back.
"""

from __future__ import annotations

from typing import Any

import salt.utils.state

_NAME = "acquire_queue_lock"


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


def may_vanish() -> None:
    """Have this process, that of a job, go on if the next minion has removed its lock."""
    original = getattr(salt.utils.state, _NAME, None)
    if original is not None:
        setattr(salt.utils.state, _NAME, lambda *args, **kwargs: _Lock(original(*args, **kwargs)))
