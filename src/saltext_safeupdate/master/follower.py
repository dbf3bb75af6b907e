"""The work of the master's engine: on each note of the workers, and at intervals."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from salt.exceptions import SaltException

from ..core.errors import RecordError, visible
from ..core.host import processes
from . import account as accounts
from . import aiming, notes
from .account import Account, Published
from .calls import Call, Calls
from .missed_jobs import Answer, Tracker
from .redelivery import Redelivery

log = logging.getLogger(__name__)

# Seconds between two looks for minions to ask, and for jobs to publish again.
INTERVAL = 1.0
# Seconds between two times that new returns are written down.
SETTLE_INTERVAL = 5.0
# The most publications in one interval.
MOST_AT_ONCE = 20
# Seconds after which keys are looked up in any case.
_KEYS_INTERVAL = 60.0
# Seconds between two complaints about a minion, and the most minions that are remembered for it.
_TELL_INTERVAL, _MOST_TOLD = 3600.0, 1000
# The most characters of an error in a report.
_LONGEST = 500


@dataclass
class _Asked:
    """The request of an administrator, and its results."""

    number: int
    until: float
    open: dict[str, set[str]]
    report: dict[str, Any] = field(
        default_factory=lambda: {
            "published": {},
            "accepted": {},
            "not_meant": {},
            "undecided": {},
            "no_answer": [],
            "not_set_up": [],
            "failed": {},
        }
    )


class _Accepted:
    """The minions whose keys are accepted, looked up when they may have changed."""

    def __init__(self, look: Callable[[], Collection[str]]) -> None:
        self._look = look
        self._known: frozenset[str] = frozenset()
        self._next = self._stale = 0.0

    def among(self, minions: list[str], now: float) -> list[str]:
        """Return the minions in *minions* whose keys are accepted."""
        if now >= self._stale or (now >= self._next and not self._known.issuperset(minions)):
            self._known = frozenset(self._look())
            self._next, self._stale = now + INTERVAL, now + _KEYS_INTERVAL
            if not self._known:
                # Salt also says so if it cannot read the keys. Until then, the minions that Salt
                # published to are waited for; Salt itself checks what goes out again.
                self._stale = now + INTERVAL
                log.warning("safeupdate: no key of a minion is accepted, or no key can be read")
        if not self._known:
            return minions
        if self._known.issuperset(minions):
            return minions
        return [minion for minion in minions if minion in self._known]


class Follower:
    """
    Follows the publications of this master, and publishes jobs again that minions have missed.

    *window* is how far it looks back, in seconds. *accepted* returns the minions whose keys are
    accepted: Salt also waits for others, which minions have made up. *renewed* is called if there
    is a new account, because the last one was unreadable or was removed.
    """

    def __init__(
        self,
        work: Redelivery,
        account: Account,
        calls: Calls,
        *,
        window: float,
        accepted: Callable[[], Collection[str]] | None = None,
        renewed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = processes.since_boot,
    ) -> None:
        self._work = work
        self._account = account
        self._calls = calls
        self._clock = clock
        self._window = window
        self._renewed = renewed
        self._accepted = _Accepted(accepted) if accepted else None
        self._tracker = Tracker(window=window)
        self._seen = self._file = 0
        self._stamp: tuple[int, ...] = ()
        self._again: dict[int, set[str]] = {}
        self._requests: list[_Asked] = []
        self._undecided: dict[str, float] = {}
        # Publications that still have to be written down, and whether some were ended.
        self._ended_some = False
        self._done: list[int] = []
        self._changed: dict[int, list[str]] = {}
        self._next_look = self._next_settling = 0.0

    def heard(self, taken: Iterable[list[Any]]) -> None:
        """Act on notes of the workers about messages of minions, with their verified IDs."""
        taken = list(filter(notes.is_sound, taken))
        if taken:
            self._learn()
        for kind, *values in taken:
            if kind == notes.RETURN:
                self._settled(*values)
            elif kind == notes.START:
                self._tracker.started(values[0], self._clock())
            elif kind == notes.ANSWER:
                self._answered(*values)

    def tick(self) -> None:
        """Do the work that is due; at most once a second."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + INTERVAL
        self._learn()
        self._publish_again()
        self._ask()
        self._end_requests()
        self._settle()

    # -- learning --------------------------------------------------------------

    def _learn(self) -> None:
        """Read new publications, if the account has changed."""
        stamp = self._account.stamp()
        if stamp == self._stamp:
            return
        if self._file and stamp[0] != self._file:
            self._start_anew()
        self._file = stamp[0]
        try:
            for one in self._account.since(self._seen):
                self._learn_of(one)
                self._seen = one.number
        except RecordError as err:
            log.error("safeupdate: %s", err)
            return
        self._stamp = stamp

    def _learn_of(self, one: Published) -> None:
        now = self._clock()
        waiting = one.waiting
        if self._accepted:
            waiting = self._accepted.among(waiting, now)
        for minion in waiting if one.ends else ():
            # Whether the minion hears of this or not: nobody wants the other job any more.
            ended = self._tracker.waiting(minion) if one.ends == accounts.ALL else [one.ends]
            for jid in ended:
                self._ended(jid, minion)
        if one.ends == accounts.ALL:
            # It is about this moment, and never published again.
            self._done.append(one.number)
        else:
            self._tracker.published(one.number, one.jid, waiting, now - one.age, one.times)

    def _start_anew(self) -> None:
        """Continue with a new account, whose numbers start again. Earlier data is forgotten."""
        self._tracker = Tracker(window=self._window)
        self._again.clear()
        # They have numbers of the account that is gone; their callers are told so.
        self._requests.clear()
        self._done, self._changed = [], {}
        self._seen = 0
        self._renewed()

    def _answered(self, query: str, minion: str, answer: object) -> None:
        meant = self._tracker.answered(query, minion, answer, self._clock())
        if meant is None:
            return
        for number in meant.missed:
            self._again.setdefault(number, set()).add(minion)
        if meant.undecided:
            self._cannot_decide(minion, meant.undecided)
        for request in self._requests:
            self._note(request, minion, answer, meant)

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

    def _ended(self, jid: str, minion: str) -> None:
        """A job was ended on a minion: if the minion has missed it, it does not get it any more."""
        self._ended_some = True
        for number, minions in self._again.items():
            if self._tracker.jid(number) == jid:
                minions.discard(minion)
        self._settled(jid, minion)

    def _settled(self, jid: str, minion: str) -> None:
        self._tracker.returned(jid, minion, self._clock())
        for request in self._requests:
            request.open.get(minion, set()).discard(jid)

    # -- acting ----------------------------------------------------------------

    def _ask(self) -> None:
        query = self._tracker.due(self._clock())
        if query is None:
            return
        try:
            targets = self._account.targets(query.numbers)
            gone = set(query.numbers).difference(targets)
            if gone:
                self._keep(self._account.numbers() - gone)
                self._ask()
                return
            jids = {number: self._tracker.jid(number) for number in targets}
            aims = aiming.asked(targets, jids, query.minions)
            jid = self._work.ask(query.minions, query.jids, aims)
        except (RecordError, SaltException, OSError) as err:
            log.error("safeupdate: minions cannot be asked what they missed: %s", err)
            jid = ""
        self._tracker.asked(jid, query, self._clock())

    def _keep(self, numbers: set[int]) -> None:
        """Forget all other publications: a full account has removed the oldest."""
        self._tracker.keep(numbers)
        for request in self._requests:
            for minion, jids in request.open.items():
                jids.intersection_update(self._tracker.waiting(minion))

    def _publish_again(self) -> None:
        for number in sorted(self._again)[:MOST_AT_ONCE]:
            minions = self._again.pop(number)
            jid = self._tracker.jid(number)
            # Since the answer, all minions have returned it, or it was ended, or is too old.
            if not jid or not minions:
                continue
            try:
                reached = self._work.publish(number, jid, minions, self._tracker.times(number))
            except (RecordError, SaltException, OSError) as err:
                log.error("safeupdate: job %s cannot be published again: %s", jid, err)
                self._tracker.not_sent(number, minions)
                for request in self._requests:
                    if not minions.isdisjoint(request.open):
                        request.report["failed"][jid] = visible(str(err))[:_LONGEST]
                continue
            for request in self._requests:
                mine = sorted(minion for minion in reached if minion in request.open)
                if mine:
                    listed = request.report["published"].setdefault(jid, [])
                    listed += [minion for minion in mine if minion not in listed]

    def _settle(self) -> None:
        """Write down which minions have returned, and delete finished publications."""
        now = self._clock()
        if now < self._next_settling:
            return
        self._next_settling = now + SETTLE_INTERVAL
        # Two changes in one tick of the kernel's clock look like one.
        self._stamp = ()
        # After the deletion of a job that ends another, nothing else tells that the other is over.
        self._changed |= self._tracker.take_changed(math.inf if self._ended_some else now)
        self._ended_some = False
        self._done += self._tracker.take_done()
        if self._done or self._changed:
            try:
                self._account.settle(self._done, self._changed)
            except RecordError as err:
                # They are written down the next time.
                log.error("safeupdate: %s", err)
                return
            self._done, self._changed = [], {}

    # -- requests of administrators --------------------------------------------

    def take(self, call: Call) -> None:
        """Look for missed jobs; the call is finished when the minions have answered."""
        # Everything that was published before the request counts.
        self._learn()
        now = self._clock()
        asked = {minion: set(self._tracker.waiting(minion)) for minion in call.given["minions"]}
        asked = {minion: jids for minion, jids in asked.items() if jids}
        for minion in asked:
            self._tracker.started(minion, now, forced=True)
        self._requests.append(_Asked(call.number, now + call.given["timeout"], asked))

    @staticmethod
    def _note(request: _Asked, minion: str, answer: Any, meant: Answer) -> None:
        """Note the result of an answer for a request."""
        if minion not in request.open:
            return
        report = request.report
        if meant.plain:
            report["not_set_up"].append(minion)
            request.open[minion].clear()
            return
        for name, jids in (("not_meant", meant.not_meant), ("undecided", meant.undecided)):
            for jid in request.open[minion].intersection(jids):
                report[name].setdefault(jid, []).append(minion)
        if answer is not False:
            known = report["accepted"].setdefault(minion, {})
            known |= {jid: answer[jid] for jid in meant.asked if jid in answer}
        request.open[minion].difference_update(meant.asked)

    def _end_requests(self) -> None:
        """Report requests that are answered completely, or whose time is up."""
        now = self._clock()
        for request in self._requests[:]:
            if self._again or (any(request.open.values()) and now < request.until):
                continue
            answered = {*request.report["accepted"], *request.report["not_set_up"]}
            silent = {minion for minion, jids in request.open.items() if jids}
            request.report["no_answer"] = sorted(silent - answered)
            request.report["not_set_up"].sort()
            try:
                self._calls.finish(request.number, request.report)
            except RecordError as err:
                # It is reported as soon as it can be written.
                log.error("safeupdate: %s", err)
                continue
            self._requests.remove(request)
