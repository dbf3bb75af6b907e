"""
Calls of runners to the engine, in the master's own account.


Only the user of the master can write there, so the engine carries out what it finds.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..core.errors import InputError, LockUnavailableError, RecordError, SafeUpdateError
from ..core.host import locks
from . import account as accounts
from .account import Account

log = logging.getLogger(__name__)

# Seconds that the engine has to take up a call, and that a runner waits between looks.
TAKEN_TIMEOUT, LOOK_INTERVAL = 60.0, 0.2
# Seconds that an engine has to come back after its process has ended.
GONE_TIMEOUT = 5.0


class Call(NamedTuple):
    """A call of a runner, with its arguments."""

    number: int
    what: str
    given: dict[str, Any]


class Calls:
    """The calls in an account, and their outcomes."""

    def __init__(self, account: Account) -> None:
        self.account = account

    # -- the runner ------------------------------------------------------------

    def put(self, what: str, given: Mapping[str, Any]) -> int:
        """Write a call to the engine; return its number."""
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
        """Return the packed answers of minions."""
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
        """Return the new calls, each once."""
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
        """Write answers of minions down, unless nobody waits for them any more."""
        with self.account.transaction(durable=False) as db:
            if db.execute("SELECT 1 FROM calls WHERE number = ?", (number,)).fetchone():
                db.executemany(
                    "INSERT INTO answers VALUES (?, ?, ?)",
                    [(number, minion, answer) for minion, answer in answers],
                )

    def finish(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Write the outcome of a call down, unless nobody waits for it any more."""
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


def engine_is_gone(account: Account) -> bool:
    """Return whether the engine has run and ended: while it runs it has its lock."""
    directory = os.path.dirname(account.path)
    if not os.path.exists(os.path.join(directory, "engine.lock")):
        return False
    try:
        return not locks.held(directory, "engine")
    except LockUnavailableError:
        return False


def call(
    calls: Calls,
    what: str,
    given: Mapping[str, Any],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """
    Let the engine of this master do something; return the outcome, and answers of minions.

    Raises SafeUpdateError if there is no engine, if it does not take it up, or if it refuses.
    """
    if reason := calls.account.fact(accounts.STOOD_DOWN):
        raise SafeUpdateError(reason)
    if not calls.account.fact(accounts.ENGINE):
        raise SafeUpdateError(
            "The engine 'safeupdate_redeliver' has not run on this master, and this function needs "
            "it. Nothing was started. Run 'salt-run safeupdate.setup', and restart the "
            "master."
        )
    number = calls.put(what, given)
    try:
        began, ran = clock(), False
        while True:
            state, outcome = calls.outcome(number)
            if state == "done":
                if error := outcome.get("error"):
                    raise (InputError if outcome.get("input") else SafeUpdateError)(str(error))
                return outcome, calls.answers(number)
            passed, gone = clock() - began, engine_is_gone(calls.account)
            # Without a lock, an engine was never seen to run, and may well do so.
            ran = ran or not gone
            if state is None or (state and gone and ran):
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' has ended or was restarted meanwhile. "
                    "The request may have been carried out: check that first, also in the log of "
                    "the master, then try again."
                )
            if not state and gone and passed > GONE_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' of this master does not run, and nothing "
                    "was started. See whether salt-master runs, and what its log says about the "
                    "engine."
                )
            if not state and passed > TAKEN_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' does not answer, and nothing was started. "
                    "See whether salt-master runs, and what its log says about the engine."
                )
            if passed > TAKEN_TIMEOUT + timeout + TAKEN_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' has not finished in time; its master may "
                    "be overloaded. The request may still be carried out: check that first."
                )
            pause(LOOK_INTERVAL)
    finally:
        try:
            calls.withdraw(number)
        except RecordError as err:
            log.warning("safeupdate: %s", err)
