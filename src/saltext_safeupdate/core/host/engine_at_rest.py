"""
An engine that rests: its process has ended, and its minion starts it again when there is work.

The lock ``engine`` is free then, and its file says so, and when the minion has last looked for
work. Whether an engine acts for this minion is told by both (:func:`is_there`).
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from . import processes
from .files import text
from .locks import Lock, held

# Seconds since the minion has last looked, after which it does not look any more. It looks every 10
# seconds, as Salt does for engines that have died.
_LOOKS = 45.0
_WORDS = 5
_WORD = "rests"


class Rest(NamedTuple):
    """
    *process* is the minion's main process, *signs* a digest of what would be different with work.

    *since* and *looked* say when it began and when the minion has last looked, in seconds since the
    boot.
    """

    process: str
    signs: str
    since: float
    looked: float

    def write(self, lock: Lock) -> None:
        """Write it into the file of the lock. Raise OSError."""
        words = (_WORD, self.process, self.signs, f"{self.since:.2f}", f"{self.looked:.2f}")
        text = f"{' '.join(words)}\n".encode()
        # Somebody may read it just now.
        os.pwrite(lock.fd, text, 0)
        os.ftruncate(lock.fd, len(text))


def end(lock: Lock) -> None:
    """Note that no engine rests. Raise OSError."""
    if os.fstat(lock.fd).st_size:
        os.ftruncate(lock.fd, 0)


def forget(run_dir: str, process: str) -> None:
    """Remove the note of the minion with this main process, which looks no more. Raise OSError."""
    rest = of(run_dir)
    if rest is not None and rest.process == process:
        with contextlib.closing(Lock(run_dir, "engine")) as lock:
            end(lock)


def of(run_dir: str) -> Rest | None:
    """Return the rest of the engine of a minion that runs; None if it does not rest."""
    words = text(os.path.join(run_dir, "engine.lock")).split()
    if len(words) != _WORDS or words[0] != _WORD:
        return None
    try:
        found = Rest(words[1], words[2], float(words[3]), float(words[4]))
    except ValueError:
        return None
    return found if processes.alive(found.process) else None


def is_there(run_dir: str) -> bool:
    """Tell whether an engine acts, or rests and is started again. Raise LockUnavailableError."""
    # It may begin or end its rest just now.
    return held(run_dir, "engine") or is_looked_after(run_dir) or held(run_dir, "engine")


def is_looked_after(run_dir: str) -> bool:
    """Tell whether an engine rests whose minion looks for work."""
    rest = of(run_dir)
    return rest is not None and -_LOOKS < processes.since_boot() - rest.looked < _LOOKS
