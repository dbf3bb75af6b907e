"""The work of the master's engine: on each note of the workers, and at intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from salt.exceptions import SaltException

from ..core.errors import RecordError, visible
from ..core.host import processes
from . import aiming, notes
from .account import Account
from .calls import Call, Calls
from .missed_jobs import Answer, MissedJobs
from .redelivery import Redelivery

log = logging.getLogger(__name__)

# Seconds between two looks for minions to ask, and for jobs to publish again.
INTERVAL = 0.5
# Seconds between two times that old publications are deleted.
FORGET_INTERVAL = 5.0
# The most publications in one interval.
MOST_AT_ONCE = 10
# The number of queries whose answers count.
_QUERIES = 100
# Seconds between two complaints about a minion, and the most minions that are remembered for it.
_TELL_INTERVAL, _MOST_TOLD = 3600.0, 1000
# The most characters of an error in a report.
_LONGEST = 500


@dataclass
class _Asked:
    """The request of an administrator, with the publications to ask about, and its results."""

    number: int
    until: float
    open: dict[str, set[int]]
    report: dict[str, Any] = field(
        default_factory=lambda: {
            "published": {},
            "accepted": {},
            "not_meant": {},
            "away": {},
            "given_up": {},
            "undecided": {},
            "no_answer": [],
            "not_set_up": [],
            "failed": {},
        }
    )

    def add(self, what: str, jid: str, minion: str) -> None:
        listed = self.report[what].setdefault(jid, [])
        if minion not in listed:
            listed.append(minion)


class Follower:
    """
    Follows the publications of this master, and publishes jobs again that minions have missed.

    *window* is how far it looks back, and *patience* how long those who wait for a job wait for a
    minion to say that it has it, in seconds. *renewed* is called if there is a new account, because
    the last one was unreadable or was removed.
    """

    def __init__(
        self,
        work: Redelivery,
        account: Account,
        calls: Calls,
        *,
        window: float,
        patience: float,
        renewed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = processes.since_boot,
    ) -> None:
        self._work = work
        self._account = account
        self._calls = calls
        self._clock = clock
        self._renewed = renewed
        self._limits = {"window": window, "patience": patience}
        self._missed = MissedJobs(**self._limits)
        self._seen = self._file = 0
        self._has_begun = False
        self._stamp: tuple[int, ...] = ()
        # Publications that go out again, and queries that are not answered: by minion.
        self._again: dict[int, set[str]] = {}
        self._queries: dict[str, dict[str, set[int]]] = {}
        self._requests: list[_Asked] = []
        self._undecided: dict[str, float] = {}
        self._old: list[int] = []
        self._next_look = self._next_forgetting = 0.0

    def heard(self, taken: Iterable[list[Any]]) -> None:
        """Act on notes of the workers about messages of minions, with their verified IDs."""
        taken = list(filter(notes.is_sound, taken))
        if taken:
            self._learn()
        for kind, *values in taken:
            if kind == notes.START:
                self._started(values[0])
            elif kind == notes.ANSWER:
                self._answered(*values)

    def tick(self) -> None:
        """Do the work that is due; at most twice a second."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + INTERVAL
        self._learn()
        self._publish_again()
        self._ask()
        self._end_requests()
        self._forget()

    # -- learning --------------------------------------------------------------

    def _learn(self) -> None:
        """Read new publications, if the account has changed."""
        stamp = self._account.stamp()
        if stamp == self._stamp and self._account.is_whole():
            return
        if self._file and stamp[0] != self._file:
            self._start_anew()
        self._file = stamp[0]
        try:
            if not self._account.is_whole():
                self._missed.keep(set())
                self._again.clear()
                self._account.begin_anew()
            for one in self._account.since(self._seen):
                self._missed.published(one, self._clock())
                self._seen = one.number
        except RecordError as err:
            log.error("safeupdate: %s", err)
            return
        self._stamp = stamp
        if not self._has_begun:
            self._has_begun = True
            self._missed.begun(self._clock())

    def _start_anew(self) -> None:
        """Continue with a new account, whose numbers start again. Earlier data is forgotten."""
        self._missed = MissedJobs(**self._limits)
        self._again.clear()
        self._queries.clear()
        # They have numbers of the account that is gone; their callers are told so.
        self._requests.clear()
        self._old = []
        self._seen = 0
        self._has_begun = False
        self._renewed()

    def _started(self, minion: str, *, forced: bool = False) -> None:
        self._missed.started(minion, self._clock(), forced=forced)
        # A late answer of the earlier process says nothing about this one.
        for asked in self._queries.values():
            asked.pop(minion, None)

    def _answered(self, query: str, minion: str, answer: object) -> None:
        numbers = self._queries.get(query, {}).pop(minion, None)
        if numbers is None:
            return
        found = self._missed.answered(minion, numbers, answer, self._clock())
        if found is None:
            return
        for number in found.missed:
            self._again.setdefault(number, set()).add(minion)
        if found.undecided:
            self._cannot_decide(minion, found.undecided)
        for request in self._requests:
            self._note(request, minion, numbers, found)

    def _cannot_decide(self, minion: str, jids: Iterable[str]) -> None:
        """Log from time to time that a minion cannot decide about targets."""
        now = self._clock()
        if now >= self._undecided.get(minion, 0.0):
            if len(self._undecided) >= _MOST_TOLD:
                self._undecided.clear()
            self._undecided[minion] = now + _TELL_INTERVAL
            log.warning(
                "safeupdate: %r cannot tell whether it was meant by %s, so these jobs are not "
                "published to it again. Does it have the same version of saltext-safeupdate as the "
                "master? Its log says more.",
                minion,
                ", ".join(jids),
            )

    # -- acting ----------------------------------------------------------------

    def _ask(self) -> None:
        now = self._clock()
        query = self._missed.due(now)
        if not query.numbers:
            return
        numbers, minions = query.all, sorted(query.numbers)
        try:
            targets = self._account.targets(numbers)
            if gone := set(numbers).difference(targets):
                # A full account has removed the oldest. It is asked again later.
                self._missed.keep(self._account.numbers() - gone)
            jids = {number: self._missed.jid(number) for number in targets}
            ages = self._missed.ages(targets, self._clock())
            aims = aiming.asked(targets, jids, ages, minions)
            jid = self._work.ask(minions, set(jids.values()), aims)
        except (RecordError, SaltException, OSError) as err:
            log.error("safeupdate: minions cannot be asked what they missed: %s", err)
            return
        if jid:
            self._queries[jid] = query.numbers
            for old in list(self._queries)[:-_QUERIES]:
                del self._queries[old]

    def _publish_again(self) -> None:
        now = self._clock()
        sent: set[str] = set()
        for number in sorted(self._again)[:MOST_AT_ONCE]:
            jid = self._missed.jid(number)
            if self._missed.asks(number) and sent:
                # A minion has to begin a job before it can say so.
                continue
            # Since the answer it was ended, or given up, or is too old.
            wanted = self._missed.still_open(number, self._again.pop(number), now)
            minions = self._work.waited_for(jid, wanted)
            self._tell("given_up", jid, wanted - minions)
            if not minions:
                continue
            try:
                reached = self._work.publish(number, jid, minions)
            except (RecordError, SaltException, OSError) as err:
                if self._is_gone(number):
                    log.warning(
                        "safeupdate: job %s is not published again: whoever has published it may "
                        "not do so any more, or it is too old for the account",
                        jid,
                    )
                    self._tell("given_up", jid, minions)
                    continue
                log.error("safeupdate: job %s cannot be published again: %s", jid, err)
                self._missed.not_sent(number, minions, now)
                for request in self._requests:
                    if not minions.isdisjoint(request.open):
                        request.report["failed"][jid] = visible(str(err))[:_LONGEST]
                continue
            sent.add(jid)
            self._tell("published", jid, reached)

    def _is_gone(self, number: int) -> bool:
        """Tell whether the account has the publication no more; if so, it is forgotten."""
        try:
            there = self._account.numbers()
        except RecordError:
            return False
        if number not in there:
            self._missed.keep(there)
        return number not in there

    def _tell(self, what: str, jid: str, minions: Iterable[str]) -> None:
        """Note what has happened to a job, for the requests that ask about these minions."""
        for request in self._requests:
            for minion in minions:
                if minion in request.open:
                    request.add(what, jid, minion)

    def _forget(self) -> None:
        """Delete what is too old to go out again."""
        now = self._clock()
        if now < self._next_forgetting:
            return
        self._next_forgetting = now + FORGET_INTERVAL
        # Two changes in one tick of the kernel's clock look like one.
        self._stamp = ()
        self._old += self._missed.forget(now)
        if self._old:
            try:
                self._account.delete(self._old)
            except RecordError as err:
                # They are deleted the next time.
                log.error("safeupdate: %s", err)
                return
            self._old = []

    # -- requests of administrators --------------------------------------------

    def take(self, call: Call) -> None:
        """Look for missed jobs; the call is finished when the minions have answered."""
        # Everything that was published before the request counts.
        self._learn()
        now = self._clock()
        request = _Asked(call.number, now + call.given["timeout"], {})
        for minion in call.given["minions"]:
            numbers, _ = self._missed.for_minion(minion, now)
            if numbers:
                request.open[minion] = numbers
                self._started(minion, forced=True)
        self._requests.append(request)

    def _note(self, request: _Asked, minion: str, numbers: set[int], found: Answer) -> None:
        """Note the result of an answer for a request."""
        if minion not in request.open:
            return
        if found.plain:
            request.report["not_set_up"].append(minion)
            request.open[minion].clear()
            return
        for name in ("not_meant", "away", "given_up", "undecided"):
            for jid in getattr(found, name):
                request.add(name, jid, minion)
        request.report["accepted"].setdefault(minion, {}).update(found.accepted)
        request.open[minion] -= numbers

    def _end_requests(self) -> None:
        """Report requests that are answered completely, or whose time is up."""
        now = self._clock()
        for request in self._requests[:]:
            if self._again or (any(request.open.values()) and now < request.until):
                continue
            answered = {*request.report["accepted"], *request.report["not_set_up"]}
            silent = {minion for minion, numbers in request.open.items() if numbers}
            request.report["no_answer"] = sorted(silent - answered)
            request.report["not_set_up"].sort()
            try:
                self._calls.finish(request.number, request.report)
            except RecordError as err:
                # It is reported as soon as it can be written.
                log.error("safeupdate: %s", err)
                continue
            self._requests.remove(request)
