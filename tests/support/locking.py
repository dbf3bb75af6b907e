"""The locks of a minion, as another process finds them."""

from __future__ import annotations

from saltext_safeupdate.core.host.locks import Lock


def is_free(run_dir: str, name: str) -> bool:
    """Tell whether no process has the lock, or a share of it."""
    lock = Lock(run_dir, name)
    try:
        return lock.try_exclusive()
    finally:
        lock.close()
