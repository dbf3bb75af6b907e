"""
The newest numbered request that this minion has taken, and the update that came of it.

A number is a time: microseconds since 1970, when the request was made by the clock of its master.
A request of a lower number than the newest is refused, whoever sends it: with two masters, the
minion is the fence between them.
"""

from __future__ import annotations

import calendar
import json
import sqlite3
import time
from typing import Any, NamedTuple

from ..errors import InputError, RecordError

_FACT = "request"
# All numbers are lower: no message fills this up for good by mistake, and all pass Salt's bus.
MOST = 10**17
# Microseconds by which the clocks of masters and minions may differ.
_APART = 86_400 * 10**6


class Taken(NamedTuple):
    """The number of a request (0 without one), and the ID of its update (empty without one)."""

    number: int = 0
    update: str = ""


def newest(db: sqlite3.Connection) -> Taken:
    """Return the newest request that was taken."""
    row = db.execute("SELECT value FROM facts WHERE name = ?", (_FACT,)).fetchone()
    return Taken() if row is None else _valid(_decoded(row[0]))


def of_jid(jid: str) -> int:
    """Return the number of a request by the job *jid*; 0 if that is no JID of a master."""
    try:
        return calendar.timegm(time.strptime(jid[:14], "%Y%m%d%H%M%S")) * 10**6 + int(jid[14:20])
    except ValueError:
        return 0


def of_person(jid: str, known: Taken) -> int:
    """
    Return the number of a request that a person makes by the job *jid* now.

    If the newest one is from a clock that was ahead, this one comes next: nobody could ask for
    anything until that time.
    """
    number = of_jid(jid)
    return known.number + 1 if 0 < number <= _latest() < known.number else number


def _latest() -> int:
    """Return the highest number that is not from a clock ahead, by the clock of this host."""
    return int(time.time() * 10**6) + _APART


def take(db: sqlite3.Connection, number: int, update: str, *, again: bool = False) -> None:
    """
    Take a request of this number within a transaction, which came to that update.

    Raise InputError if it is older than the newest, or, without *again*, if it is that one.
    """
    known = newest(db)
    if number < known.number or (number == known.number and not again):
        raise InputError(refusal(number, known))
    db.execute(
        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
        (_FACT, json.dumps({"number": number, "update": update})),
    )


def moment(number: int) -> str:
    """Return when a request of this number was made, as a person reads it: in UTC, to a second."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(number // 10**6))


def refusal(number: int, known: Taken) -> str:
    """Say why a request of this number is not taken."""
    if number == known.number:
        return f"This request, of {moment(number)}, was taken before. Nothing was changed."
    which = f"update {known.update}" if known.update else "the newest one"
    told = (
        f"This request, of {moment(number)}, is older than {which}, of {moment(known.number)}. "
        "Nothing was changed."
    )
    if number <= _latest() < known.number:
        told += (
            " The later time is by a clock that was ahead. Until then, rollouts cannot update this "
            "minion. Correct the clock of the master; 'safeupdate.update' of a person is taken."
        )
    return told


def _decoded(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        # It is no request either.
        return text


def _valid(value: object) -> Taken:
    found = value if isinstance(value, dict) else {}
    number, update = found.get("number"), found.get("update")
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(update, str):
        raise RecordError(
            f"Which request this minion has taken last is not readable ({value!r}), so none is "
            "taken. It was left as it is; a newer version may have written it."
        )
    return Taken(number, update)
