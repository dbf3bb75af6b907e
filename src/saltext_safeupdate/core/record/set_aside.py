"""
Databases that could not be read: what is left of them.

They are kept to be looked at, not to be used. Arguments and returns of jobs are wiped as far as
SQLite can still find them, and few such files are kept.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3

# Files that are kept, the newest first, and the bytes of one of them.
KEPT = 3
LARGEST = 64 << 20
_SUFFIXES = ("", "-wal", "-shm")
# In the database of a minion, and in the account of a master.
_CONTENTS = ("contents", "chunks", "loads", "calls", "answers")


def tidy(pattern: str) -> None:
    """Wipe and bound what was set aside; the names that match *pattern* sort by age."""
    found = sorted(name for name in glob.glob(pattern) if not name.endswith(_SUFFIXES[1:]))
    for path in found[:-KEPT]:
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + suffix)
    for path in found[-1:]:
        _wipe(path)
    for path in found[-KEPT:]:
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(path + suffix, 0o600)
                if os.path.getsize(path + suffix) > LARGEST:
                    os.truncate(path + suffix, LARGEST)


def _wipe(path: str) -> None:
    """Overwrite what is secret, also in the write-ahead log."""
    for table in _CONTENTS:
        # Each by itself: the other one may be what is broken.
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db,
        ):
            db.execute("PRAGMA secure_delete = ON")
            db.execute(f"DELETE FROM {table}")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
