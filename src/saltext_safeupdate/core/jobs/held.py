"""Held jobs without a known start: how often they were queued, and what happens then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from . import functions
from .ledger import Job, Ledger, State
from .recovery import MOST_STARTS, Action, Recovery

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Held:
    """
    Keeps a job from being queued again and again forever.

    *plain*: a job that is taken out of a queue runs without telling the ledger.
    *give_up* reports a job, with the given text.
    """

    ledger: Ledger
    recovery: Recovery
    give_up: Callable[[Job, str], None]
    plain: bool = False
    # How often each job was put into a queue; 0 if that failed.
    _puts: dict[str, int] = field(default_factory=dict)

    def note(self, key: str, *, put: bool) -> None:
        """Note that a job was put into a queue, or could not be."""
        self._puts[key] = self._puts.get(key, 0) + put

    def forget(self, jobs: Collection[Job]) -> None:
        """Forget the notes about all jobs except the held ones of these *jobs*."""
        for key in self._puts.keys() - {job.key for job in jobs if job.state is State.HELD}:
            del self._puts[key]

    def decide(self, job: Job, queued: Callable[[], Collection[str]]) -> tuple[Action, str]:
        """Return the decision of recovery about a job; WAIT if it was handled here."""
        if job.state is State.HELD and self._is_left_to_salt(job):
            if self.recovery.is_nowhere(job, queued):
                self._leave_to_salt(job)
            return Action.WAIT, ""
        action, reason = self.recovery(job, queued)
        if action is Action.RUN and job.awaits and self.plain:
            self.give_up(
                job,
                f"ERROR: Job {job.jid} ({job.fun}) was to continue after a restart, and the minion "
                "has been running without safeupdate since then. The part that had run stays in "
                "effect; the rest was not run. Check what is missing, then publish it again.",
            )
            return Action.WAIT, ""
        if action is Action.RUN and self._puts.get(job.key, 0) >= MOST_STARTS:
            self.give_up(
                job,
                f"ERROR: Job {job.jid} ({job.fun}) was put into the queue of the minion "
                f"{MOST_STARTS} times, and its start was never recorded. It is not started "
                "again. Check whether it ran and what it changed, then publish it again.",
            )
            return Action.WAIT, ""
        return action, reason

    def _is_left_to_salt(self, job: Job) -> bool:
        """Tell whether its start is recorded nowhere. A waiting job is in no queue at first."""
        if not self.plain or job.awaits:
            return False
        puts = self._puts.get(job.key)
        return bool(puts) or (puts is None and not functions.waits_for_update(job.fun))

    def _leave_to_salt(self, job: Job) -> None:
        """Forget a job that plain Salt has taken out of its queue: it must not come back."""
        put = job.key in self._puts
        self.ledger.forget(job.key)
        log.warning(
            "safeupdate: job %s (%s) is left to plain Salt, without a record%s",
            job.jid,
            job.fun,
            "" if put else ": it is in no queue any more, and it is not known whether it ran",
        )
