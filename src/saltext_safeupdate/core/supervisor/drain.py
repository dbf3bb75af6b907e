"""The moment at which no job runs and none can start."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..host import processes
from ..host.wait import Wait
from ..record.update import Update
from .context import Context

_IDLE_INTERVAL = 0.2
_DELAY_INTERVAL = 1.0
# Seconds between two checks whether the wait is needless, which start programs.
_LOOK_INTERVAL = 60.0
# Seconds that new jobs are accepted at most between two periods in which they are held.
_LONGEST_ACCEPTED = 86_400.0

log = logging.getLogger("salt-safeupdate")


def let_pass(context: Context, update: Update) -> None:
    """Let the delay of a restart pass, unless it is cancelled."""
    deadline = context.monotonic() + update.progress.delay
    while (left := deadline - context.monotonic()) > 0 and not context.reread(update).phase.final:
        context.sleep(min(_DELAY_INTERVAL, left))


def take_baton(context: Context, update: Update) -> Update:
    """Return the record with the ``update`` lock held, or without it if the update has ended."""
    context.locks.update.exclusive()
    now = context.reread(update)
    if now.phase.final:
        context.locks.update.release()
    return now


def wait_until_idle(
    context: Context, update: Update, needless: Callable[[], bool] = lambda: False
) -> Update:
    """
    Wait until no job runs, without a time limit, or until that is *needless*.

    It alternates: new jobs are accepted for ``safeupdate:jobs_timeout`` seconds, then held for as
    long. So a job that takes longer than both gets its time, and the others run meanwhile. After
    jobs were held twice without success, the time for accepting them doubles before each further
    attempt, up to a day. So a job that hangs does not hold up the others half of the time forever.
    Return the record with every lock held, or without any if the update has ended meanwhile. If
    it is needless, only the ``update`` lock is held.
    """
    held = context.settings.jobs_timeout
    accepted, again = held, False
    while True:
        found = wait_for_jobs(context, update, accepted, needless)
        if found is None:
            context.locks.drain.exclusive()
            found = wait_for_jobs(context, update, held, needless)
        if found is not None:
            return found
        context.locks.drain.release()
        if not again:
            again = True
            continue
        accepted = max(held, min(2 * accepted, _LONGEST_ACCEPTED))
        log.warning(
            "A job has run for longer than new jobs may be held (%g s). They are accepted for %g s "
            "now, and the restart still waits. 'safeupdate.jobs' lists the job; "
            "'saltutil.kill_job' ends it, 'safeupdate.cancel' cancels the restart.",
            held,
            accepted,
        )


def wait_for_jobs(
    context: Context,
    update: Update,
    timeout: float | None = None,
    needless: Callable[[], bool] = lambda: False,
) -> Update | None:
    """
    Wait until no job runs, for *timeout* seconds at most; return None if some still run.

    The time-out defaults to ``safeupdate:jobs_timeout``.
    Return the record with every lock held, or without any if the update has ended meanwhile.
    """
    locks = context.locks
    if timeout is None:
        timeout = context.settings.jobs_timeout
    wait = Wait(timeout, context.monotonic)
    look_at = context.monotonic() + _LOOK_INTERVAL
    while not wait.over:
        if context.monotonic() >= look_at:
            if needless():
                locks.drain.release()
                return take_baton(context, update)
            look_at = context.monotonic() + _LOOK_INTERVAL
        if not _earlier_jobs_run(update) and _try_all(context):
            locks.update.exclusive()
            now = context.reread(update)
            if now.phase.final:
                locks.update.release()
                context.let_jobs_start()
            return now
        now = context.reread(update)
        if now.phase.final:
            locks.drain.release()
            return now
        context.sleep(_IDLE_INTERVAL)
    return None


def _try_all(context: Context) -> bool:
    """
    Take both locks, or neither. The update of another minion may hold new jobs of this one, too:
    it waits for the other lock.
    """
    locks = context.locks
    if not locks.jobs.try_exclusive():
        return False
    if locks.drain.try_exclusive():
        return True
    locks.jobs.release()
    return False


def _earlier_jobs_run(update: Update) -> bool:
    """Tell whether a job still runs that began before this extension was installed."""
    return any(processes.alive(who) for who in update.processes.values())
