"""
Which of the recent publications a minion may have missed, and may still get.

A minion is asked when it starts. Only the minion decides: the master only knows for which minions a
publication may be, and that nobody has given it up. Salt's clients let the master ask after the
jobs that they wait for (``saltutil.find_job``), and give up a minion that does not answer in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from ..core.jobs.meant import AWAY, MISSED, NOT_MEANT, about
from .account import ALL, Published

# Seconds until a minion that did not answer is asked again; then twice as long, and so on.
FIRST_INTERVAL = 10.0
# Seconds between two questions to a minion that starts again and again.
START_INTERVAL = 2.0
# Seconds after a start for which earlier publications may still be written down.
_LATE = 4.0
# The most publications and minions of one query. An answer has to fit into one note of a worker.
MOST_JOBS, MOST_MINIONS = 80, 200


@dataclass
class Query:
    """Publications that minions are asked about, by minion. Each has its number."""

    numbers: dict[str, set[int]] = field(default_factory=dict)

    @property
    def all(self) -> list[int]:
        return sorted(set().union(*self.numbers.values()))


@dataclass(frozen=True)
class Answer:
    """
    The meaning of a minion's answer about publications.

    It has *missed* the ones with these numbers, and has *accepted* these jobs, in these states.
    Others were *not_meant* for it, came while it was *away*, were *given_up* since, or are
    *undecided*. *plain*: it has no ledger, so nobody knows which jobs it has run.
    """

    missed: list[int] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    not_meant: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    plain: bool = False


@dataclass
class _Started:
    """A minion that has started: when it is asked next, and what it need not be asked any more."""

    since: float
    at: float
    # When it was asked last, perhaps after an earlier start.
    asked: float = -math.inf
    interval: float = FIRST_INTERVAL
    done: set[int] = field(default_factory=set)
    # The publications that are left, and the newest one when these were found.
    left: list[int] = field(default_factory=list)
    newest: int = -1


class MissedJobs:
    """
    The publications of the last *window* seconds, and the minions to ask about them.

    A client that waits for a job gives a minion *patience* seconds to answer that it has it. Times
    are from the caller's clock, which must not jump.
    """

    def __init__(self, *, window: float, patience: float) -> None:
        self._window, self._patience = window, patience
        self._recent: dict[int, tuple[float, Published]] = {}
        self._newest = 0
        self._started: dict[str, _Started] = {}

    # -- input -----------------------------------------------------------------

    def published(self, one: Published, now: float) -> None:
        self._recent[one.number] = (now - one.age, one)
        self._newest = one.number

    def started(self, minion: str, now: float, *, forced: bool = False) -> None:
        """Note a start of a minion: it is asked soon, at once if *forced*."""
        last = self._started.get(minion)
        asked = -math.inf if last is None else last.asked
        at = now if forced else max(now, asked + START_INTERVAL)
        self._started[minion] = _Started(now, at, asked)

    def forget(self, now: float) -> list[int]:
        """Forget what is older than the window; return the numbers of these publications."""
        before = now - self._window
        gone = [number for number, (at, _) in self._recent.items() if at < before]
        for number in gone:
            del self._recent[number]
        for minion in [name for name, each in self._started.items() if each.since < before]:
            del self._started[minion]
        return gone

    def keep(self, numbers: set[int]) -> None:
        """Forget all other publications: a full account has removed them."""
        for number in self._recent.keys() - numbers:
            del self._recent[number]

    def begun(self, now: float) -> None:
        """Ask all minions: their starts may have been told to an engine that has ended since."""
        for _, one in self._recent.values():
            for minion in one.minions if one.again else ():
                if minion not in self._started:
                    self.started(minion, now)

    # -- what is given up ------------------------------------------------------

    def for_minion(self, minion: str, now: float) -> tuple[set[int], set[int]]:
        """
        Return the publications that were for this minion and may go out again.

        And the ones of them that nobody has given up, with what asks after them.
        """
        jobs: dict[int, str] = {}
        ends: list[Published] = []
        asked: dict[str, tuple[float, int]] = {}
        for number, (at, one) in self._recent.items():
            if minion not in one.minions:
                continue
            if one.ends:
                ends.append(one)
            if one.asks:
                asked[one.asks] = (at, number)
            elif one.again:
                jobs[number] = one.jid
        given_up = {n for n, jid in jobs.items() if any(_is_ended(n, jid, one) for one in ends)}
        questions = set()
        for number in jobs.keys() - given_up if asked else ():
            at, question = asked.get(jobs[number], (math.inf, 0))
            if self._is_over(at, now):
                given_up.add(number)
            elif question:
                questions.add(question)
        return set(jobs), (jobs.keys() - given_up) | questions

    def still_open(self, number: int, minions: Iterable[str], now: float) -> set[str]:
        """Return the minions for which nobody has given up a publication by now."""
        at, one = self._recent.get(number, (-math.inf, None))
        if one is None or one.asks:
            # The job itself has gone out.
            return set(minions) if now < at + self._patience else set()
        left, given_up = one.minions.intersection(minions), set[str]()
        for at, other in self._recent.values():
            if other.ends and _is_ended(number, one.jid, other):
                left -= other.minions
            if other.asks == one.jid:
                given_up -= other.minions
                given_up |= other.minions if self._is_over(at, now) else set()
        return set(left - given_up)

    def _is_over(self, asked: float, now: float) -> bool:
        """Tell whether those who asked at that time have given up by now."""
        # An answer also needs time.
        return now >= asked + self._patience / 2

    # -- queries ---------------------------------------------------------------

    def due(self, now: float) -> Query:
        """Return which minions to ask now, about which publications; empty if nothing is due."""
        found, jobs = Query(), set[int]()
        for minion, start in self._started.items():
            if now < start.at:
                continue
            self._find_left(minion, start, now)
            if not start.left and now > start.since + _LATE:
                start.at = math.inf
            for number in start.left:
                if number in jobs or len(jobs) < MOST_JOBS:
                    jobs.add(number)
                    found.numbers.setdefault(minion, set()).add(number)
            if len(found.numbers) == MOST_MINIONS:
                break
        for minion in found.numbers:
            start = self._started[minion]
            start.at, start.interval = now + start.interval, 2 * start.interval
            start.asked = now
        return found

    def _find_left(self, minion: str, start: _Started, now: float) -> None:
        """Find the publications from before this start that it is still to be asked about."""
        # The minion has heard what is published later.
        if start.newest != self._newest and (start.newest < 0 or now <= start.since + _LATE):
            found = set[int]().union(*self.for_minion(minion, now))
            start.left = sorted(n for n in found if self._recent[n][0] <= start.since)
            start.newest = self._newest
        start.left = [n for n in start.left if n not in start.done and n in self._recent]
        if now > start.since + _LATE:
            start.done.clear()

    def answered(self, minion: str, numbers: Set[int], answer: object, now: float) -> Answer | None:
        """
        Note an answer about these publications; None if it decides nothing.

        It has the states of jobs by JID, and by :func:`about` what a minion says of others. It is
        False if the minion failed, and anything else if it does not know the question.
        """
        if answer is False:
            # It is asked again, as if it had not answered.
            return None
        if not isinstance(answer, Mapping):
            self._is_answered(minion, self._recent.keys(), now)
            return Answer(plain=True)
        found, taken = Answer(), set[str]()
        # Most minions have all of them.
        still = self.for_minion(minion, now)[1] if MISSED in answer.values() else set()
        for number in sorted(numbers & self._recent.keys()):
            one = self._recent[number][1]
            jid = one.jid
            if jid in answer and not one.asks:
                found.accepted[jid] = answer[jid]
                continue
            said = answer.get(about(number))
            if one.asks and said != MISSED:
                """It only matters with its job."""
            elif said == MISSED:
                # A minion runs the first publication of a JID that it gets.
                if number not in still:
                    found.given_up.append(jid)
                elif jid not in taken:
                    found.missed.append(number)
                    taken.add(jid)
            else:
                lists = {NOT_MEANT: found.not_meant, AWAY: found.away}
                lists.get(str(said), found.undecided).append(jid)
        self._is_answered(minion, numbers, now)
        return found

    def _is_answered(self, minion: str, numbers: Iterable[int], now: float) -> None:
        start = self._started.get(minion)
        if start is not None:
            start.done.update(numbers)
            # There may be more than fits into one query.
            start.at, start.interval = now, FIRST_INTERVAL

    def not_sent(self, number: int, minions: Iterable[str], now: float) -> None:
        """Note that a publication could not go out again: its minions are asked again later."""
        for minion in minions:
            start = self._started.get(minion)
            if start is not None:
                start.done.discard(number)
                start.left = sorted({*start.left, number})
                start.at = now + start.interval

    def jid(self, number: int) -> str:
        """Return the JID of a publication; empty if it is too old."""
        found = self._recent.get(number)
        return found[1].jid if found else ""

    def asks(self, number: int) -> bool:
        """Tell whether a publication only asks after a job."""
        found = self._recent.get(number)
        return bool(found and found[1].asks)

    def ages(self, numbers: Iterable[int], now: float) -> dict[int, float]:
        """Return how many seconds ago these were published."""
        return {n: now - self._recent[n][0] for n in numbers if n in self._recent}


def _is_ended(number: int, jid: str, end: Published) -> bool:
    """
    Tell whether a publication ends that job.

    Workers of a master, and a syndic, may be faster with the end of a job than with the job.
    """
    if end.ends == ALL:
        return end.number > number or end.jid > jid
    return end.ends == jid
