"""
Which published jobs a minion has missed: the master's side of "exactly once".

The master sends a query to a minion that was away: which of these jobs has it accepted? The
others are published to it again. Silence decides nothing: a minion that does not answer is
asked again later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from . import functions

# Seconds that a job gets to return before a query is about it.
_PATIENCE = 15.0
# Seconds until a minion that did not answer is asked again, doubled from the first to the last.
_FIRST_INTERVAL = 30.0
_LAST_INTERVAL = 600.0
# Seconds for which it is asked every minute after it has sent something: it lives, but may not
# hear. Salt notices after tcp_keepalive_idle, 300 s, that a cut has broken a subscription.
_HEARD, _HEARD_INTERVAL = 900.0, 60.0
# How often a job is published again to the same minion.
_TIMES = 3
# Jobs that one query is about, at most.
_MOST = 500


@dataclass
class _Published:
    """A job, and how often it was published again to each minion that has not returned."""

    at: float
    waiting: dict[str, int]
    accepted: set[str] = field(default_factory=set)


@dataclass
class _Asked:
    """When a minion may be asked again; ``plain`` if it cannot answer."""

    at: float = 0.0
    interval: float = _FIRST_INTERVAL
    plain: bool = False
    heard: float = -_HEARD


@dataclass(kw_only=True)
class Tracker:
    """
    Follows the jobs and returns that the master's events tell of.

    *window* is how far it looks back, in seconds. Times are those of the caller's clock.
    """

    window: float
    _jobs: dict[str, _Published] = field(default_factory=dict)
    _minions: dict[str, _Asked] = field(default_factory=dict)
    _queries: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    # -- what happens ----------------------------------------------------------

    def published(self, jid: str, fun: object, minions: Iterable[str], now: float) -> None:
        """Note that a job has been published, perhaps again or to more minions."""
        if not functions.is_redelivered(fun):
            return
        job = self._jobs.get(jid)
        if job is None:
            self._jobs[jid] = _Published(now, dict.fromkeys(minions, 0))
        elif now < job.at + _PATIENCE:
            # A batch publishes its job in several parts.
            for minion in minions:
                job.waiting.setdefault(minion, 0)

    def returned(self, jid: str, minion: str, now: float) -> None:
        """Note a return: a minion that did not answer for long is asked again soon."""
        asked = self._minions.get(minion)
        if asked is not None:
            asked.heard = now
            if asked.interval > _FIRST_INTERVAL:
                asked.interval = _FIRST_INTERVAL
                asked.at = min(asked.at, now + _FIRST_INTERVAL)
        job = self._jobs.get(jid)
        if job is not None:
            job.waiting.pop(minion, None)
            if not job.waiting:
                del self._jobs[jid]

    def started(self, minion: str) -> None:
        """Note that a minion has started: it is asked at once, also for what it had accepted."""
        self._minions[minion] = _Asked()
        for job in self._jobs.values():
            job.accepted.discard(minion)

    # -- what is to be done ----------------------------------------------------

    def due(self, now: float) -> dict[str, list[str]]:
        """Return the minions to ask now, and the jobs that each query is about."""
        self._forget(now)
        found: dict[str, list[str]] = {}
        for jid in sorted(self._jobs):
            job = self._jobs[jid]
            for minion, times in job.waiting.items():
                asked = self._minions.setdefault(minion, _Asked(at=now + _PATIENCE))
                if asked.plain or now < asked.at or minion in job.accepted or times >= _TIMES:
                    continue
                fresh = asked.at and now < job.at + _PATIENCE
                if not fresh and len(found.get(minion, ())) < _MOST:
                    found.setdefault(minion, []).append(jid)
        return found

    def asked(self, query: str, jids: Mapping[str, list[str]], now: float) -> None:
        """Note that the query has been published as the job *query*."""
        self._queries[query] = dict(jids)
        for minion in jids:
            asked = self._minions.setdefault(minion, _Asked())
            asked.at = now + asked.interval
            last = _HEARD_INTERVAL if now < asked.heard + _HEARD else _LAST_INTERVAL
            asked.interval = min(asked.interval * 2, last)

    def answered(self, query: str, minion: str, answer: object, now: float) -> list[str]:
        """Return the jobs that the minion has missed: none if it cannot answer."""
        jids = self._queries.get(query, {}).pop(minion, [])
        asked = self._minions.setdefault(minion, _Asked())
        if not isinstance(answer, Mapping):
            # It has no ledger. Nobody knows what it has run, so nothing is published again.
            asked.plain = True
            return []
        asked.at, asked.interval = now + _FIRST_INTERVAL, _FIRST_INTERVAL
        missed = []
        for jid in jids:
            job = self._jobs.get(jid)
            if job is None or minion not in job.waiting:
                continue
            if jid in answer:
                job.accepted.add(minion)
            else:
                job.waiting[minion] += 1
                missed.append(jid)
        return missed

    def is_question(self, jid: str) -> bool:
        return jid in self._queries

    def _forget(self, now: float) -> None:
        for jid, job in list(self._jobs.items()):
            if job.at < now - self.window:
                del self._jobs[jid]
        for query in list(self._queries)[:-20]:
            del self._queries[query]


def missed(asked: Iterable[str], answer: object) -> list[str] | None:
    """Return the jobs of *asked* that a minion does not have; None if it cannot say."""
    if not isinstance(answer, Mapping):
        return None
    return [jid for jid in asked if jid not in answer]
