"""Held jobs that nobody is known to have begun: how often they were queued, and what then."""

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
    Keeps what goes into a queue again and again from doing so for ever.

    *plain* tells that what is taken out of a queue runs without a word to the ledger.
    *give_up* reports a job, with the text that it is given.
    """

    ledger: Ledger
    recovery: Recovery
    give_up: Callable[[Job, str], None]
    plain: bool = False
    # How often each was put into a queue; 0 if that failed.
    _puts: dict[str, int] = field(default_factory=dict)

    def note(self, key: str, *, put: bool) -> None:
        """Note that a job was put into a queue, or could not be."""
        self._puts[key] = self._puts.get(key, 0) + put

    def forget(self, jobs: Collection[Job]) -> None:
        """Forget what was noted of all but the held ones of these *jobs*."""
        for key in self._puts.keys() - {job.key for job in jobs if job.state is State.HELD}:
            del self._puts[key]

    def decide(self, job: Job, queued: Callable[[], Collection[str]]) -> tuple[Action, str]:
        """Return what recovery says of a job, unless it was seen to here: then it waits."""
        if job.state is State.HELD and self._is_left_to_salt(job):
            if self.recovery.is_nowhere(job, queued):
                self._leave_to_salt(job)
            return Action.WAIT, ""
        action, reason = self.recovery(job, queued)
        if action is Action.RUN and job.awaits and self.plain:
            self.give_up(
                job,
                f"ERROR: Job {job.jid} ({job.fun}) was to go on behind a restart, and the minion "
                "runs without safeupdate since then. What it had done before stays done; the rest "
                "was not run. Look at what is missing, then publish it again.",
            )
            return Action.WAIT, ""
        if action is Action.RUN and self._puts.get(job.key, 0) >= MOST_STARTS:
            self.give_up(
                job,
                f"ERROR: Job {job.jid} ({job.fun}) was put into the queue of the minion "
                f"{MOST_STARTS} times, and nothing is recorded of its beginning. It is not "
                "started again. Look whether it ran and what it changed, then publish it again.",
            )
            return Action.WAIT, ""
        return action, reason

    def _is_left_to_salt(self, job: Job) -> bool:
        """Tell whether nobody writes down that it begins. What waits lies in no queue at first."""
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
            "" if put else ": it lies in no queue any more, and it is not known whether it ran",
        )
