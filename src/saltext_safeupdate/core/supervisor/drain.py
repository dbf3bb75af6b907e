"""The moment at which no job runs and none can start."""

from __future__ import annotations

from ..host import processes
from ..record.update import Update
from .context import Means

_IDLE_INTERVAL = 0.2


def wait(means: Means, update: Update) -> Update:
    """
    Wait until nothing runs, first as it comes, then with new jobs held, and so on.

    A job that takes longer than both gets its time: the others start again meanwhile. Return
    the record with every lock held, or without where it has ended meanwhile.
    """
    while True:
        for draining in (False, True):
            if draining:
                means.drain.exclusive()
            found = within(means, update)
            if found is not None:
                return found
        means.drain.release()


def within(means: Means, update: Update) -> Update | None:
    """Wait for that moment as long as an update may; None where it has not come."""
    deadline = means.clock() + means.settings.jobs_timeout
    while means.clock() < deadline:
        if not _older_jobs(update) and means.jobs.try_exclusive():
            means.drain.exclusive()
            means.baton.exclusive()
            now = means.now(update)
            if now.phase.final:
                means.baton.release()
                means.open()
            return now
        now = means.now(update)
        if now.phase.final:
            means.drain.release()
            return now
        means.sleep(_IDLE_INTERVAL)
    return None


def _older_jobs(update: Update) -> bool:
    """Tell whether a job still runs that began without a hold on the lock of the jobs."""
    return any(processes.alive(str(who)) for who in update.extra.get("processes", {}).values())
