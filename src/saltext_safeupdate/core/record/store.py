"""
The tables of the updates: the record, its history, and single facts.

Each salt-call looks for a record. The parts of a record are only loaded if there is one.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import UnreadableError
from . import fence, typed
from .database import Database
from .fence import Taken
from .phase import Phase
from .typed import Fact

if TYPE_CHECKING:
    from .update import Update

log = logging.getLogger(__name__)

T = TypeVar("T")
_READ_FACT = "SELECT value FROM facts WHERE name = ?"

# Rows of ended updates that are kept.
_KEEP_UPDATES = 100

_JSON_COLUMNS = ("versions_from", "versions_to", "unit", "extra")
_COLUMNS = (
    "id",
    "kind",
    "phase",
    "reason",
    "jid",
    "pid",
    "created",
    "changed",
    *_JSON_COLUMNS,
)

_OPEN = tuple(phase.value for phase in Phase if not phase.final)


class PhaseRow(NamedTuple):
    """One line of the history."""

    seq: int
    id: str
    phase: str
    reason: str
    at: float


class Quarantined(NamedTuple):
    """A version of a package that was rolled back, with the update and the reason."""

    package: str
    version: str
    id: str
    reason: str
    at: float

    @property
    def why(self) -> str:
        """The reason as a part of another sentence."""
        return self.reason.removesuffix(".")


class Store(Database):
    """The stored data about updates. Every write is on disk when the call returns."""

    # -- updates ---------------------------------------------------------------

    def save(
        self,
        update: Update,
        *others: Update,
        number: int = 0,
        again: bool = False,
        quarantined: Mapping[str, str] | None = None,
    ) -> Update:
        """
        Write the record; a new phase also gets a line in the history.

        With a *number*, it is the number of the request that began the update: raise InputError,
        and write nothing, unless it is the newest; with *again*, it may have been taken before.
        *others*, and the versions that are *quarantined* for its reason, are written in the same
        transaction.
        """
        now = self._clock()
        with self.transaction() as db:
            _quarantine(db, quarantined or {}, update.id, update.reason, now)
            if number:
                fence.take(db, number, update.id, again=again)
            moved = [_write(db, each, now) for each in (*others, update)]
        for line in filter(None, moved):
            log.info("safeupdate: %s -> %s update=%s", *line)
        return update

    def taken(self) -> Taken:
        """Return the newest numbered request that was taken, and the update that came of it."""
        with self.connection() as db:
            return fence.newest(db)

    def take(self, number: int, update_id: str, *ended: Update) -> None:
        """
        Take a request that needs no record of its own; *ended* are records that end with that.

        Raise InputError, and write nothing, unless the number is the newest.
        """
        now = self._clock()
        with self.transaction() as db:
            fence.take(db, number, update_id)
            for each in ended:
                _write(db, each, now)

    def withdraw(self, number: int) -> str:
        """
        Take a number that asks for nothing; return the update under way of the newest request.

        Empty without such an update. Raise InputError for a number that is older than the newest.
        """
        with self.transaction() as db:
            known = fence.newest(db)
            row = db.execute("SELECT phase FROM updates WHERE id = ?", (known.update,)).fetchone()
            same = number == known.number
            update = known.update if same or (row and row[0] in _OPEN) else ""
            fence.take(db, number, update, again=True)
        return update

    def latest(self) -> Update | None:
        """Return the newest record that has not ended, else the newest; None without records."""
        return next(iter(self._updates(f"phase IN ({', '.join('?' * len(_OPEN))}) DESC,", 1)), None)

    def get(self, update_id: str) -> Update | None:
        with self.connection() as db:
            row = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM updates WHERE id = ?",
                (update_id,),
            ).fetchone()
        return None if row is None else _update(row)

    def updates(self, limit: int = 20) -> list[Update]:
        """Return the newest records, newest first."""
        return self._updates("", limit)

    def _updates(self, first: str, limit: int) -> list[Update]:
        with self.connection() as db:
            rows = db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM updates ORDER BY {first} rowid DESC LIMIT ?",
                (*(_OPEN if first else ()), limit),
            ).fetchall()
        return [_update(row) for row in rows]

    def history(self, update_id: str) -> list[PhaseRow]:
        with self.connection() as db:
            rows = db.execute(
                "SELECT seq, id, phase, reason, at FROM phases WHERE id = ? ORDER BY seq",
                (update_id,),
            ).fetchall()
        return [PhaseRow(*row) for row in rows]

    def unpublished(self) -> list[PhaseRow]:
        """Return the phases that no event has reported yet, oldest first."""
        with self.connection() as db:
            rows = db.execute(
                "SELECT seq, id, phase, reason, at FROM phases WHERE published = 0 ORDER BY seq"
            ).fetchall()
        return [PhaseRow(*row) for row in rows]

    def mark_published(self, seq: int) -> None:
        with self.transaction() as db:
            db.execute("UPDATE phases SET published = 1 WHERE seq = ?", (seq,))

    # -- quarantine ------------------------------------------------------------

    def quarantine(self, versions: Mapping[str, str], update_id: str, reason: str) -> None:
        """Keep these versions of packages from being installed again. Idempotent."""
        with self.transaction() as db:
            _quarantine(db, versions, update_id, reason, self._clock())

    def quarantined(self) -> list[Quarantined]:
        """Return what was rolled back and not cleared since, oldest first."""
        with self.connection() as db:
            rows = db.execute(
                f"SELECT {', '.join(Quarantined._fields)} FROM quarantine ORDER BY at, package"
            ).fetchall()
        return [Quarantined(*row) for row in rows]

    def clear(self, rows: Iterable[Quarantined]) -> None:
        """Let these versions be installed again."""
        with self.transaction() as db:
            db.executemany(
                "DELETE FROM quarantine WHERE package = ? AND version = ?",
                [(row.package, row.version) for row in rows],
            )

    # -- facts -----------------------------------------------------------------

    def set_fact(self, fact: Fact[T], value: T) -> None:
        with self.transaction() as db:
            _set_fact(db, fact, value)

    def claim_fact(self, fact: Fact[T], value: T, is_free: Callable[[T | None], bool]) -> T | None:
        """Set the fact if *is_free* says so of what it is, and return what it is now."""
        if self.fact(fact) == value:
            return value
        with self.transaction() as db:
            now = _fact(fact, db.execute(_READ_FACT, (fact.name,)).fetchone())
            if not is_free(now):
                return now
            _set_fact(db, fact, value)
        return value

    def drop_fact(self, fact: Fact[T]) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM facts WHERE name = ?", (fact.name,))

    def fact(self, fact: Fact[T]) -> T | None:
        """Return a fact; None if it is not there. May raise UnreadableError."""
        if not self.exists():
            return None
        with self.connection() as db:
            return _fact(fact, db.execute(_READ_FACT, (fact.name,)).fetchone())

    def replaceable(self, fact: Fact[T]) -> T | None:
        """Return a fact that its reader is about to write again; None also if it is unreadable."""
        try:
            return self.fact(fact)
        except UnreadableError:
            return None


def _set_fact(db: sqlite3.Connection, fact: Fact[T], value: T) -> None:
    db.execute(
        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
        (fact.name, json.dumps(typed.plain(value))),
    )


def _fact(fact: Fact[T], row: tuple[Any, ...] | None) -> T | None:
    try:
        return None if row is None else fact.read(json.loads(row[0]))
    except (TypeError, ValueError) as err:
        raise UnreadableError(
            f"The record of {fact.name!r} cannot be read ({err}). It was not changed; "
            "delete that row from the table 'facts' if nothing writes it again."
        ) from err


def _quarantine(
    db: sqlite3.Connection, versions: Mapping[str, str], update_id: str, reason: str, now: float
) -> None:
    db.executemany(
        f"INSERT OR REPLACE INTO quarantine ({', '.join(Quarantined._fields)}) "
        "VALUES (?, ?, ?, ?, ?)",
        [(package, version, update_id, reason, now) for package, version in versions.items()],
    )


def _write(db: sqlite3.Connection, update: Update, now: float) -> tuple[str, str, str] | None:
    """Write the record; return the phase before, the phase and the update if that is new."""
    old = db.execute(
        "SELECT phase FROM phases WHERE id = ? ORDER BY seq DESC LIMIT 1", (update.id,)
    ).fetchone()
    # Columns that a newer version has added stay as they are.
    db.execute(
        f"INSERT INTO updates ({', '.join(_COLUMNS)}) "
        f"VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT (id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:]),
        _row(update, now),
    )
    if old is not None and old[0] == update.phase.value:
        return None
    db.execute(
        "INSERT INTO phases (id, phase, reason, at) VALUES (?, ?, ?, ?)",
        (update.id, update.phase.value, update.reason, now),
    )
    db.execute(
        "DELETE FROM updates WHERE id NOT IN (SELECT id FROM updates ORDER BY rowid DESC LIMIT ?)",
        (_KEEP_UPDATES,),
    )
    db.execute("DELETE FROM phases WHERE published = 1 AND id NOT IN (SELECT id FROM updates)")
    return (old[0] if old else "-", update.phase.value, update.id)


def _row(update: Update, now: float) -> tuple[Any, ...]:
    from . import parts

    return (
        update.id,
        update.kind,
        update.phase.value,
        update.reason,
        update.jid,
        update.pid,
        update.created or now,
        now,
        *(json.dumps(each) for each in (update.versions_from, update.versions_to, update.unit)),
        json.dumps(parts.encode(update)),
    )


def _update(row: tuple[Any, ...]) -> Update:
    from . import parts
    from .update import Update

    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        for name in _JSON_COLUMNS:
            values[name] = json.loads(values[name])
            if not isinstance(values[name], dict):
                raise TypeError(name)
        values |= parts.decode(values.pop("extra"))
        values["phase"] = Phase(values["phase"])
    except (TypeError, ValueError) as err:
        raise UnreadableError(
            f"The record of update {values['id']} is not valid ({err}). It was left as it is; "
            "a newer version may have written it."
        ) from err
    return Update(**values)
