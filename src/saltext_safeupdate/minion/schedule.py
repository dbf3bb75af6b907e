"""Jobs of the minion's own schedule. No master published them, so they are not recorded."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.jobs import current
from ..core.jobs.admission import Admission
from ..patches import instead
from . import scheduled_times
from .single import Single

if TYPE_CHECKING:
    from .succession import Succession

log = logging.getLogger(__name__)


class Scheduled:
    """
    Gives a scheduled job its share of the jobs lock, and leaves it out while jobs are held.

    While two generations of the minion check their schedules, one of them starts each job.
    """

    def __init__(self, admission: Admission, succession: Succession | Single) -> None:
        self._admission = admission
        self._succession = succession
        # Whether the running job is due; otherwise somebody wants it now.
        self._looks = False
        # The jobs that were logged as left out, with the time at which they were due.
        self._left_out: set[tuple[str, datetime.datetime]] = set()
        # The first check while jobs are held; None while they are not.
        self._held_at: datetime.datetime | None = None

    def evaluate(
        self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Check which jobs are due, unless they could not start now."""
        if self._admission.holding():
            now = datetime.datetime.now()
            self._held_at = self._held_at or now
            self._tell_of_left_out(getattr(schedule, "opts", None) or {}, self._held_at, now)
            return None
        self._held_at = None
        self._looks = True
        try:
            return original(schedule, *args, **kwargs)
        finally:
            self._looks = False

    def _tell_of_left_out(
        self, opts: Mapping[str, Any], held_at: datetime.datetime, now: datetime.datetime
    ) -> None:
        """Log the jobs that were due only at this time: Salt does not run them later."""
        # Jobs that became due between the last check and this one are left out as well.
        since = held_at - 2 * scheduled_times.interval(opts)
        for name, job in scheduled_times.of_one_time(opts):
            for at in scheduled_times.of(job, opts):
                if since <= at <= now and not scheduled_times.has_run(job, at):
                    self._tell(name, job, at)

    def _tell(self, name: str, job: Mapping[str, Any], at: datetime.datetime) -> None:
        if (name, at) not in self._left_out:
            self._left_out.add((name, at))
            log.warning(
                "safeupdate: the scheduled job %s (%s) was due at %s and is left out: the "
                "minion is updated or restarts. Salt does not run it later; run it by hand if "
                "it is needed.",
                name,
                job.get("function"),
                at,
            )

    def run(
        self,
        original: Callable[..., Any],
        schedule: Any,
        func: str,
        data: Mapping[str, Any],
        *rest: Any,
        **kwargs: Any,
    ) -> Any:
        """Run a job."""
        if data.get("dry_run"):
            return original(schedule, func, data, *rest, **kwargs)
        if self._looks and not self._succession.starts(*_due(schedule, data)):
            instead(original)
            return None
        lock, may_start = self._admission.share()
        if not may_start:
            instead(original)
            if scheduled_times.is_of_one_time(data):
                now = datetime.datetime.now()
                due = [at for at in scheduled_times.of(data, schedule.opts) if at <= now]
                self._tell(str(data.get("name")), data, max(due, default=now))
            else:
                log.info("safeupdate: a scheduled job is left out while the minion is updated")
            return None
        job = current.Job(jid="", lock=lock)
        opts = schedule.opts
        if opts.get("run_schedule_jobs_in_background", True) and not opts.get(
            "multiprocessing", True
        ):
            return _in_thread(job, original, schedule, func, data, *rest, **kwargs)
        previous = current.get()
        current.begin(job)
        try:
            return original(schedule, func, data, *rest, **kwargs)
        finally:
            # A child has the open file, too.
            current.end()
            if previous is not None:
                current.begin(previous)


def _due(schedule: Any, data: Mapping[str, Any]) -> tuple[str, float]:
    """Return a job's name with its due time, and that time; empty and 0.0 without such a time."""
    at = scheduled_times.last_of(data, schedule.opts, datetime.datetime.now())
    return ("", 0.0) if at is None else (f"schedule {data.get('name')} {at}", at.timestamp())


def _in_thread(
    job: current.Job, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any
) -> Any:
    """Make the thread that Salt starts for a job keep its share until the job has ended."""
    handle = schedule.handle_func

    def work(*handed: Any) -> Any:
        current.begin(job)
        try:
            return handle(*handed)
        finally:
            current.end()

    # Salt gives the thread what it finds in the object.
    schedule.handle_func = work
    try:
        return original(schedule, *args, **kwargs)
    except BaseException:
        if job.lock is not None:
            job.lock.close()
        raise
    finally:
        del schedule.handle_func
