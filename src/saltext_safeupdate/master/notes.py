"""
Notes of the workers of a master for its engine, in a pipe that only they have.

It is made in the master's parent process, before anything forks. It has no name, so nobody else
can write to it. A note that does not fit is dropped: then the engine asks the minion.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..fleet import inventory

# Bytes of the pipe: some 20,000 notes. The kernel may give less.
_CAPACITY = 1 << 20
_CHUNK = 64 << 10

# The kinds of notes, each with what follows: jid, id, answer | id. The engine gets no returns.
ANSWER, START, RETURN = "answer", "start", "return"


class Share:
    """
    Limits the bytes that one process takes from each minion in a second.

    So a minion that sends without end leaves room for the others.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._second = 0
        self._spent: dict[str, int] = {}

    def takes(self, minion: str, size: int) -> bool:
        """Return whether so many bytes of the minion are taken now."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._spent = second, {}
        spent = self._spent.get(minion, 0) + size
        if spent > self._most:
            return False
        self._spent[minion] = spent
        return True


class Notes:
    """Both ends of the pipe. Every process that forks from the one that made it has them."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _CAPACITY)
        self._rest = b""

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def write(self, *values: object, takes: Callable[[int], bool] | None = None) -> bool:
        """
        Write a note, whole or not at all; return whether it was written. It never waits.

        *takes* decides whether a note of so many bytes may be written.
        """
        line = json.dumps(values).encode() + b"\n"
        if len(line) > select.PIPE_BUF or (takes is not None and not takes(len(line))):
            return False
        try:
            os.write(self._write, line)
        except BlockingIOError:
            return False
        return True

    def read(self, timeout: float) -> list[list[Any]]:
        """Wait up to *timeout* seconds for notes; return the notes that are there."""
        select.select([self._read], [], [], max(0.0, timeout))
        try:
            data = self._rest + os.read(self._read, _CHUNK)
        except BlockingIOError:
            return []
        *lines, self._rest = data.split(b"\n")
        return [note for note in map(_parsed, lines) if note]


def _parsed(line: bytes) -> list[Any]:
    # The first line that an engine reads may be the end of a line that an earlier engine began.
    try:
        note = json.loads(line.decode())
    except (ValueError, RecursionError):
        return []
    return note if isinstance(note, list) else []


def is_sound(note: Sequence[Any]) -> bool:
    """Return whether a note has the form of its kind; it may be the end of another note."""
    match note:
        case ["start", str()] | ["answer", str(), str(), None | False]:
            return True
        case ["answer", str(), str(), dict(states)]:
            return all(isinstance(state, str) for state in states.values())
    return False


def heard(
    func: object, load: object, query: str, starts: Callable[[str], bool]
) -> tuple[Any, ...] | None:
    """
    Return the note about a message of a minion; None if it does not concern us.

    *func* is the function that the minion calls on its master. *load* may have any shape, except
    that the channel has verified its ``id``. *query* is the function of our queries, *starts*
    decides whether the tag of an event announces a start.
    """
    if not isinstance(load, Mapping) or not isinstance(load.get("id"), str):
        return None
    minion = load["id"]
    if func == "_return":
        jid = load.get("jid")
        # A return in the name of a resource is not a return of the minion itself.
        if not _is_jid(jid) or "resource_id" in load:
            return None
        if load.get("fun") == query:
            return _answer(jid, minion, load)
        return RETURN, jid, minion
    if func == "_minion_event" and any(map(starts, _tags(load))):
        return START, minion
    return None


def _tags(load: Mapping[Any, Any]) -> list[str]:
    events = load.get("events")
    found = [load.get("tag")]
    if isinstance(events, list | tuple):
        found += [event.get("tag") for event in events if isinstance(event, Mapping)]
    return [tag for tag in found if isinstance(tag, str)]


def _answer(jid: object, minion: str, load: Mapping[Any, Any]) -> tuple[Any, ...] | None:
    """
    Return the note of an answer: the states of jobs that a minion has.

    None if it does not have the function, and False if the function failed: it is asked again.
    """
    success = load.get("success", load.get("retcode", 0) == 0)
    answer = load.get("return")
    if success and isinstance(answer, Mapping):
        states = {
            each: state[:_LONGEST] if isinstance(state, str) else ""
            for each, state in answer.items()
            if _is_jid(each)
        }
        return ANSWER, jid, minion, states
    return ANSWER, jid, minion, None if inventory.is_lacking(answer) else False


# The most characters of a JID, and of the state of a job.
_LONGEST = 32


def _is_jid(jid: object) -> bool:
    return isinstance(jid, str) and 0 < len(jid) <= _LONGEST
