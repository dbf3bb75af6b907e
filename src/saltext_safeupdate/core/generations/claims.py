"""Which generation runs which job, while two of them receive the publications of their master."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable

from ..host import processes
from ..record.store import Store
from .generation import Standing

# Seconds after which no process asks about a claim any more.
_KEEP = 3600.0


class Claims:
    """
    Each job is claimed once, even if the ledger does not record it.

    Claims do not count after the next boot, so they need not outlive a power cut.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def claim(self, name: str, process: str, *, again: bool = False) -> bool:
        """
        Claim the job of this *name* for *process*; tell whether it has it now.

        *again*: there may be later jobs of the same name, so a claim ends when its process takes no
        more jobs.
        """
        with self._store.transaction(durable=False) as db:
            db.execute(
                "INSERT OR IGNORE INTO claims (name, process, at) VALUES (?, ?, ?)",
                (name, process, self._clock()),
            )
            row = db.execute("SELECT process FROM claims WHERE name = ?", (name,)).fetchone()
            if again and row[0] != process and not _takes_jobs(db, row[0]):
                db.execute("UPDATE claims SET process = ? WHERE name = ?", (process, name))
                return True
        return bool(row[0] == process)

    def renew(self, names: Iterable[str], process: str) -> None:
        """Write the claims of *process* again, unless another process has claimed the job now."""
        now = self._clock()
        with self._store.transaction(durable=False) as db:
            db.executemany(
                "INSERT OR IGNORE INTO claims (name, process, at) VALUES (?, ?, ?)",
                [(name, process, now) for name in names],
            )

    def forget(self) -> None:
        """Delete claims that are old by any clock."""
        with self._store.transaction(durable=False) as db:
            db.execute("DELETE FROM claims WHERE abs(? - at) > ?", (self._clock(), _KEEP))


def _takes_jobs(db: sqlite3.Connection, process: str) -> bool:
    row = db.execute("SELECT standing FROM generations WHERE process = ?", (process,)).fetchone()
    leaves = row is not None and row[0] in (Standing.LEAVING.value, Standing.GONE.value)
    return not leaves and processes.alive(process)
