"""The tables of the master's account, and operations on their rows within a transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection
from typing import Any

from . import audience

# Bytes that a row takes in addition to its content.
ROW = 200
# Nothing is in "waiting" and "times" any more; after a rollback, code of version 1 reads them.
SCHEMA = """
CREATE TABLE IF NOT EXISTS publications (
    number INTEGER PRIMARY KEY AUTOINCREMENT, jid TEXT NOT NULL, audience INTEGER NOT NULL,
    target INTEGER NOT NULL, boot TEXT NOT NULL, up REAL NOT NULL, at REAL NOT NULL,
    size INTEGER NOT NULL, ends TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS publications_size ON publications (size);
CREATE INDEX IF NOT EXISTS publications_audience ON publications (audience);
CREATE INDEX IF NOT EXISTS publications_target ON publications (target);
CREATE TABLE IF NOT EXISTS loads (number INTEGER PRIMARY KEY, load BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS members (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    minions BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS targets (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    target TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS waiting (number INTEGER PRIMARY KEY, minions BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS times (number INTEGER PRIMARY KEY, minions BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tickets (
    ticket TEXT PRIMARY KEY, number INTEGER NOT NULL, minions TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS tickets_number ON tickets (number);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, given BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT '', outcome BLOB, done REAL
);
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER NOT NULL, minion TEXT NOT NULL, answer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_number ON answers (number)
"""

# Files of version 1 lack these.
ADDED = (
    ("publications", "asks", "TEXT NOT NULL DEFAULT ''"),
    ("publications", "again", "INTEGER NOT NULL DEFAULT 1"),
    ("publications", "who", "TEXT NOT NULL DEFAULT ''"),
)


def members(db: sqlite3.Connection, digest: bytes, names: Callable[[], bytes]) -> int:
    """Return the number of the set of minions with this digest, which most jobs share."""
    row = db.execute("SELECT number FROM members WHERE digest = ?", (digest,)).fetchone()
    if row:
        return int(row[0])
    packed = audience.compressed(names())
    inserted = db.execute(
        "INSERT INTO members (digest, size, minions) VALUES (?, ?, ?)",
        (digest, len(packed) + ROW, packed),
    )
    return int(inserted.lastrowid or 0)


def target(db: sqlite3.Connection, text: str) -> int:
    """Return the number of a target."""
    digest = hashlib.sha256(text.encode()).digest()
    row = db.execute("SELECT number FROM targets WHERE digest = ?", (digest,)).fetchone()
    if row:
        return int(row[0])
    inserted = db.execute(
        "INSERT INTO targets (digest, size, target) VALUES (?, ?, ?)",
        (digest, len(text) + ROW, text),
    )
    return int(inserted.lastrowid or 0)


def sizes(db: sqlite3.Connection) -> tuple[int, float]:
    """Return the number of publications, and the bytes of all their data."""
    rows, size = db.execute(
        "SELECT count(*), total(size) + (SELECT total(size) FROM members) "
        "+ (SELECT total(size) FROM targets) FROM publications"
    ).fetchone()
    return int(rows), float(size)


def delete(db: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Delete publications, with data that no other one shares."""
    shared: dict[str, set[int]] = {"audience": set(), "target": set()}
    for number in numbers:
        row = db.execute(
            "SELECT audience, target FROM publications WHERE number = ?", (number,)
        ).fetchone()
        if row:
            shared["audience"].add(row[0])
            shared["target"].add(row[1])
    gone = [(number,) for number in numbers]
    for table in ("publications", "loads", "tickets"):
        db.executemany(f"DELETE FROM {table} WHERE number = ?", gone)
    for table, column in (("members", "audience"), ("targets", "target")):
        db.executemany(
            f"DELETE FROM {table} WHERE number = ? "
            f"AND NOT EXISTS (SELECT 1 FROM publications WHERE {column} = ?)",
            [(number, number) for number in shared[column]],
        )


def ended(db: sqlite3.Connection, number: int, jid: str, every: str) -> list[Any]:
    """
    Return digest and names of the minions for which the job of a publication was ended.

    *every* stands for all jobs; the end of one job may be written down before the job.
    """
    return db.execute(
        "SELECT members.digest, members.minions FROM publications "
        "JOIN members ON members.number = audience "
        "WHERE ends = ? OR (ends = ? AND (publications.number > ? OR jid > ?))",
        (jid, every, number, jid),
    ).fetchall()


def forget_asked(db: sqlite3.Connection) -> None:
    """Delete the calls to an earlier engine, and their answers."""
    for table in ("tickets", "calls", "answers"):
        db.execute(f"DELETE FROM {table}")
