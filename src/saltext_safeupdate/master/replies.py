"""
Returns of minions to our own questions: a worker shortens and splits them, the engine joins them.


An answer goes through a pipe of its own, in notes that are written whole or not at all. Only plain
data of a limited depth and size is kept, whatever a minion returns.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import secrets
import time
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from .notes import Notes, Share

# Limits of one answer: values, their depth, and characters in all and of one text.
MOST_VALUES, DEEPEST, MOST_TEXT, LONGEST = 5000, 8, 64 << 10, 4000
# The most characters of one part of an answer, which has to fit into a note, and the most parts.
_PART, MOST_PARTS = 2400, 48
# The most bytes of an unpacked answer: JSON may take twelve for one character.
_MOST_UNPACKED = 1 << 20
# The most answers of one minion to one question that may come at once.
MOST_AT_ONCE = 4
# The most bytes that one worker passes on for one minion in a second.
MOST_A_SECOND = 256 << 10
# Characters that a terminal would obey, in a text of a minion.
_CONTROLS = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Failed(str):
    """The text of a minion instead of an answer: it has no such function, or an error."""


class TooLarge(ValueError):
    """An answer is larger than any true answer."""


def of(load: Mapping[Any, Any], functions: Container[str]) -> tuple[str, str, str] | None:
    """
    Return JID, minion and packed answer of a minion's own return; None if it is no answer.

    :func:`.notes.heard` has made a note of *load*: its ``id`` and ``jid`` are sound, and the rest
    may have any shape. *functions* are the functions of our questions.
    """
    fun = load.get("fun")
    if not isinstance(fun, str) or fun not in functions:
        return None
    good = load.get("success", load.get("retcode", 0) == 0) is True
    try:
        answer = _Plain().copy(load.get("return"))
    except TooLarge as err:
        good, answer = False, f"Its answer to {fun} cannot be used: {err}."
    # A failed function returns a text. Salt also counts a mapping with an empty "result" as failed.
    good = good or isinstance(answer, dict)
    if not good and not isinstance(answer, str):
        answer = json.dumps(answer)
    text = json.dumps([good, answer], separators=(",", ":"))
    return load["jid"], load["id"], base64.b64encode(zlib.compress(text.encode(), 1)).decode()


class _Plain:
    """Copies data of any shape as plain data, within the limits."""

    def __init__(self) -> None:
        self._values, self._text = MOST_VALUES, MOST_TEXT

    def copy(self, value: object, depth: int = 0) -> Any:
        self._values -= 1
        if self._values < 0 or depth > DEEPEST:
            raise TooLarge("it has too many values, or too deep ones")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if abs(value) < 1 << 63 else 0
        if isinstance(value, float):
            return value if math.isfinite(value) else 0.0
        if isinstance(value, Mapping):
            return {self._short(key): self.copy(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.copy(each, depth + 1) for each in value]
        return self._short(value)

    def _short(self, value: object) -> str:
        text = value if isinstance(value, str) else f"<{type(value).__name__}>"
        self._text -= min(len(text), LONGEST)
        if self._text < 0:
            raise TooLarge("it is too long")
        return text[:LONGEST].translate(_CONTROLS).encode("utf-8", "replace").decode()


def unpack(packed: bytes) -> object:
    """
    Return the answer that a worker has packed: plain data, or :class:`Failed`.

    Anything that is no packed answer is a Failed, too.
    """
    try:
        good, answer = _decoded(packed)
    except ValueError:
        return Failed("Its answer cannot be read.")
    return answer if good else Failed(answer)


def _decoded(packed: bytes) -> tuple[bool, Any]:
    """Return whether it is an answer, and its content. Raises ValueError."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, _MOST_UNPACKED)
        found = json.loads(text)
    except (zlib.error, RecursionError) as err:
        raise ValueError(str(err)) from err
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("it is larger than any answer, or cut off")
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], bool):
        raise ValueError("it is no answer")
    good, answer = found
    if not good and not isinstance(answer, str):
        raise ValueError("it is no answer")
    return good, answer


class Sender:
    """
    Writes answers of minions to the engine, in a worker.

    No minion takes more than its share of the pipe *notes*.
    """

    def __init__(self, notes: Notes, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._share = Share(MOST_A_SECOND, clock)

    def send(self, jid: str, minion: str, text: str) -> bool:
        """Write an answer; return whether it was written. It never waits."""
        parts = [text[at : at + _PART] for at in range(0, len(text), _PART)]
        if len(parts) > MOST_PARTS or not self._share.takes(minion, len(text)):
            return False
        # A minion may have two answers under way, by two workers.
        token, count = secrets.token_hex(6), len(parts)
        return all(
            self._notes.write(jid, minion, token, n, count, part) for n, part in enumerate(parts)
        )


class Receiver:
    """
    Joins the parts of answers in the engine.

    Give it only parts of awaited answers: it keeps all of these, and a few incomplete ones of each
    minion.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], dict[str, list[str]]] = {}

    def part(
        self, jid: str, minion: str, token: str, number: int, count: int, text: str
    ) -> bytes | None:
        """
        Return the packed answer if this was its last part; None if more parts have to come.

        *token* identifies the answer: several of one minion may come at once. An unreadable part is
        ignored.
        """
        answers = self._begun.setdefault((jid, minion), {})
        if number == 0:
            answers[token] = []
            if len(answers) > MOST_AT_ONCE:
                del answers[next(iter(answers))]
        parts = answers.get(token)
        if parts is None or len(parts) != number or not 0 < count <= MOST_PARTS:
            # An earlier part did not fit into the pipe.
            answers.pop(token, None)
            return None
        parts.append(text)
        if len(parts) < count:
            return None
        del answers[token]
        with contextlib.suppress(ValueError):
            packed = base64.b64decode("".join(parts), validate=True)
            _decoded(packed)
            return packed
        return None

    def forget(self, jid: str, minions: Iterable[str]) -> None:
        """Drop parts of answers that nobody waits for any more."""
        for minion in minions:
            self._begun.pop((jid, minion), None)
