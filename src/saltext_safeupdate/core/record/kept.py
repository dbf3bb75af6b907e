"""
One connection for the transactions that follow one another when a job comes in or goes out.

To open a database takes longer than a small transaction. A thread keeps its connection from
:func:`begin` to :func:`end`, and only as long as no code runs between them but Salt's and ours. A
connection must never get into a child (https://sqlite.org/howtocorrupt.html, 2.6): if the thread
forks nevertheless, the connection is closed before.
"""

from __future__ import annotations

import os
import sqlite3
import threading

# Names the file that is under a path: the path, the device and the inode.
Which = tuple[str, int, int]


class _OfThread(threading.local):
    keeps = False
    held: tuple[Which, sqlite3.Connection] | None = None


_thread = _OfThread()


def begin() -> None:
    """Keep the connection that this thread uses next."""
    _thread.keeps = True


def end() -> None:
    """Close what this thread has kept, and keep nothing more."""
    _thread.keeps = False
    _close()


def which(path: str) -> Which | None:
    """Name the file for which this thread keeps a connection; None if it keeps none."""
    if not _thread.keeps:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_dev, found.st_ino


def take(wanted: Which | None) -> sqlite3.Connection | None:
    """Return the connection that is kept for this file; None if a new one has to be opened."""
    if wanted is None or _thread.held is None:
        return None
    (known, db), _thread.held = _thread.held, None
    if known == wanted:
        return db
    # Somebody has moved the file away.
    db.close()
    return None


def give_back(known: Which | None, db: sqlite3.Connection) -> None:
    """Keep the connection if this thread keeps one, and close it if not."""
    if known is None or not _thread.keeps or _thread.held is not None:
        db.close()
    else:
        _thread.held = (known, db)


def _close() -> None:
    held, _thread.held = _thread.held, None
    if held is not None:
        held[1].close()


os.register_at_fork(before=_close)
