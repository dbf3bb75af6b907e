"""
Which published jobs minions have missed: the master's side of "exactly once".

The master sends a query to a minion that was away: which of these jobs has it accepted, and which
of the others are meant for it? Those are published to it again. Only the minion decides: the master
only knows which minions may be meant. Silence or an error decides nothing: a minion that does not
answer is asked again later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.jobs.meant import MEANT, NOT_MEANT, about
from . import minion_sets
from .minion_sets import Numbered

# Seconds that a job has to return before a query about it.
PATIENCE = 15.0
# Seconds until a minion that did not answer is asked again, doubled from the first to the last.
FIRST_INTERVAL = 30.0
LAST_INTERVAL = 600.0
# Seconds for which it is asked every minute after it has sent something: it lives, but may not
# receive. Salt notices a broken subscription after tcp_keepalive_idle, 300 s.
_HEARD, _HEARD_INTERVAL = 900.0, 60.0
# Seconds between two starts of a minion that both count.
START_INTERVAL = 10.0
# How often a job is published again to the same minion.
TIMES = 3
# The most publications and minions of one query. An answer has to fit into one note of a
# worker.
MOST_JOBS, MOST_MINIONS = 80, 200
# From this number of minions on, numbers are freed.
_RECYCLE_AT = 1000
# The number of queries whose answers count.
_QUERIES = 100
# The most returns of jobs that are not known yet, but may be written down at any moment.
_EARLY = 1000


class Query(NamedTuple):
    """Which minions to ask, for which jobs and their publications."""

    minions: list[str]
    jids: list[str]
    numbers: list[int]


@dataclass(frozen=True)
class Answer:
    """
    The meaning of a minion's answer.

    *missed* are the numbers of the publications that it has to get again, *asked* the jobs
    that it was asked for. *not_meant* are the ones of them for others, *undecided* the ones that it
    could not decide. *plain*: it has no ledger, so nobody knows which jobs it has run.
    """

    missed: list[int]
    asked: list[str]
    plain: bool = False
    not_meant: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Job:
    """
    A publication. Minions are *accepted* if they have it in their ledger, *undecided* if they could
    not say whether they are meant, *sent* if it has just been published to them again, and *spent*
    if they do not get it once more.
    """

    jid: str
    at: float
    waiting: int
    accepted: int = 0
    undecided: int = 0
    sent: int = 0
    sent_at: float = 0.0
    spent: int = 0
    times: dict[int, int] = field(default_factory=dict)
    changed: bool = False


@dataclass(slots=True)
class _Asked:
    """When a minion may be asked again, last sent something, and started."""

    at: float
    interval: float = FIRST_INTERVAL
    heard: float | None = None
    started: float | None = None


@dataclass(slots=True)
class _Sent:
    """A query that was published, and the minions that have not answered it."""

    jids: list[str]
    numbers: frozenset[int]
    minions: int


class Tracker:
    """
    Follows publications, and which minions have returned them.

    *window* is how far it looks back, in seconds. Times are from the caller's clock, which must not
    jump. A publication has a *number*; one JID may have several. From *recycle_at* minions on,
    those that have returned everything are forgotten.
    """

    def __init__(self, *, window: float, recycle_at: int = _RECYCLE_AT) -> None:
        self._window = window
        self._least = self._recycle_at = recycle_at
        self._jobs: dict[int, _Job] = {}
        self._by_jid: dict[str, list[int]] = {}
        self._minions = Numbered()
        self._asked: dict[int, _Asked] = {}
        self._wakes: list[tuple[float, int]] = []
        # Minions that are not asked now, that cannot answer, that have just started.
        self._resting = self._plain = self._fresh = 0
        self._queries: dict[str, _Sent] = {}
        self._done: list[int] = []
        self._early: dict[tuple[str, str], None] = {}

    # -- input -----------------------------------------------------------------

    def published(
        self,
        number: int,
        jid: str,
        minions: Iterable[str],
        at: float,
        times: Mapping[str, int] | None = None,
    ) -> set[str]:
        """Note a publication, which some got *times* again; return minions with early returns."""
        early = {minion for its, minion in self._early if its == jid}
        job = _Job(jid, at, self._minions.members(set(minions) - early if early else minions))
        job.changed = bool(early)
        for minion, count in (times or {}).items():
            bit = self._minions.number(minion)
            job.times[bit] = count
            if count >= TIMES:
                job.spent |= 1 << bit
        self._jobs[number] = job
        self._by_jid.setdefault(jid, []).append(number)
        if not job.waiting:
            self._drop(number)
        return early

    def returned(self, jid: str, minion: str, now: float) -> None:
        """Note a return; a minion that did not answer for long is asked again soon."""
        if jid not in self._by_jid:
            # A publication is written down after it was sent, and a minion may be very quick.
            self._early[jid, minion] = None
            if len(self._early) > _EARLY:
                del self._early[next(iter(self._early))]
        number = self._minions.find(minion)
        if number is None:
            return
        asked = self._asked.get(number)
        if asked is not None:
            asked.heard = now
            if asked.interval > FIRST_INTERVAL:
                asked.interval = FIRST_INTERVAL
                self._rest(number, asked, min(asked.at, now + FIRST_INTERVAL))
        bit = 1 << number
        for which in self._by_jid.get(jid, ())[:]:
            job = self._jobs[which]
            if job.waiting & bit:
                self._let_go(which, bit)

    def started(self, minion: str, now: float, *, forced: bool = False) -> None:
        """
        Note that a minion has started: it is asked at once, also about accepted jobs.

        After a second start shortly after the first, it is asked a little later, unless *forced*.
        """
        number = self._minions.find(minion)
        if number is None:
            return
        asked = self._asked.setdefault(number, _Asked(now))
        again = now if forced or asked.started is None else asked.started + START_INTERVAL
        bit = 1 << number
        if now < again:
            if again < asked.at:
                # It may never have received questions from before this start.
                self._fresh |= bit
                self._rest(number, asked, again)
            return
        asked.at, asked.interval = now, FIRST_INTERVAL
        asked.started = asked.started if forced else now
        self._plain &= ~bit
        self._resting &= ~bit
        self._fresh |= bit
        for job in self._jobs.values():
            job.accepted &= ~bit
            job.undecided &= ~bit
        # A late answer of the earlier process says nothing about this one.
        for query in self._queries.values():
            query.minions &= ~bit

    # -- queries ---------------------------------------------------------------

    def due(self, now: float) -> Query | None:
        """Return which minions to ask now, and for which jobs; None if nothing is due."""
        self._forget(now)
        self._wake(now)
        open_jobs = [(n, job.jid, self._unknown(job, now)) for n, job in self._jobs.items()]
        wanted = 0
        for _, _, minions in open_jobs:
            wanted |= minions
        chosen = minion_sets.lowest(wanted & ~(self._resting | self._plain), MOST_MINIONS)
        jids: dict[str, None] = {}
        numbers: list[int] = []
        meant = 0
        for number, jid, minions in open_jobs:
            if minions & chosen:
                meant |= minions & chosen
                jids[jid] = None
                numbers.append(number)
                if len(numbers) == MOST_JOBS:
                    break
        return Query(self._minions.listed(meant), list(jids), numbers) if meant else None

    def asked(self, jid: str, query: Query, now: float) -> None:
        """Note that *query* has been published as the job *jid*; empty if it could not be."""
        minions = self._minions.members(query.minions)
        if len(query.numbers) < MOST_JOBS:
            self._fresh &= ~minions
        for number in minion_sets.numbers(minions):
            asked = self._asked.setdefault(number, _Asked(now))
            heard = asked.heard is not None and now < asked.heard + _HEARD
            last = _HEARD_INTERVAL if heard else LAST_INTERVAL
            self._rest(number, asked, now + asked.interval)
            asked.interval = min(asked.interval * 2, last)
        if jid:
            self._queries[jid] = _Sent(query.jids, frozenset(query.numbers), minions)
            for old in list(self._queries)[:-_QUERIES]:
                del self._queries[old]

    def answered(self, jid: str, minion: str, answer: object, now: float) -> Answer | None:
        """
        Note an answer to the query *jid*; None if this minion was not asked, or has answered.

        The answer has the states of jobs by JID, and by :func:`about` whether others are meant for
        it. It is False if the minion failed, and anything else if it does not know the query.
        """
        query = self._queries.get(jid)
        number = self._minions.find(minion)
        if query is None or number is None or not query.minions >> number & 1:
            return None
        bit = 1 << number
        query.minions ^= bit
        asked = self._asked.setdefault(number, _Asked(now))
        if answer is False:
            # An error: it is asked again, as if it had not answered.
            return Answer([], query.jids, undecided=query.jids)
        if not isinstance(answer, Mapping):
            self._plain |= bit
            return Answer([], query.jids, plain=True)
        asked.interval = FIRST_INTERVAL
        self._rest(number, asked, now + FIRST_INTERVAL)
        if len(query.numbers) == MOST_JOBS:
            # There may be more jobs than fit into one query.
            self._resting &= ~bit
        found = Answer([], query.jids)
        for which in query.jids:
            mine = [n for n in self._by_jid.get(which, ()) if self._jobs[n].waiting & bit]
            if which in answer:
                for each in mine:
                    self._jobs[each].accepted |= bit
                continue
            said = {n: answer.get(about(n)) for n in mine if n in query.numbers}
            if NOT_MEANT in said.values():
                found.not_meant.append(which)
            if not {MEANT, NOT_MEANT}.issuperset(said.values()):
                found.undecided.append(which)
            again = self._judge(said, number)
            if again is not None:
                self._send_again(self._jobs[again], number, now)
                found.missed.append(again)
        return found

    def _judge(self, said: Mapping[int, object], minion: int) -> int | None:
        """Note a minion's answer about publications of one job; return the one to send again."""
        bit = 1 << minion
        for each, word in said.items():
            if word == NOT_MEANT:
                self._let_go(each, bit)
            elif word != MEANT:
                self._jobs[each].undecided |= bit
        # A minion runs the first publication of a JID that it gets.
        first = next((each for each, word in said.items() if word == MEANT), None)
        return None if first is None or self._jobs[first].spent & bit else first

    def not_sent(self, number: int, minions: Iterable[str]) -> None:
        """Note that a publication could not go out again: that does not count."""
        job = self._jobs.get(number)
        for known in minion_sets.numbers(self._minions.members(minions)):
            if job is not None:
                job.times[known] = max(0, job.times.get(known, 0) - 1)
                job.spent &= ~(1 << known)

    def waiting(self, minion: str) -> list[str]:
        """Return the jobs that this minion has not returned and may still get again."""
        number = self._minions.find(minion)
        bit = 0 if number is None else 1 << number
        return list({j.jid: None for j in self._jobs.values() if j.waiting & ~j.spent & bit})

    def jid(self, number: int) -> str:
        """Return the JID of a publication; empty if it is done or too old."""
        job = self._jobs.get(number)
        return job.jid if job else ""

    def times(self, number: int) -> dict[str, int]:
        """Return how often a publication was published again, by minion."""
        job = self._jobs.get(number)
        if job is None:
            return {}
        return {self._minions.name(number): count for number, count in job.times.items()}

    # -- data to write down ----------------------------------------------------

    def take_done(self) -> list[int]:
        """Return, once, the publications that all minions have returned or that are too old."""
        done, self._done = self._done, []
        return done

    def keep(self, numbers: Set[int]) -> None:
        """Forget all other publications: they are not written down any more."""
        for number in self._jobs.keys() - numbers:
            self._drop(number)

    def take_changed(self, now: float) -> dict[int, list[str]]:
        """Return, once, the minions without a return, for publications that are not quite new."""
        changed = {}
        for number, job in self._jobs.items():
            if job.changed and now >= job.at + PATIENCE:
                job.changed = False
                changed[number] = self._minions.listed(job.waiting)
        return changed

    def numbered(self) -> int:
        """Return how many numbers of minions there are, to watch over memory."""
        return self._minions.highest

    # -- time ------------------------------------------------------------------

    def _unknown(self, job: _Job, now: float) -> int:
        """Return the minions that may or may not have the job."""
        found = job.waiting & ~(job.accepted | job.undecided | job.spent)
        if job.sent:
            if now < job.sent_at + FIRST_INTERVAL:
                found &= ~job.sent
            else:
                job.sent = 0
        return found if now >= job.at + PATIENCE else found & self._fresh

    def _let_go(self, number: int, bit: int) -> None:
        """Do not wait for this minion any more."""
        job = self._jobs[number]
        job.waiting &= ~bit
        job.changed = True
        if not job.waiting:
            self._drop(number)

    def _send_again(self, job: _Job, number: int, now: float) -> None:
        job.sent |= 1 << number
        job.sent_at = now
        job.times[number] = job.times.get(number, 0) + 1
        if job.times[number] >= TIMES:
            job.spent |= 1 << number

    def _rest(self, number: int, asked: _Asked, until: float) -> None:
        asked.at = until
        self._resting |= 1 << number
        heapq.heappush(self._wakes, (until, number))

    def _wake(self, now: float) -> None:
        while self._wakes and self._wakes[0][0] <= now:
            _, number = heapq.heappop(self._wakes)
            asked = self._asked.get(number)
            if asked is None or asked.at <= now:
                self._resting &= ~(1 << number)

    def _forget(self, now: float) -> None:
        for number in [n for n, job in self._jobs.items() if job.at < now - self._window]:
            self._drop(number)
        if len(self._minions) > self._recycle_at:
            self._recycle()

    def _recycle(self) -> None:
        """Free the numbers of minions that have returned everything: some are gone forever."""
        live = 0
        for job in self._jobs.values():
            live |= job.waiting
        for number in self._minions.keep(live):
            self._asked.pop(number, None)
        for job in self._jobs.values():
            job.times = {n: count for n, count in job.times.items() if live >> n & 1}
            job.spent &= live
        for query in self._queries.values():
            query.minions &= live
        self._resting, self._plain = self._resting & live, self._plain & live
        self._fresh &= live
        self._recycle_at = max(self._least, 2 * len(self._minions))

    def _drop(self, number: int) -> None:
        job = self._jobs.pop(number)
        left = self._by_jid[job.jid]
        left.remove(number)
        if not left:
            del self._by_jid[job.jid]
        self._done.append(number)
