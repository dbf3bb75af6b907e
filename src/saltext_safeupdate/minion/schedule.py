"""Jobs of the minion's own schedule. No master published them, so they are not recorded."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import SafeUpdateError
from ..core.jobs import current
from ..core.jobs.admission import Admission
from ..core.record.store import Store
from ..core.record.typed import Fact
from ..patches import instead
from . import publication, scheduled_times
from .complaints import Complaints
from .single import Single
from .state_runs import StateRuns

if TYPE_CHECKING:
    from .succession import Succession

log = logging.getLogger(__name__)

# Since when jobs are held, in epoch seconds: the next minion asks that.
_HELD: Fact[float] = Fact("schedule_held", float)
# Seconds for which a job that was due while jobs were held still runs afterwards.
_LATE = 3600.0
# For so long after a hold, Salt's checks may come too late for a job: others start meanwhile.
_SETTLES = datetime.timedelta(seconds=60)


class Scheduled:
    """
    Gives a scheduled job its share of the jobs lock, and runs it later if jobs are held.

    While two generations of the minion check their schedules, one of them starts each job.
    """

    def __init__(
        self,
        admission: Admission,
        succession: Succession | Single,
        runs: StateRuns,
        store: Store,
        complaints: Complaints,
        *,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self._now = now
        self._admission = admission
        self._succession = succession
        self._runs = runs
        self._store = store
        self._complaints = complaints
        # Whether the running job is due; otherwise somebody wants it now.
        self._looks = False
        # Since when jobs are held, also before this minion began; None: they are not.
        self._held_at: datetime.datetime | None = None
        self._has_asked = False
        # Since when a fixed time that has passed without a start is to be caught up, and how long.
        self._owed: datetime.datetime | None = None
        self._settled = datetime.datetime.min
        # When Salt has last checked all jobs, and each that was due could start.
        self._checked: datetime.datetime | None = None
        self._is_denied = False
        # The jobs that were due and could not start yet, by name.
        self._late: dict[str, tuple[Any, str, Mapping[str, Any]]] = {}

    def evaluate(
        self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Check which jobs are due; only Salt's own ones if the others could not start now."""
        holding = self._admission.holding()
        if holding:
            self._note_held(getattr(schedule, "opts", None) or {})
            if self._admission.changing():
                # Even these would read code that is being replaced.
                instead(original)
                return None
        if holding or self._succession.is_on_trial:
            with scheduled_times.only(schedule, scheduled_times.is_of_salt):
                return self._look(original, schedule, *args, **kwargs)
        now = self._now()
        started = self._look(original, schedule, *(args or (now,)), **kwargs)
        if not self._is_denied:
            self._checked = now
        self._catch_up(original, schedule)
        self._start_late()
        return started

    def _look(self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any) -> Any:
        self._looks, self._is_denied = True, False
        try:
            return original(schedule, *args, **kwargs)
        finally:
            self._looks = False

    def _note_held(self, opts: Mapping[str, Any]) -> None:
        """Note since when jobs are held; the next minion starts what was due in that time."""
        if self._held_at is not None:
            return
        # Jobs that became due between the last check and this one are held as well; what was due
        # before has begun, and the next minion cannot know that.
        unknown = self._now() - 2 * scheduled_times.interval(opts)
        self._held_at = self._checked or unknown
        if not any(True for _ in scheduled_times.of_fixed_time(opts)):
            return
        try:
            earlier = self._store.replaceable(_HELD)
            if earlier is None:
                self._store.set_fact(_HELD, self._held_at.timestamp())
            else:
                self._held_at = min(self._held_at, datetime.datetime.fromtimestamp(earlier))
        except SafeUpdateError as err:
            self._complaints.tell(err)

    def _since(self) -> datetime.datetime | None:
        """Return since when jobs were held until now; None if they were not. Forget it."""
        since, self._held_at = self._held_at, None
        if since is None and self._has_asked:
            return None
        self._has_asked = True
        try:
            noted = self._store.replaceable(_HELD) if self._store.exists() else None
            if noted is not None:
                self._store.drop_fact(_HELD)
                since = since or datetime.datetime.fromtimestamp(noted)
        except SafeUpdateError as err:
            self._complaints.tell(err)
        return since

    def _catch_up(self, original: Callable[..., Any], schedule: Any) -> None:
        """Start once each job whose fixed time has passed while jobs were held, or soon after."""
        now, held = self._now(), self._since()
        if held is not None:
            self._owed, self._settled = held, now + _SETTLES
        since, opts = self._owed, schedule.opts
        if since is None:
            return
        # Salt's own next check starts whatever is due after that.
        until = now - scheduled_times.interval(opts)
        self._owed = until if now < self._settled else None
        for name, job in list(scheduled_times.of_fixed_time(opts)):
            at = scheduled_times.last_start(job, opts, until)
            if at is None or at <= since or scheduled_times.has_run(job, at):
                continue
            if (now - at).total_seconds() > _LATE:
                log.warning(
                    "safeupdate: the scheduled job %s (%s) was due at %s, while the minion took no "
                    "new jobs, and is left out: it would be too late. Run it by hand if it is "
                    "needed.",
                    *(name, job.get("function"), at),
                )
                continue
            log.info("safeupdate: the scheduled job %s was due at %s, and starts now", name, at)
            with scheduled_times.at_its_time(schedule, name, at):
                self._look(original, schedule, at)

    def _start_late(self) -> None:
        """Start the jobs that can start now although they could not when they were due."""
        late, self._late = self._late, {}
        for name, (schedule, func, data) in late.items():
            if name not in scheduled_times.jobs(schedule.opts):
                continue
            if self._waits(schedule.opts, func, data, late=True):
                self._late[name] = (schedule, func, data)
            else:
                log.info("safeupdate: the scheduled job %s starts now", name)
                schedule._run_job(func, data)

    def _waits(
        self, opts: Mapping[str, Any], func: str, data: Mapping[str, Any], *, late: bool = False
    ) -> bool:
        """
        Tell whether a state run waits: only runs from before the restart are in its way.

        One that is *late* waits for any other run: that may have waited, too.
        """
        if not publication.is_refused_beside_others(_published(func, data)):
            return False
        if late and self._runs.one_begins(opts):
            return True
        active = self._runs.active(opts)
        if all(map(self._runs.is_overdue, active)):
            return False
        return late or all(map(self._runs.is_earlier, active))

    def _beside_overdue(
        self, opts: Mapping[str, Any], func: str, data: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the job; a state run begins although runs that are overdue have not ended."""
        if not publication.is_refused_beside_others(_published(func, data)):
            return data
        active = self._runs.active(opts)
        if not active or not all(map(self._runs.is_overdue, active)):
            return data
        return {**data, "kwargs": {**(data.get("kwargs") or {}), "concurrent": True}}

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
        name = str(data.get("name"))
        if data.get("dry_run"):
            return original(schedule, func, data, *rest, **kwargs)
        of_salt = scheduled_times.is_of_salt(name)
        if self._looks and not scheduled_times.is_of_each(name):
            if not self._succession.starts(*_due(schedule, data)):
                instead(original)
                return None
            if self._waits(schedule.opts, func, data):
                self._keep(original, name, schedule, func, data)
                return None
        lock, may_start = self._admission.share()
        if not may_start and not of_salt:
            self._is_denied = True
            self._keep(original, name, schedule, func, data)
            return None
        data = self._beside_overdue(schedule.opts, func, data)
        job = current.Job(jid="", lock=lock)
        opts = schedule.opts
        if opts.get("run_schedule_jobs_in_background", True) and not opts.get(
            "multiprocessing", True
        ):
            return _in_thread(job, original, schedule, func, data, *rest, **kwargs)
        previous = current.get()
        current.begin(job)
        try:
            started = original(schedule, func, data, *rest, **kwargs)
            self._runs.has_begun(func, _newest_process(schedule))
            return started
        finally:
            # A child has the open file, too.
            current.end()
            if previous is not None:
                current.begin(previous)

    def _keep(
        self,
        original: Callable[..., Any],
        name: str,
        schedule: Any,
        func: str,
        data: Mapping[str, Any],
    ) -> None:
        instead(original)
        self._late[name] = (schedule, func, data)
        log.info("safeupdate: the scheduled job %s waits", name)


def _newest_process(schedule: Any) -> Any:
    listed = getattr(schedule, "_subprocess_list", None)
    started = getattr(listed, "processes", ())
    return started[-1] if started else None


def _published(func: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job as a master would publish it."""
    arg, kwargs = data.get("args"), data.get("kwargs")
    args = list(arg) if isinstance(arg, list | tuple) else []
    named = [{"__kwarg__": True, **kwargs}] if isinstance(kwargs, Mapping) else []
    return {"fun": func, "arg": [*args, *named]}


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
