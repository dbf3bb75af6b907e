"""
What runners ask of the engine, in the master's own account.

Only the user of the master can write there, so the engine does what it finds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .account import Account


class Call(NamedTuple):
    """What a runner wants done, with what."""

    number: int
    what: str
    given: dict[str, Any]


class Calls:
    """The calls in an account, and what came of them."""

    def __init__(self, account: Account) -> None:
        self.account = account

    # -- the runner ------------------------------------------------------------

    def put(self, what: str, given: Mapping[str, Any]) -> int:
        """Ask the engine for something; return the number of the call."""
        with self.account.transaction(durable=False) as db:
            inserted = db.execute(
                "INSERT INTO calls (what, given) VALUES (?, ?)", (what, _packed(given))
            )
        return int(inserted.lastrowid or 0)

    def outcome(self, number: int) -> tuple[str | None, dict[str, Any]]:
        """Return its state (empty, ``taken``, ``done``; None if it is gone), and the outcome."""
        with self.account.connection() as db:
            row = db.execute(
                "SELECT state, outcome FROM calls WHERE number = ?", (number,)
            ).fetchone()
        if row is None:
            return None, {}
        return row[0], _unpacked(row[1]) if row[1] else {}

    def answers(self, number: int) -> list[tuple[str, bytes]]:
        """Return what minions have answered, packed."""
        with self.account.connection() as db:
            return db.execute(
                "SELECT minion, answer FROM answers WHERE number = ?", (number,)
            ).fetchall()

    def withdraw(self, number: int) -> None:
        """Delete a call, done or not."""
        with self.account.transaction(durable=False) as db:
            db.execute("DELETE FROM calls WHERE number = ?", (number,))
            db.execute("DELETE FROM answers WHERE number = ?", (number,))

    # -- the engine ------------------------------------------------------------

    def take(self) -> list[Call]:
        """Return, once, what was asked for."""
        with self.account.connection() as db:
            if not db.execute("SELECT 1 FROM calls WHERE state = '' LIMIT 1").fetchone():
                return []
        with self.account.transaction(durable=False) as db:
            rows = db.execute(
                "SELECT number, what, given FROM calls WHERE state = '' ORDER BY number"
            ).fetchall()
            db.execute("UPDATE calls SET state = 'taken' WHERE state = ''")
        return [Call(number, what, _unpacked(given)) for number, what, given in rows]

    def add_answers(self, number: int, answers: Iterable[tuple[str, bytes]]) -> None:
        """Write down what minions have answered; nothing if nobody waits for it any more."""
        with self.account.transaction(durable=False) as db:
            if db.execute("SELECT 1 FROM calls WHERE number = ?", (number,)).fetchone():
                db.executemany(
                    "INSERT INTO answers VALUES (?, ?, ?)",
                    [(number, minion, answer) for minion, answer in answers],
                )

    def finish(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Write down what came of a call; nothing if nobody waits for it any more."""
        with self.account.transaction(durable=False) as db:
            db.execute(
                "UPDATE calls SET state = 'done', outcome = ?, done = ? WHERE number = ?",
                (_packed(outcome), self.account.now(), number),
            )


def _packed(data: Mapping[str, Any]) -> bytes:
    return zlib.compress(json.dumps(data).encode(), 1)


def _unpacked(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(data))
    return found
