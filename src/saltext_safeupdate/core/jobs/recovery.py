"""Recovery: what happens to a job whose process is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from enum import Enum
from fnmatch import fnmatchcase

from ..frozen import frozen
from ..host import processes
from . import functions
from .ledger import Job, State
from .suspension import Suspension

# Seconds that the minion gets to put a job into a queue, or to take it out and record that.
HAND_OVER = 10.0
# A job that ended this many times before its function began is given up.
MOST_STARTS = 5
# Seconds after which a job that was accepted and has not begun is started again.
NOT_BEGUN = 120.0
# Seconds after a start in which Salt itself may resume jobs, if it is configured to do so.
STAND_DOWN = 600.0


class Action(Enum):
    """The action of the engine for a job."""

    WAIT = "wait"
    RUN = "run"
    REPORT = "report"


@frozen
class Recovery:
    """
    Decides from the records and from the processes that are alive.

    *attempts* limits the starts of a job, *rerun* lists patterns of functions that may run twice.
    *stand_down* is for 'resume_jobs_on_restart': Salt resumes interrupted jobs, and only a job that
    it has not resumed long after *since* is reported. *wait_is_over* tells whether a job that waits
    for an update has waited enough. *was_idle* tells whether the minion of a job was restarted when
    no job ran any more. *since* and *clock* use a clock that nobody sets. *uptime* returns the
    seconds since the boot.
    """

    attempts: int
    rerun: Iterable[str]
    stand_down: bool = False
    since: float = 0.0
    wait_is_over: Callable[[Job], bool] = lambda job: True
    was_idle: Callable[[Job], bool] = lambda job: False
    clock: Callable[[], float] = time.monotonic
    alive: Callable[[str], bool] = processes.alive
    uptime: Callable[[], float] = processes.since_boot
    # Since when held jobs have been in no queue, and accepted ones have not begun.
    _missing: dict[tuple[str, State], float] = field(default_factory=dict)

    def __call__(self, job: Job, queued: Callable[[], Collection[str]]) -> tuple[Action, str]:
        """
        Return the action and, for a report, its reason.

        *queued* returns the JIDs of the jobs in Salt's queues.
        """
        if job.awaits and job.state in (State.HELD, State.RUNNING) and not self.alive(job.runner):
            # It continues after a restart, even if it could not record its end.
            waits = Suspension.of(job.awaits)
            if waits.ended:
                return Action.REPORT, waits.ended
            over = waits.is_over(self.alive, self.uptime)
            return (Action.RUN if over else Action.WAIT), ""
        if job.state is State.HELD:
            return self._held(job, queued), ""
        if job.state is State.ACCEPTED:
            # It has not begun, so any function may run.
            gone = not self.alive(job.owner) or self._for_long(job, NOT_BEGUN)
            return (Action.RUN if gone else Action.WAIT), ""
        if job.state is State.RUNNING and not self.alive(job.runner):
            return self._interrupted(job)
        return Action.WAIT, ""

    def _held(self, job: Job, queued: Callable[[], Collection[str]]) -> Action:
        if functions.waits_for_update(job.fun):
            over = self.wait_is_over(job) and job.jid not in queued()
            return Action.RUN if over else Action.WAIT
        # Somebody has emptied the queue, or it could not be written because the disk was full.
        return Action.RUN if self.is_nowhere(job, queued) else Action.WAIT

    def is_nowhere(self, job: Job, queued: Callable[[], Collection[str]]) -> bool:
        """Tell whether a held job is in no queue, and was not just taken out of one."""
        if job.jid in queued():
            self._missing.pop((job.key, job.state), None)
            return False
        return self._for_long(job, HAND_OVER)

    def _for_long(self, job: Job, seconds: float) -> bool:
        """Tell whether it has been in this state for that many seconds."""
        now, found = self.clock(), (job.key, job.state)
        if now < self._missing.setdefault(found, now) + seconds:
            return False
        del self._missing[found]
        return True

    def forget(self, jobs: Collection[Job]) -> None:
        """Forget the notes about all jobs except these *jobs*."""
        for found in self._missing.keys() - {(job.key, job.state) for job in jobs}:
            del self._missing[found]

    def _interrupted(self, job: Job) -> tuple[Action, str]:
        if self.alive(job.owner) or self.was_idle(job):
            return Action.REPORT, (
                "its process ended while the minion continued to run: it was killed, by hand, by "
                "'saltutil.kill_job' or because memory ran out"
            )
        if self.stand_down:
            if self.clock() < self.since + STAND_DOWN:
                return Action.WAIT, ""
            return Action.REPORT, "the minion was stopped while it ran, and Salt did not resume it"
        return self._again(job) if job.has_begun else self._not_begun(job)

    def _again(self, job: Job) -> tuple[Action, str]:
        """It may have begun: it runs again if its function may, but not forever."""
        if not self.may_rerun(job.fun):
            return Action.REPORT, (
                "the minion was stopped while it ran, and this function is not listed in "
                "'safeupdate:rerun'"
            )
        if job.attempts >= self.attempts:
            return Action.REPORT, (
                f"the minion was stopped while it ran, {job.attempts} times in a row, and "
                f"'safeupdate:attempts' is {self.attempts}"
            )
        return Action.RUN, ""

    def _not_begun(self, job: Job) -> tuple[Action, str]:
        """Nothing of it has run, so any function may run."""
        if job.attempts < max(MOST_STARTS, self.attempts):
            return Action.RUN, ""
        return Action.REPORT, f"the minion was stopped {job.attempts} times as it began"

    def may_rerun(self, fun: str) -> bool:
        return functions.is_resumable(fun) or any(
            fnmatchcase(fun, pattern) for pattern in self.rerun
        )


def interruption(job: Job, reason: str, now: float, *, transactional: bool = False) -> str:
    """
    Return the report to the master about a job that was interrupted and not run again.

    *transactional*: the job may have run in a transaction that nobody closes any more.
    """
    if not (job.attempts or job.has_begun):
        return f"ERROR: Job {job.jid} ({job.fun}) was held, and was not run: {reason}."
    told = (
        f"ERROR: Job {job.jid} ({job.fun}) was interrupted: {reason}. It began at "
        f"{_time(job.changed)} (attempt {job.attempts}) and was found interrupted at {_time(now)}."
    )
    if not job.has_begun:
        return f"{told} Its function had not begun, so nothing was done. Publish it again."
    unless = ", unless it was in a transaction that was not closed" if transactional else ""
    return (
        f"{told} The part that had run stays in effect{unless}; the job was not run again. Check "
        "what it changed, then publish it again."
    )


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
