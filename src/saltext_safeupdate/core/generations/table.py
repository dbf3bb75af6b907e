"""The table of the generations. Every write is on disk when the call returns."""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import replace
from typing import Any

from ..errors import SafeUpdateError, UnreadableError
from ..host import processes
from ..record import typed
from ..record.store import Store
from .generation import Generation, Probe, Report, Standing

log = logging.getLogger(__name__)

# How many earlier minions may have jobs at the same time: each uses the memory of a minion.
MOST = 5
# How many generations that are gone are remembered, for the jobs that they left.
_KEEP = 20
# The standings in which a generation next to an earlier one claims the jobs that it runs.
_CLAIMING = (Standing.STARTING, Standing.SERVING, Standing.OVERLAPPING)
_COLUMNS = ("process", "standing", "report", "masters", "probe", "refused", "idle", "changed")


class Generations:
    """The generations of the minion with this database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # -- reading ---------------------------------------------------------------

    def serving(self) -> Generation | None:
        """
        Return the generation that has reported last, or None.

        In a handover this is the earlier one, until the next one has reported.
        """
        found = self._one("standing = ?", Standing.SERVING.value)
        return found or self._one("standing = ?", Standing.OVERLAPPING.value)

    def report(self) -> Report | None:
        """Return the last report. May raise UnreadableError."""
        found = self.serving()
        return None if found is None else found.report

    def of(self, process: str) -> Generation | None:
        """Return the generation with that main process."""
        return self._one("process = ?", process)

    def before(self, process: str) -> str | None:
        """Return the process of the last generation before this one that has served."""
        with self._store.connection() as db:
            row = _before(db, process)
        return None if row is None else str(row[0])

    def follows_overlapping(self, process: str) -> bool:
        """Tell whether the one before took jobs until this one was ready."""
        found = self.of(process)
        report = found.report if found else None
        if report is not None:
            return report.follows
        with self._store.connection() as db:
            return _is_handed_over(_before(db, process))

    def overlapping(self) -> list[str]:
        """Return the processes that are handed over and still take jobs."""
        return self._alive(Standing.OVERLAPPING)

    def leaving(self) -> list[str]:
        """Return the processes that take no more jobs and still have some."""
        return self._alive(Standing.LEAVING)

    def beside_earlier(self) -> Report | None:
        """
        Return the report of the generation that serves, if an earlier one is there, too.

        A job may run in either, and what it knows of itself is no answer for the minion then.
        """
        if not self.overlapping() and not self.leaving():
            return None
        serving = self.serving()
        if serving is None or not processes.alive(serving.process):
            return None
        return serving.report

    def successors(self, process: str) -> list[str]:
        """Return the processes that have begun after this one, and claim the jobs that they run."""
        with self._store.connection() as db:
            rows = db.execute(
                "SELECT process FROM generations WHERE standing IN (?, ?, ?) AND rowid > "
                "(SELECT rowid FROM generations WHERE process = ?)",
                (*(each.value for each in _CLAIMING), process),
            ).fetchall()
        return [name for (name,) in rows if processes.alive(name)]

    def with_own_tree(self) -> list[str]:
        """
        Return the running processes if each of them reads its own tree, the newest last.

        Empty if one of them does not, or the newest cannot be handed over or is just being handed
        over: then the next one may read the code at this moment.
        """
        if not self._store.exists():
            return []
        with self._store.connection() as db:
            rows = db.execute(
                "SELECT process, standing, report FROM generations WHERE standing != ? "
                "ORDER BY rowid",
                (Standing.GONE.value,),
            ).fetchall()
        rows = [row for row in rows if processes.alive(row[0])]
        if not rows or rows[-1][1] == Standing.OVERLAPPING.value:
            return []
        reports = [_report(text) for _, _, text in rows]
        newest = reports[-1]
        if newest is None or not newest.hands_over:
            return []
        whole = all(each is not None and each.own_tree for each in reports)
        return [name for name, _, _ in rows] if whole else []

    def with_jobs(self) -> list[str]:
        """Return the processes that take no more jobs and have some; others end within seconds."""
        return [each for each in self.leaving() if processes.has_children(processes.pid(each))]

    def crowded(self) -> str:
        """Return why one more generation may not stay next to the next one; empty if it may."""
        try:
            earlier = len(self.overlapping()) + len(self.with_jobs())
        except SafeUpdateError as err:
            return str(err)
        if earlier < MOST:
            return ""
        return f"{earlier} earlier minions still have jobs, and no more may stay"

    def _alive(self, standing: Standing) -> list[str]:
        if not self._store.exists():
            return []
        with self._store.connection() as db:
            rows = db.execute(
                "SELECT process FROM generations WHERE standing = ?", (standing.value,)
            ).fetchall()
        return [name for (name,) in rows if processes.alive(name)]

    def is_refused(self, jid: str) -> bool:
        """Tell whether it is known that the master could not store the return of that probe."""
        found = self.serving()
        try:
            return found is not None and found.refused == jid
        except UnreadableError as err:
            # Then the supervisor waits for the return, as for any other that does not arrive.
            log.warning("%s", err)
            return False

    def _one(self, where: str, value: str) -> Generation | None:
        if not self._store.exists():
            return None
        with self._store.connection() as db:
            row = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM generations WHERE {where} "
                "ORDER BY rowid DESC LIMIT 1",
                (value,),
            ).fetchone()
        if row is None:
            return None
        said = dict(zip(_COLUMNS, row, strict=True))
        return Generation(str(said.pop("process")), said)

    # -- notes by a generation -------------------------------------------------

    def reports(self, process: str, report: Report, *, rested: bool = False) -> bool:
        """
        Note that the engine of a generation has begun its work: this one serves now.

        Tell whether it is the first engine of that generation. If Salt has restarted the engine in
        the same minion, ``took`` keeps the value of the first report.
        If that engine *rested*, its report stays as it is.
        """
        with self._store.transaction() as db:
            row = db.execute(
                "SELECT report FROM generations WHERE process = ?", (process,)
            ).fetchone()
            before = _report(row[0]) if row else None
            if before is not None and rested:
                return False
            if before is not None:
                report = replace(report, took=before.took, follows=before.follows)
            else:
                report = replace(report, follows=_is_handed_over(_before(db, process)))
            stay = _staying(db, process)
            db.execute(
                "UPDATE generations SET standing = ? "
                f"WHERE process NOT IN ({', '.join('?' * len(stay))})",
                (Standing.GONE.value, *stay),
            )
            _write(db, process, standing=Standing.SERVING.value, report=report)
            db.execute(
                "DELETE FROM generations WHERE standing = ? AND process NOT IN (SELECT process "
                "FROM generations ORDER BY rowid DESC LIMIT ?)",
                (Standing.GONE.value, _KEEP),
            )
        return before is None

    def begins(self, process: str) -> None:
        """Note that it works next to an earlier one, and claims the jobs it runs. Idempotent."""
        with self._store.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO generations (process, standing) VALUES (?, ?)",
                (process, Standing.STARTING.value),
            )

    def stands(self, process: str, standing: Standing) -> None:
        """Note the standing of a generation on its way out, or that it serves again."""
        with self._store.transaction() as db:
            _write(db, process, standing=standing.value)

    def notes_masters(self, process: str, masters: tuple[tuple[str, bool], ...]) -> None:
        """Note the masters that the main process works for."""
        with self._store.transaction() as db:
            _write(db, process, masters=masters)

    def notes_changed(self, process: str, what: str) -> None:
        """Note that the code that it runs from was replaced on the disk."""
        with self._store.transaction() as db:
            _write(db, process, changed=what)

    # -- requests to a generation ----------------------------------------------

    def ask(self, process: str, probe: Probe) -> None:
        """Give the job to the engine of that generation, and of no other."""
        with self._store.transaction() as db:
            _write(db, process, probe=probe)

    def refuse(self, process: str, jid: str) -> None:
        """Note that the master was reachable and could not store the return of that probe."""
        with self._store.transaction() as db:
            _write(db, process, refused=jid)

    def note_idle(self, process: str, but: str) -> None:
        """Note that no job of it runs any more, except perhaps the one with the JID *but*."""
        with self._store.transaction() as db:
            _write(db, process, idle=but)

    def note_busy(self, process: str) -> None:
        """Note that it may get jobs again."""
        with self._store.transaction() as db:
            _write(db, process, idle=None)


def _write(db: sqlite3.Connection, process: str, *, standing: str = "", **columns: Any) -> None:
    db.execute(
        "INSERT OR IGNORE INTO generations (process, standing) VALUES (?, ?)",
        (process, standing or Standing.STARTING.value),
    )
    values: dict[str, Any] = {}
    for name, value in columns.items():
        values[name] = json.dumps(typed.plain(value))
    values |= {"standing": standing} if standing else {}
    db.execute(
        f"UPDATE generations SET {', '.join(f'{name} = ?' for name in values)} WHERE process = ?",
        (*values.values(), process),
    )


def _before(db: sqlite3.Connection, process: str) -> tuple[str, str] | None:
    """Return process and standing of the last generation but this one that has served."""
    found: tuple[str, str] | None = db.execute(
        "SELECT process, standing FROM generations WHERE process != ? AND standing != ? "
        "ORDER BY rowid DESC LIMIT 1",
        (process, Standing.STARTING.value),
    ).fetchone()
    return found


def _is_handed_over(before: tuple[str, str] | None) -> bool:
    handed_over = (Standing.OVERLAPPING.value, Standing.LEAVING.value)
    return before is not None and before[1] in handed_over


def _staying(db: sqlite3.Connection, process: str) -> list[str]:
    """Return this process, and the ones that are handed over and have not ended."""
    rows = db.execute(
        "SELECT process FROM generations WHERE standing IN (?, ?)",
        (Standing.OVERLAPPING.value, Standing.LEAVING.value),
    ).fetchall()
    return [process, *(name for (name,) in rows if processes.alive(name))]


def _report(text: str) -> Report | None:
    """Return a report that is about to be replaced; None if it cannot be read."""
    try:
        found: Report | None = typed.read(Report | None, json.loads(text))
    except (TypeError, ValueError):
        return None
    return found
