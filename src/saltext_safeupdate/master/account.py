"""
The master's own account of what it has published, and to whom.

Only what runs inside the master writes it: its workers, on the path on which the master itself
publishes, and its engine. It is what redelivery goes by; the job cache and the event bus, which
minions can write to, are not.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.errors import RecordError
from ..core.host import processes
from ..core.record.database import Database

# What the account holds at most: publications, and bytes of what they said and to whom.
MOST_ROWS, MOST_BYTES = 10_000, 64 << 20
# Bytes of one publication; a larger one is not redelivered.
MOST_OF_ONE = 8 << 20
# Seconds that a worker of the master waits for another one that writes.
BUSY_TIMEOUT = 3.0
# The argument with which the engine has a publication go out again.
TICKET = "safeupdate_ticket"
# The argument that marks a question of the engine: nobody gets it again.
QUESTION = "safeupdate_question"
# Names of facts.
ENGINE, STOOD_DOWN = "engine", "stood_down"


class Published(NamedTuple):
    """
    A publication. *age* is in seconds; *waiting* are the minions that have not returned, as far
    as it is written down; *times* is how often it was published again, by minion.
    """

    number: int
    jid: str
    age: float
    waiting: list[str]
    times: dict[str, int]


class Again(NamedTuple):
    """What is to be published once more, as it was, and to whom."""

    jid: str
    load: bytes
    minions: list[str]


class Request(NamedTuple):
    """What an administrator asked for: these minions, answers within *timeout* seconds."""

    number: int
    minions: list[str]
    timeout: float


class Account(Database):
    """One database file below the master's ``cachedir``; see :class:`Database`."""

    VERSION = 2
    ADDED = ()
    SETTING = "cachedir"
    SCHEMA = """
CREATE TABLE IF NOT EXISTS publications (
    number INTEGER PRIMARY KEY AUTOINCREMENT, jid TEXT NOT NULL, audience TEXT NOT NULL,
    boot TEXT NOT NULL, up REAL NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS publications_size ON publications (size);
CREATE INDEX IF NOT EXISTS publications_audience ON publications (audience);
CREATE TABLE IF NOT EXISTS loads (number INTEGER PRIMARY KEY, load BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS audiences (digest TEXT PRIMARY KEY, minions BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS waiting (number INTEGER PRIMARY KEY, minions BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS times (number INTEGER PRIMARY KEY, minions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tickets (
    ticket TEXT PRIMARY KEY, number INTEGER NOT NULL, minions BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, minions BLOB NOT NULL, timeout REAL NOT NULL,
    state TEXT NOT NULL DEFAULT '', report TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, given BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT '', outcome BLOB
);
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER NOT NULL, minion TEXT NOT NULL, answer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_number ON answers (number)
"""

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = processes.since_boot,
        busy_timeout: float = BUSY_TIMEOUT,
        most_rows: int = MOST_ROWS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        super().__init__(path, clock=clock, busy_timeout=busy_timeout)
        self._since_boot = since_boot
        self._most_rows, self._most_bytes = most_rows, most_bytes

    # -- what the workers of the master write ----------------------------------

    def published(self, jid: str, load: bytes, minions: Iterable[str]) -> int:
        """
        Write down a publication; return how many older ones had to go for it.

        It survives the death of every process. After a power cut the last ones may be missing.
        """
        packed = _pack(minions)
        if len(load) > MOST_OF_ONE:
            raise RecordError(
                f"A publication of {len(load)} bytes is too large for the account of the master. "
                "It was published, but minions that miss it do not get it again."
            )
        audience = hashlib.sha256(packed).hexdigest()
        with self.transaction(durable=False) as db:
            new = db.execute("INSERT OR IGNORE INTO audiences VALUES (?, ?)", (audience, packed))
            # Most jobs are for the same minions as others: these are stored once.
            size = len(load) + (len(packed) if new.rowcount else 0)
            inserted = db.execute(
                "INSERT INTO publications (jid, audience, boot, up, at, size) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (jid, audience, processes.boot(), self._since_boot(), self._clock(), size),
            )
            db.execute("INSERT INTO loads VALUES (?, ?)", (inserted.lastrowid, load))
            surplus = self._surplus(db)
            self._delete(db, surplus)
        return len(surplus)

    def redeem(self, ticket: object) -> Again | None:
        """Return what a ticket is for, once; None for one that the engine has not written."""
        if not isinstance(ticket, str) or not self.exists():
            return None
        with self.transaction(durable=False) as db:
            row = db.execute(
                "SELECT jid, load, tickets.minions FROM tickets JOIN publications USING (number) "
                "JOIN loads USING (number) WHERE ticket = ?",
                (ticket,),
            ).fetchone()
            db.execute("DELETE FROM tickets WHERE ticket = ?", (ticket,))
        return Again(row[0], row[1], _unpack(row[2])) if row else None

    # -- what the engine reads and writes --------------------------------------

    def since(self, number: int) -> Iterator[Published]:
        """Yield the publications that are newer than this number, the oldest first."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT number, jid, boot, up, at, coalesce(waiting.minions, audiences.minions), "
                "times.minions FROM publications JOIN audiences ON digest = audience "
                "LEFT JOIN waiting USING (number) LEFT JOIN times USING (number) "
                "WHERE number > ? ORDER BY number",
                (number,),
            )
            # One after another: all of them, spelled out, may be some millions of names.
            for which, jid, boot, up, at, who, times in rows:
                age = self._age(boot, up, at)
                yield Published(which, jid, age, _unpack(who), json.loads(times or "{}"))

    def ticket(self, number: int, minions: Iterable[str], times: Mapping[str, int]) -> str:
        """Write down that a publication goes out again, to these minions; return the ticket."""
        ticket = secrets.token_hex(16)
        with self.transaction(durable=False) as db:
            db.execute("INSERT INTO tickets VALUES (?, ?, ?)", (ticket, number, _pack(minions)))
            db.execute("INSERT OR REPLACE INTO times VALUES (?, ?)", (number, json.dumps(times)))
        return ticket

    def settle(self, done: Iterable[int], waiting: Mapping[int, Iterable[str]]) -> None:
        """Delete publications with all that they said; write down who still waits for others."""
        done = list(done)
        with self.transaction(durable=False) as db:
            self._delete(db, done)
            for number, minions in waiting.items():
                if db.execute("SELECT 1 FROM publications WHERE number = ?", (number,)).fetchone():
                    db.execute(
                        "INSERT OR REPLACE INTO waiting VALUES (?, ?)", (number, _pack(minions))
                    )
        if done:
            self.scrub()

    def forget_tickets(self) -> None:
        """Delete tickets that nobody has redeemed, and requests that nobody waits for."""
        with self.transaction(durable=False) as db:
            for table in ("tickets", "requests", "calls", "answers"):
                db.execute(f"DELETE FROM {table}")

    # -- what an administrator asks of the engine ------------------------------

    def ask(self, minions: Iterable[str], timeout: float) -> int:
        """Ask the engine to look for what these minions have missed; return the number."""
        with self.transaction(durable=False) as db:
            inserted = db.execute(
                "INSERT INTO requests (minions, timeout) VALUES (?, ?)", (_pack(minions), timeout)
            )
        return int(inserted.lastrowid or 0)

    def take_requests(self) -> list[Request]:
        """Return, once, what was asked for."""
        with self.connection() as db:
            if not db.execute("SELECT 1 FROM requests WHERE state = '' LIMIT 1").fetchone():
                return []
        with self.transaction(durable=False) as db:
            rows = db.execute(
                "SELECT number, minions, timeout FROM requests WHERE state = '' ORDER BY number"
            ).fetchall()
            db.execute("UPDATE requests SET state = 'taken' WHERE state = ''")
        return [Request(number, _unpack(who), timeout) for number, who, timeout in rows]

    def answer(self, number: int, report: Mapping[str, Any]) -> None:
        """Answer a request; nothing happens if nobody waits for it any more."""
        with self.transaction(durable=False) as db:
            db.execute(
                "UPDATE requests SET state = 'done', report = ? WHERE number = ?",
                (json.dumps(report), number),
            )

    def outcome(self, number: int) -> tuple[str, dict[str, Any]]:
        """Return the state of a request (empty, ``taken``, ``done``), and the report."""
        with self.connection() as db:
            row = db.execute(
                "SELECT state, report FROM requests WHERE number = ?", (number,)
            ).fetchone()
        return (row[0], json.loads(row[1] or "{}")) if row else ("", {})

    def withdraw(self, number: int) -> None:
        """Delete a request, answered or not."""
        with self.transaction(durable=False) as db:
            db.execute("DELETE FROM requests WHERE number = ?", (number,))

    # -- facts -----------------------------------------------------------------

    def set_fact(self, name: str, value: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> str:
        """Return a fact; empty if it is not known."""
        if not self.exists():
            return ""
        with self.connection() as db:
            row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    # -- inside ----------------------------------------------------------------

    def _age(self, boot: str, up: float, at: float) -> float:
        """Return seconds. Only across a boot does the wall clock count, and it may have jumped."""
        if boot == processes.boot():
            return max(0.0, self._since_boot() - up)
        return max(0.0, self._clock() - at)

    def _surplus(self, db: sqlite3.Connection) -> list[int]:
        """Return the oldest publications that are too many."""
        rows, size = db.execute("SELECT count(*), total(size) FROM publications").fetchone()
        surplus: list[int] = []
        if rows <= self._most_rows and size <= self._most_bytes:
            return surplus
        for number, its in db.execute("SELECT number, size FROM publications ORDER BY number"):
            if rows <= self._most_rows and size <= self._most_bytes:
                break
            surplus.append(number)
            rows, size = rows - 1, size - its
        return surplus

    @staticmethod
    def _delete(db: sqlite3.Connection, numbers: Iterable[int]) -> None:
        gone = [(number,) for number in numbers]
        if not gone:
            return
        for table in ("publications", "loads", "waiting", "times", "tickets"):
            db.executemany(f"DELETE FROM {table} WHERE number = ?", gone)
        db.execute(
            "DELETE FROM audiences WHERE NOT EXISTS "
            "(SELECT 1 FROM publications WHERE audience = digest)"
        )

    def _start_anew(self, stamp: str, aside: str, err: sqlite3.DatabaseError) -> None:
        # That it was set aside has been logged. What was published before is not redelivered.
        self._open("FULL").close()

    def _error(self, err: sqlite3.Error | str) -> RecordError:
        return RecordError(
            f"The account of the master, {self.path}, cannot be used: {err}. Jobs are published "
            "and run as usual, but what minions miss is not published again until it can be "
            "written (check the space and the permissions of its directory)."
        )


def path_of(opts: Mapping[str, Any]) -> str:
    """Return where the account of the master with these opts is."""
    return os.path.join(str(opts["cachedir"]), "safeupdate", "account.db")


def _pack(minions: Iterable[str]) -> bytes:
    return zlib.compress("\n".join(minions).encode(), 1)


def _unpack(packed: bytes) -> list[str]:
    text = zlib.decompress(packed).decode()
    return text.split("\n") if text else []
