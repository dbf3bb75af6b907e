"""
The master's own account of its publications, and of their minions.

Only code inside the master writes it: its workers, on the path on which the master itself
publishes, and its engine. Redelivery relies on it, and not on the job cache or the event bus, which
minions can write to.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import logging
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.errors import RecordError
from ..core.host import processes
from ..core.host.files import make_private, open_private
from ..core.record.database import Database
from . import aiming, audience, tables
from .aiming import Target

log = logging.getLogger(__name__)

# Limits of the account: publications, and bytes of all their data.
MOST_ROWS, MOST_BYTES = 10_000, 64 << 20
# Bytes of one publication; a larger one is not redelivered.
MOST_OF_ONE = 8 << 20
# Publications in one transaction: workers wait for it.
_AT_ONCE = 200
# Audiences that are kept unpacked.
_UNPACKED = 16
# The same of those whose digest a worker remembers.
_REMEMBERED = 4
# Seconds for which an outcome is kept that nobody has fetched: the caller was killed.
_KEPT = 600.0
# Seconds that a worker of the master waits for another one that writes.
BUSY_TIMEOUT = 3.0
# The same after another worker has waited without success.
HURRY_TIMEOUT = 0.1
# The argument by which the engine lets a publication go out again.
TICKET = "safeupdate_ticket"
# The argument that marks a question of the engine: it is never published again.
QUESTION = "safeupdate_question"
EVERYBODY = Target("*")
# Stands for the JID of the ended job if a publication ends all jobs.
ALL = "*"
# Characters of a boot's name that tell it from others.
_BOOT = 8
# Names of facts.
ENGINE, STOOD_DOWN = "engine", "stood_down"


class Published(NamedTuple):
    """
    A publication. *age* is in seconds. It *ends* the job with this JID, or ALL of its minions, or
    *asks* after one, if these are not empty. *again*: it may go out again.
    """

    number: int
    jid: str
    age: float
    minions: frozenset[str]
    ends: str = ""
    asks: str = ""
    again: bool = True


class Again(NamedTuple):
    """
    A publication that goes out again unchanged, and the minions of its target that get it. *right*
    says who has published it (:mod:`.rights`).
    """

    number: int
    jid: str
    load: bytes
    minions: list[str]
    target: Target
    right: str = ""


class Account(Database):
    """One database file below the master's ``cachedir``; see :class:`Database`."""

    VERSION = 2
    SETTING = "cachedir"
    SCHEMA = tables.SCHEMA
    ADDED = tables.ADDED

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
        self._whole = os.path.join(os.path.dirname(path), "account.whole")
        self._unpacked: dict[bytes, frozenset[str]] = {}
        # The minions of the last publications, and their digests: most jobs are for the same ones.
        self._last: list[tuple[list[str], bytes]] = []

    def hurried(self) -> Account:
        """Return the account for a worker that does not wait long for another one that writes."""
        found = copy.copy(self)
        found._busy_timeout = min(self._busy_timeout, HURRY_TIMEOUT)
        return found

    # -- written by the workers of the master ----------------------------------

    def published(
        self,
        jid: str,
        load: bytes,
        minions: Iterable[str],
        target: Target = EVERYBODY,
        *,
        ends: str = "",
        asks: str = "",
        again: bool = True,
        right: str = "",
    ) -> int:
        """
        Write down a publication; return how many older ones were removed for it.

        *minions* are the minions that Salt waits for, *target* is its target; the rest is as in
        :class:`Published` and :class:`Again`. It survives the death of every process. After a power
        cut the last publications may be missing.
        """
        names = list(minions)
        digest = next((each for known, each in self._last if known == names), b"")
        if not digest:
            digest = hashlib.sha256(audience.packed(names)).digest()
            self._last = [(names, digest), *self._last[: _REMEMBERED - 1]]
        aim = target.text()
        if len(load) > MOST_OF_ONE:
            raise RecordError(
                f"A publication of {len(load)} bytes is too large for the account of the master. "
                "It was published, but minions that miss it do not get it again."
            )
        size = tables.ROW + len(load) + len(right)
        pack = functools.partial(audience.packed, names)
        with self.transaction(durable=False) as db:
            inserted = db.execute(
                "INSERT INTO publications (jid, audience, target, boot, up, at, size, ends, asks, "
                "again, who) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(jid, tables.members(db, digest, pack), tables.target(db, aim)),
                    processes.boot()[:_BOOT],
                    *(self._since_boot(), self._clock(), size, ends, asks, again, right),
                ),
            )
            db.execute("INSERT INTO loads VALUES (?, ?)", (inserted.lastrowid, load))
            gone, enough = self._make_room(db)
        while not enough:
            # Others write between two of these transactions.
            with self.transaction(durable=False) as db:
                more, enough = self._make_room(db)
            gone += more
        return gone

    def lose(self) -> None:
        """
        Note that something is missing that ends a job or asks after one.

        Then nothing goes out again of what was published before. Files go also from a full disk.
        """
        for path in (self._whole, f"{self._whole}.new"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise self._error(f"{path} cannot be removed: {err.strerror}") from err

    def is_whole(self) -> bool:
        """Tell whether nothing is missing that ends a job or asks after one."""
        return os.path.exists(self._whole)

    def redeem(self, ticket: object) -> Again | None:
        """
        Return, once, the publication of a ticket; None if the engine has not written it.

        It is for nobody any more for whom it was ended since, or if something is missing.
        """
        if not isinstance(ticket, str) or not self.exists():
            return None
        with self.transaction(durable=False) as db:
            row = db.execute(
                "SELECT tickets.number, jid, load, tickets.minions, "
                "CAST(targets.target AS BLOB), who FROM tickets "
                "JOIN publications USING (number) JOIN loads USING (number) "
                "JOIN targets ON targets.number = publications.target WHERE ticket = ?",
                (ticket,),
            ).fetchone()
            db.execute("DELETE FROM tickets WHERE ticket = ?", (ticket,))
            ended = tables.ended(db, row[0], row[1], ALL) if row else []
        if row is None:
            return None
        number, jid, load, minions, target, right = row
        left = set(json.loads(minions)).difference(*(self._audience(*each) for each in ended))
        found = sorted(left) if self.is_whole() else []
        return Again(number, jid, load, found, aiming.read(target), right)

    # -- read and written by the engine ----------------------------------------

    def since(self, number: int) -> Iterator[Published]:
        """
        Yield the publications that are newer than this number, the oldest first.

        If the minions of one are damaged, it is for none.
        """
        with self.connection() as db:
            newest = db.execute("SELECT max(at) FROM publications").fetchone()[0]
            rows = db.execute(
                "SELECT publications.number, jid, boot, up, at, ends, asks, again, members.digest, "
                "members.minions FROM publications JOIN members ON members.number = audience "
                "WHERE publications.number > ? ORDER BY publications.number",
                (number,),
            )
            # One after the other: all of them, unpacked, may be some millions of names.
            for which, jid, boot, up, at, ends, asks, again, digest, names in rows:
                age = self._age(boot, up, at, newest)
                try:
                    minions = self._audience(digest, names)
                except RecordError as err:
                    log.error("safeupdate: nobody gets the job %s again: %s", jid, err)
                    minions = frozenset()
                yield Published(which, jid, age, minions, ends, asks, bool(again))

    def begin_anew(self) -> None:
        """Delete what was published while the account was not whole. Raises RecordError."""
        fresh = f"{self._whole}.new"
        try:
            make_private(os.path.dirname(fresh))
            os.close(open_private(fresh))
            if self.exists():
                self.delete(self.numbers())
            # It is gone if something more was lost meanwhile.
            os.rename(fresh, self._whole)
        except OSError as err:
            raise self._error(err.strerror or str(err)) from err

    def numbers(self) -> set[int]:
        """Return the numbers of all publications."""
        with self.connection() as db:
            return {number for (number,) in db.execute("SELECT number FROM publications")}

    def targets(self, numbers: Iterable[int]) -> dict[int, Target]:
        """Return the targets of these publications, if they are there and not damaged."""
        found = {}
        with self.connection() as db:
            for number in numbers:
                row = db.execute(
                    "SELECT jid, CAST(targets.target AS BLOB) FROM publications "
                    "JOIN targets ON targets.number = publications.target "
                    "WHERE publications.number = ?",
                    (number,),
                ).fetchone()
                try:
                    if row:
                        found[number] = aiming.read(row[1])
                except RecordError as err:
                    log.error("safeupdate: nobody gets the job %s again: %s", row[0], err)
        return found

    def ticket(self, number: int, minions: Iterable[str]) -> str:
        """Write down that a publication goes out again, to these minions; return the ticket."""
        ticket = secrets.token_hex(16)
        listed = json.dumps(sorted(minions))
        with self.transaction(durable=False) as db:
            # The engine publishes one after the other, so another ticket was never redeemed.
            db.execute("DELETE FROM tickets WHERE number = ?", (number,))
            db.execute("INSERT INTO tickets VALUES (?, ?, ?)", (ticket, number, listed))
        return ticket

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete publications with all their data."""
        gone = list(numbers)
        for at in range(0, len(gone), _AT_ONCE):
            with self.transaction(durable=False) as db:
                tables.delete(db, gone[at : at + _AT_ONCE])
        self.scrub()

    def forget_tickets(self) -> None:
        """Delete tickets that nobody has redeemed, and calls that nobody waits for."""
        with self.transaction(durable=False) as db:
            tables.forget_asked(db)

    def expire(self) -> None:
        """Delete outcomes that nobody has fetched: the caller was killed."""
        before = self._since_boot() - _KEPT
        with self.connection() as db:
            if not db.execute("SELECT 1 FROM calls WHERE done < ?", (before,)).fetchone():
                return
        with self.transaction(durable=False) as db:
            db.execute("DELETE FROM calls WHERE done < ?", (before,))
            db.execute("DELETE FROM answers WHERE number NOT IN (SELECT number FROM calls)")

    def now(self) -> float:
        """Return the time by a clock that does not jump."""
        return self._since_boot()

    def anchor_anew(self) -> None:
        """Keep a connection to the present file open, as :meth:`anchor` does."""
        if self._anchor is not None:
            with contextlib.suppress(sqlite3.Error):
                self._anchor.close()
            self._anchor = None
        self.anchor()

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

    def _age(self, boot: str, up: float, at: float, newest: float) -> float:
        """
        Return the age in seconds. The wall clock counts only across a boot.

        If it was set back since the newest publication, it says nothing about publications before
        the boot. Then they are too old for any window: an old job must not get a new one.
        """
        if boot and processes.boot().startswith(boot):
            return max(0.0, self._since_boot() - up)
        now = self._clock()
        return now - at if now >= newest else math.inf

    def _audience(self, digest: bytes, minions: bytes) -> frozenset[str]:
        found = self._unpacked.pop(digest, None)
        if found is None:
            found = audience.unpacked(minions)
        # The last used ones stay.
        self._unpacked[digest] = found
        if len(self._unpacked) > _UNPACKED:
            del self._unpacked[next(iter(self._unpacked))]
        return found

    def _make_room(self, db: sqlite3.Connection) -> tuple[int, bool]:
        """Delete some of the oldest if there are too many; return how many, and if it is enough."""
        rows, size = tables.sizes(db)
        if rows <= self._most_rows and size <= self._most_bytes:
            return 0, True
        surplus: list[int] = []
        for number, its in db.execute(
            "SELECT number, size FROM publications ORDER BY number LIMIT ?", (_AT_ONCE,)
        ).fetchall():
            if rows <= self._most_rows and size <= self._most_bytes:
                break
            surplus.append(number)
            rows, size = rows - 1, size - its
        tables.delete(db, surplus)
        # Data that only they shared is gone, too, so fewer may have to be removed than it seems.
        rows, size = tables.sizes(db)
        enough = rows <= self._most_rows and size <= self._most_bytes
        return len(surplus), enough or not surplus

    def _start_anew(self, stamp: str, aside: str, err: sqlite3.DatabaseError) -> None:
        # The log says that it was set aside. Earlier publications are not redelivered.
        self._open("FULL").close()

    def _error(self, err: sqlite3.Error | str) -> RecordError:
        return RecordError(
            f"The account of the master, {self.path}, cannot be used: {self._named(err)}. Jobs "
            "are published and run as usual, but jobs that minions miss are not published again "
            "until it can be written (check the space and the permissions of its directory)."
        )


def path_of(opts: Mapping[str, Any]) -> str:
    """Return the path of the account of the master with these opts."""
    return os.path.join(str(opts["cachedir"]), "safeupdate", "account.db")
