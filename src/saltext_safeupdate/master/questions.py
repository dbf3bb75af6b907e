"""
The master's own questions to minions, and their authenticated answers.

The engine publishes a question under a JID that it has made itself, to minions that it names.
An answer counts if the minion was asked, has not answered yet, and sent it itself: workers take it
after the channel has verified the sender (:mod:`.hooks`). The job cache and the event bus decide
nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from salt.exceptions import SaltException

from ..core.errors import InputError, one_line
from ..core.host import processes
from . import account as accounts
from . import replies
from .account import Account
from .calls import Call, Calls, call

log = logging.getLogger(__name__)

# The functions that minions are asked. Only their returns are passed on to the engine.
FUNCTIONS = frozenset(
    f"safeupdate.{name}"
    for name in (
        "check",
        "plan",
        "prefetch",
        "report",
        "request",
        "restart",
        "status",
        "unquarantine",
        "update",
        "withdraw",
    )
)
# The most minions of one publication: every minion of the master gets all their names.
MOST_MINIONS = 200
# Seconds between two publications, which limits the answers a second.
PACE = 0.2
# The most bytes of all answers to one question of a runner.
MOST_BYTES = 256 << 20
ASK = "ask"
# What is said if nobody could be asked: that is no silence of minions.
_REFUSED = (
    "This master does not publish the question, so no minion was asked: {}. Nothing was started. "
    "See the log of the master; if its 'publisher_acl_blacklist' keeps its own user, or functions "
    "of 'safeupdate', from being published, allow them there."
)

Heard = Callable[[str, bytes], object]
Refused = Callable[[str], object]
Publish = Callable[[str, Sequence[str], str, Sequence[Any]], object]


@dataclass
class _Question:
    """A question, and the number of publications whose answers are still awaited."""

    fun: str
    arg: Sequence[Any]
    timeout: float
    heard: Heard
    over: Callable[[], object]
    refused: Refused
    open: int = 0


@dataclass
class _Published:
    question: _Question
    until: float
    waiting: set[str] = field(default_factory=set)


class Questions:
    """
    Asks minions, for the engine of the master.

    *publish* publishes a function under a JID to minions, *jid* makes a JID. Times are from
    *clock*, which must not jump.
    """

    def __init__(
        self,
        publish: Publish,
        jid: Callable[[], str],
        *,
        clock: Callable[[], float] = processes.since_boot,
    ) -> None:
        self._publish = publish
        self._jid = jid
        self._clock = clock
        self._urgent: deque[tuple[_Question, list[str]]] = deque()
        self._outbox: deque[tuple[_Question, list[str]]] = deque()
        self._open: dict[str, _Published] = {}
        self._receiver = replies.Receiver()
        self._next = 0.0

    @property
    def idle(self) -> bool:
        """Nothing is asked."""
        return not (self._open or self._outbox or self._urgent)

    def put(
        self,
        minions: Iterable[str],
        fun: str,
        arg: Sequence[Any] = (),
        *,
        timeout: float,
        heard: Heard = lambda minion, packed: None,
        over: Callable[[], object] = lambda: None,
        refused: Refused = lambda why: None,
        urgent: bool = False,
    ) -> None:
        """
        Ask minions, at once or a little later: many are asked in several publications.

        *heard* gets each packed answer with its minion; *over* is called when all have answered or
        had *timeout* seconds. *refused* gets the reason why some of them could not be asked: these
        are not minions that do not answer. An *urgent* question is published before others.
        """
        names = sorted(set(minions))
        question = _Question(fun, arg, timeout, heard, over, refused)
        parts = [names[at : at + MOST_MINIONS] for at in range(0, len(names), MOST_MINIONS)]
        question.open = len(parts)
        (self._urgent if urgent else self._outbox).extend((question, part) for part in parts)
        if not parts:
            over()

    def heard(self, notes: Iterable[Sequence[Any]]) -> None:
        """Take notes of the workers: each is a part of an answer."""
        for note in notes:
            # The first line that an engine reads may be the end of an earlier engine's line.
            if list(map(type, note)) != [str, str, str, int, int, str]:
                continue
            jid, minion, token, number, count, text = note
            published = self._open.get(jid)
            if published is None or minion not in published.waiting:
                continue
            packed = self._receiver.part(jid, minion, token, number, count, text)
            if packed is None:
                continue
            self._receiver.forget(jid, [minion])
            published.waiting.discard(minion)
            published.question.heard(minion, packed)
            if not published.waiting:
                self._end(jid)

    def tick(self) -> None:
        """Publish questions that are due, and stop waiting if the time is up."""
        now = self._clock()
        for jid in [jid for jid, published in self._open.items() if now >= published.until]:
            self._end(jid)
        if now >= self._next and (self._urgent or self._outbox):
            self._next = now + PACE
            question, minions = (self._urgent or self._outbox).popleft()
            self._send(question, minions)

    def _send(self, question: _Question, minions: list[str]) -> None:
        jid = self._jid()
        # Before it is published: an answer may come at once.
        self._open[jid] = _Published(question, self._clock() + question.timeout, set(minions))
        try:
            self._publish(jid, minions, question.fun, question.arg)
        except (SaltException, OSError) as err:
            log.error(
                "safeupdate: %d minions cannot be asked %s: %s", len(minions), question.fun, err
            )
            question.refused(one_line(err) or type(err).__name__)
            self._end(jid)

    def _end(self, jid: str) -> None:
        published = self._open.pop(jid)
        self._receiver.forget(jid, published.waiting)
        published.question.open -= 1
        if not published.question.open:
            published.question.over()


@dataclass
class _Asked:
    """
    The question of a runner, and the answers since the last time they were written down.

    *number* is the call in the account with this *file*: in another file it is another call. *why*
    says why minions could not be asked, whether or not somebody was *heard*.
    """

    number: int
    file: int
    room: int = MOST_BYTES
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    over: bool = False
    heard: bool = False
    why: str = ""

    @property
    def outcome(self) -> dict[str, Any]:
        return {"error": _REFUSED.format(self.why)} if self.why and not self.heard else {}

    def refuse(self, why: str) -> None:
        self.why = why

    def hear(self, minion: str, packed: bytes) -> None:
        self.heard = True
        if len(packed) <= self.room:
            self.room -= len(packed)
            self.answers.append((minion, packed))

    def end(self) -> None:
        self.over = True


class Asker:
    """Asks questions of runners, in the engine, and writes the answers down for them."""

    def __init__(self, questions: Questions, calls: Calls) -> None:
        self._questions = questions
        self._calls = calls
        self._open: list[_Asked] = []

    def take(self, call: Call) -> None:
        """Ask the question of a runner. Only :func:`ask` writes its data, so it is sound."""
        given, asked = call.given, _Asked(call.number, self._file())
        self._open.append(asked)
        self._questions.put(
            given["minions"],
            given["fun"],
            given["arg"],
            timeout=given["timeout"],
            heard=asked.hear,
            over=asked.end,
            refused=asked.refuse,
        )

    def tick(self) -> None:
        """Write the answers down."""
        file = self._file() if self._open else 0
        for asked in self._open[:]:
            if file and asked.file != file:
                # Somebody has removed the account: the waiting runner sees that it is gone.
                self._open.remove(asked)
                continue
            if asked.answers:
                self._calls.add_answers(asked.number, asked.answers)
                asked.answers = []
            if asked.over:
                self._calls.finish(asked.number, asked.outcome)
                self._open.remove(asked)

    def _file(self) -> int:
        return self._calls.account.stamp()[0]


def ask(
    opts: Mapping[str, Any],
    minions: Iterable[str],
    fun: str,
    arg: Sequence[Any] | Mapping[str, Any] = (),
    timeout: float = 30.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, object]:
    """
    Let the engine of this master ask minions; return their own answers, by minion.

    It is for processes of runners: they wait for all answers, at most *timeout* seconds. Minions
    without an answer are missing; an error is a :class:`replies.Failed`. *arg* are the arguments,
    by place or by name. Raises InputError for a function that minions are not asked,
    SafeUpdateError without an engine, or if the master does not publish it.
    """
    if fun not in FUNCTIONS:
        raise InputError(f"Minions are not asked {fun}.")
    names = sorted(set(minions))
    if not names:
        return {}
    by_place = [{"__kwarg__": True, **arg}] if isinstance(arg, Mapping) else list(arg)
    calls = Calls(Account(accounts.path_of(opts)))
    given = {"minions": names, "fun": fun, "arg": by_place, "timeout": timeout}
    # The engine publishes one part of them after the other.
    patience = timeout + 2 * PACE * (len(names) / MOST_MINIONS)
    _, answers = call(calls, ASK, given, patience, clock=clock, pause=pause)
    return {minion: replies.unpack(packed) for minion, packed in answers}
