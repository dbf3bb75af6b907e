"""
The durable account of the jobs that masters have published to this minion.

A job is ``accepted`` before anything runs, ``running`` in the job's own process, ``finished`` with
its return before that is sent, and ``delivered`` when the master has it. ``held`` jobs are in one
of Salt's queues. Publication and return are wiped with the delivery. The rest of the row stays for
a while, so that a job which is published again is recognised.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DamagedError
from ..host import processes
from ..record.database import Database
from . import jids as job_ids
from . import packing
from .job import Job, State, of_row

__all__ = ["KEEP_DELIVERED", "UNKNOWN", "Job", "Ledger", "State"]

# How many delivered jobs are remembered, so that they are not run again.
KEEP_DELIVERED = 20_000
# The answer of the ledger for a job if it cannot know whether the job was accepted.
UNKNOWN = "unknown"
# The fact since when it has every job, and how many seconds younger than that a job has to be.
_FROM = "recorded_from"
_MARGIN = 5.0


_FIELDS = ", ".join(f"jobs.{name}" for name in Job._fields[:-2])
_FULL = f"SELECT {_FIELDS}, call, payload FROM jobs LEFT JOIN contents USING (key)"
_BARE = f"SELECT {_FIELDS}, NULL, NULL FROM jobs"


class Ledger(Database):
    """
    Every write tells whether it found the job in the expected state.

    *uptime* returns the seconds since the boot, which no setting of the clock changes.
    """

    def __init__(
        self, path: str, *, uptime: Callable[[], float] = processes.since_boot, **options: Any
    ) -> None:
        super().__init__(path, **options)
        self._uptime = uptime

    # -- on the way in ---------------------------------------------------------

    def accept(
        self,
        key: str,
        *,
        jid: str,
        fun: str,
        master: str,
        call: bytes,
        owner: str,
        over: Sequence[State] = (),
    ) -> State | None:
        """
        Record a job before it starts; return None if it may start.

        A job that is known must not run again: its state is returned. *over* are the states in
        which it starts nevertheless: a held one waits for this very call. The next durable write,
        in :meth:`begin`, makes the record durable.
        """
        with self.transaction(durable=False) as db:
            now = self._clock()
            done = db.execute(
                "INSERT INTO jobs (key, jid, fun, master, state, owner, accepted, changed, "
                "attempts) VALUES (?, ?, ?, ?, 'accepted', ?, ?, ?, 0) "
                "ON CONFLICT (key) DO UPDATE SET state = 'accepted', owner = excluded.owner, "
                "runner = '', changed = excluded.changed "
                # A suspended job starts when the engine has taken it.
                f"WHERE state IN ({', '.join('?' * len(over))}) AND awaits = ''",
                (key, jid, fun, master, owner, now, now, *(state.value for state in over)),
            )
            if done.rowcount:
                # Keep the first publication: a queue may have changed it.
                db.execute("INSERT OR IGNORE INTO contents (key, call) VALUES (?, ?)", (key, call))
                return None
            row = db.execute("SELECT state FROM jobs WHERE key = ?", (key,)).fetchone()
            # An undelivered return is sent when the database has changed.
            db.execute("UPDATE jobs SET changed = ? WHERE key = ?", (now, key))
        return _state(row[0])

    def hold(
        self, key: str, *, jid: str, fun: str, master: str, call: bytes, owner: str
    ) -> State | None:
        """Record that a job is in a queue; return its state if it is known already."""
        with self.transaction() as db:
            now = self._clock()
            done = db.execute(
                "INSERT OR IGNORE INTO jobs (key, jid, fun, master, state, owner, accepted, "
                "changed, attempts) VALUES (?, ?, ?, ?, 'held', ?, ?, ?, 0)",
                (key, jid, fun, master, owner, now, now),
            )
            if done.rowcount:
                db.execute("INSERT INTO contents (key, call) VALUES (?, ?)", (key, call))
                return None
            row = db.execute("SELECT state FROM jobs WHERE key = ?", (key,)).fetchone()
        return _state(row[0])

    def put_back(self, key: str, runner: str) -> bool:
        """
        Record that a job of *runner* (empty: of none yet) was put into a queue after all.

        It has only waited, so its start does not count.
        """
        with self.transaction() as db:
            return bool(
                db.execute(
                    "UPDATE jobs SET state = 'held', runner = '', changed = ?, "
                    "attempts = attempts - (state = 'running') "
                    "WHERE key = ? AND runner = ? AND state IN ('accepted', 'running')",
                    (self._clock(), key, runner),
                ).rowcount
            )

    def take(self, job: Job, owner: str) -> bool:
        """Hold a job that no process runs any more; return False if one does meanwhile."""
        with self.transaction() as db:
            return bool(
                db.execute(
                    "UPDATE jobs SET state = 'held', owner = ?, runner = '', awaits = '', "
                    "changed = ? "
                    "WHERE key = ? AND state = ? AND owner = ? AND runner = ? AND awaits = ? "
                    "AND state NOT IN ('finished', 'delivered')",
                    (
                        *(owner, self._clock(), job.key),
                        *(job.state.value, job.owner, job.runner, job.awaits),
                    ),
                ).rowcount
            )

    def begin(self, key: str, runner: str, *, says: bool = False) -> int:
        """
        Record that the job's own process starts it; return the number of the attempt, or 0.

        It is at least the second attempt if states of it are recorded. If the process *says* when
        it begins the function, by :meth:`begin_function`, that call makes the record durable.
        """
        with self.transaction(durable=not says) as db:
            done = db.execute(
                "UPDATE jobs SET state = 'running', runner = ?, unbegun = ?, awaits = '', "
                "changed = ?, attempts = attempts + 1 WHERE key = ? AND state = 'accepted'",
                (runner, int(says), self._clock(), key),
            )
            if not done.rowcount:
                return 0
            row = db.execute(
                "SELECT max(attempts, 1 + EXISTS (SELECT 1 FROM chunks WHERE key = jobs.key)) "
                "FROM jobs WHERE key = ?",
                (key,),
            ).fetchone()
        return int(row[0])

    def begin_function(self, key: str) -> None:
        """Record that the function of a job begins now: it must not run twice from here on."""
        with self.transaction() as db:
            db.execute("UPDATE jobs SET unbegun = 0 WHERE key = ?", (key,))

    # -- on the way out --------------------------------------------------------

    def finish(self, key: str, payload: bytes, retcode: int = 0) -> bool:
        """Store the return of a known job, before any process tries to send it."""
        payload = packing.packed(payload)
        with self.transaction() as db:
            done = db.execute(
                "UPDATE jobs SET state = 'finished', changed = ?, retcode = ? "
                "WHERE key = ? AND state NOT IN ('finished', 'delivered')",
                (self._clock(), retcode, key),
            ).rowcount
            if done:
                db.execute(
                    "INSERT OR REPLACE INTO contents (key, payload) VALUES (?, ?)", (key, payload)
                )
            db.execute("DELETE FROM chunks WHERE key = ?", (key,))
        return bool(done)

    def add_undelivered(self, key: str, *, jid: str, fun: str, master: str, payload: bytes) -> None:
        """Store an undelivered return whose job is not recorded."""
        with self.transaction() as db:
            now = self._clock()
            db.execute(
                "INSERT OR REPLACE INTO jobs (key, jid, fun, master, state, accepted, changed, "
                "attempts) VALUES (?, ?, ?, ?, 'finished', ?, ?, 1)",
                (key, jid, fun, master, now, now),
            )
            db.execute(
                "INSERT OR REPLACE INTO contents (key, payload) VALUES (?, ?)",
                (key, packing.packed(payload)),
            )

    def delivered(self, key: str) -> bool:
        """Record that the master has the return, and wipe publication and return."""
        return self._wipe(key, durable=False)

    def sent(self, key: str) -> None:
        """Count an attempt to send a return."""
        with self.transaction(durable=False) as db:
            db.execute("UPDATE jobs SET sends = sends + 1 WHERE key = ?", (key,))

    def forget(self, key: str) -> bool:
        """Delete publication and return; the job stays known as ended."""
        return self._wipe(key, durable=True)

    # -- finished states of a run ----------------------------------------------

    def add_chunk(
        self, key: str, tag: str, digest: str, result: bytes, *, durable: bool = False
    ) -> None:
        """Store the result of a state. It outlives the process; a power cut may take it."""
        with self.transaction(durable=durable) as db:
            db.execute(
                "INSERT OR REPLACE INTO chunks (key, tag, digest, result) VALUES (?, ?, ?, ?)",
                (key, tag, digest, result),
            )

    def chunks(self, key: str) -> dict[str, tuple[str, bytes]]:
        """Return the digest and the result of each state that an earlier attempt finished."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT tag, digest, result FROM chunks WHERE key = ?", (key,)
            ).fetchall()
        return {tag: (digest, result) for tag, digest, result in rows}

    # -- looking ---------------------------------------------------------------

    def find(self, jid: str) -> list[Job]:
        """Return the rows of a JID, without publications and returns."""
        return self._select(f"{_BARE} WHERE jid = ?", (jid,))

    def outcome(self, jid: str) -> tuple[State, int] | None:
        """Return the state of a job and the code it returned; None if unknown."""
        with self.connection() as db:
            row = db.execute("SELECT state, retcode FROM jobs WHERE jid = ?", (jid,)).fetchone()
        # A job with an unreadable row is known nevertheless.
        with contextlib.suppress(ValueError, TypeError):
            return None if row is None else (State(row[0]), int(row[1]))
        return State.RUNNING, 0

    def open(self) -> list[Job]:
        """Return the jobs that have not been delivered, oldest first, without the contents."""
        return self._select(f"{_BARE} WHERE state != 'delivered' ORDER BY accepted", ())

    def full(self, key: str) -> Job | None:
        """Return a job with its contents; None if unknown. May raise DamagedError."""
        found = self._select(f"{_FULL} WHERE jobs.key = ?", (key,))
        if not found:
            return None
        return found[0]._replace(payload=packing.unpacked(found[0].payload))

    def owed(self) -> list[str]:
        """
        Name the jobs that would be lost without this record, if no minion runs with it.

        A held job is in a queue of Salt's, which plain Salt processes as well.
        """
        said = {State.FINISHED: "its return is not delivered", State.HELD: ""}
        waits = {True: "it waits for a restart", False: ""}
        named = [
            (job, waits[bool(job.awaits)] or said.get(job.state, "it was interrupted"))
            for job in self.open()
        ]
        return [f"job {job.jid} ({job.fun}): {why}" for job, why in named if why]

    def undelivered(self) -> list[Job]:
        """Return the jobs with an undelivered return, oldest first, without the contents."""
        return self._select(f"{_BARE} WHERE state = 'finished' ORDER BY accepted", ())

    def known(self, jids: list[str], *, ahead: float = 0.0, blind: bool = False) -> dict[str, str]:
        """
        Return the state of each job, or that it is unknown. A job that is left out was not
        accepted.

        A job is left out only if it is younger than the record of all jobs. *ahead* is by how many
        seconds the clock of the master that made the JIDs may be ahead of ours. *blind*: jobs have
        run without a record. Raise RecordError, also if nothing can be written now: then jobs are
        not recorded.
        """
        found: dict[str, str] = {}
        with self.transaction(durable=False) as db:
            # A transaction alone may begin even if nothing can be written.
            db.execute("DELETE FROM jobs WHERE 0")
            begin = None if blind else self._recorded_from(db)
            for jid in jids:
                made = job_ids.made_at(jid)
                if begin is None or made is None or made - max(ahead, 0.0) < begin + _MARGIN:
                    found[jid] = UNKNOWN
                for (state,) in db.execute("SELECT state FROM jobs WHERE jid = ?", (jid,)):
                    found[jid] = state
        return found

    # -- what the ledger can know ----------------------------------------------

    def record_from_now(self) -> None:
        """Note that from now on every job is recorded, unless that was noted before."""
        with self.transaction() as db:
            if self._recorded_from(db) is None:
                self._record_from(db, self._clock(), processes.boot(), self._uptime())

    def record_anew(self, last: float | None) -> None:
        """
        Note that jobs ran without a record, the last when this boot was *last* seconds old.

        If *last* is None, that time is unknown, and the record of all jobs begins now.
        """
        with self.transaction() as db:
            passed, begin = 0.0, self._recorded_from(db)
            if last is not None and begin is not None:
                passed = max(0.0, self._uptime() - last)
            at = self._clock() - passed
            # An unknown time before that stays unknown.
            if begin is None or begin < at:
                self._record_from(db, at, processes.boot(), self._uptime() - passed)

    def record_no_more(self) -> None:
        """Note that jobs run without a record."""
        with self.transaction() as db:
            db.execute("DELETE FROM facts WHERE name = ?", (_FROM,))

    def _record_from(
        self, db: sqlite3.Connection, at: float, boot: str = "", uptime: float = 0.0
    ) -> None:
        noted = json.dumps({"at": at, "boot": boot, "uptime": uptime})
        db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (_FROM, noted))

    def _recorded_from(self, db: sqlite3.Connection) -> float | None:
        row = db.execute("SELECT value FROM facts WHERE name = ?", (_FROM,)).fetchone()
        if row is None:
            return None
        try:
            noted = json.loads(row[0])
            begin, boot, uptime = float(noted["at"]), noted["boot"], float(noted["uptime"])
        except (ValueError, TypeError, KeyError):
            # It is damaged: nothing is known until it is noted again.
            return None
        if boot == processes.boot():
            # The clock may have been wrong then, and set since.
            begin = max(begin, self._clock() - (self._uptime() - uptime))
        return begin

    def beyond(self, size: int) -> list[str]:
        """Return the finished jobs whose returns exceed *size* bytes together, oldest first."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT key, length(payload) FROM jobs JOIN contents USING (key) "
                "WHERE state = 'finished' ORDER BY accepted DESC"
            ).fetchall()
        total, found = 0, []
        for key, length in rows:
            total += length or 0
            if total > size:
                found.append(key)
        return found[::-1]

    def replace(self, key: str, payload: bytes) -> None:
        """Replace the undelivered return of a job."""
        with self.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO contents (key, payload) "
                "SELECT key, ? FROM jobs WHERE key = ? AND state = 'finished'",
                (payload, key),
            )

    def prune(self, keep: int = KEEP_DELIVERED) -> int:
        """
        Forget the oldest delivered jobs beyond *keep*; return how many.

        The ledger then does not know all jobs of their time any more.
        """
        old = "state = 'delivered' AND rowid <= (SELECT max(rowid) FROM jobs) - ?"
        with self.transaction(durable=False) as db:
            last = db.execute(f"SELECT max(accepted) FROM jobs WHERE {old}", (keep,)).fetchone()[0]
            if last is None:
                return 0
            begin = self._recorded_from(db)
            if begin is not None and begin < last:
                self._record_from(db, last)
            return db.execute(f"DELETE FROM jobs WHERE {old}", (keep,)).rowcount

    # -- inside ----------------------------------------------------------------

    def _wipe(self, key: str, *, durable: bool) -> bool:
        with self.transaction(durable=durable) as db:
            done = db.execute(
                "UPDATE jobs SET state = 'delivered', changed = ? "
                "WHERE key = ? AND state != 'delivered'",
                (self._clock(), key),
            ).rowcount
            db.execute("DELETE FROM contents WHERE key = ?", (key,))
            db.execute("DELETE FROM chunks WHERE key = ?", (key,))
        return bool(done)

    def _select(self, statement: str, values: tuple[object, ...]) -> list[Job]:
        with self.connection() as db:
            rows = db.execute(statement, values).fetchall()
        return [job for row in rows if (job := of_row(row)) is not None]


def _state(stored: object) -> State:
    try:
        return State(stored)
    except ValueError as err:
        raise DamagedError(f"The state of a job is {stored!r} in the ledger.") from err
