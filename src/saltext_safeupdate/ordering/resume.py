"""
The states of a run that had finished when a restart interrupted it.

The result of each finished state is recorded. When the job is started again, a state that has
not changed since gives its recorded result, so that its requisites see the changes that were
made. All others run: those that had failed, were running or had not been reached, and those
that have changed. Only a state that says ``safeupdate_rerun: False`` is never called twice.

A run that was suspended continues instead: what it had done stays as it was (:mod:`.kept`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NoReturn

import salt.payload
import salt.state

from ..core.errors import InputError, RecordError, SafeUpdateError
from ..core.frozen import changeable
from ..core.host import processes
from ..core.jobs import current
from ..core.jobs.ledger import Ledger
from ..core.jobs.suspension import SUSPENDED, Interrupted, Suspended, Suspension, Suspensions
from ..core.settings import Settings
from . import kept, runs
from .chunks import join_comments
from .kept import Kept
from .names import KEYWORD
from .runs import Level, Run

log = logging.getLogger(__name__)

# Keys that Salt's engine adds to a chunk later, or that do not say what the state does.
_VOLATILE = frozenset(
    ("__prereq__", "__prerequired__", "__reqs__", "__agg__", "order", "retry", "parallel")
)
_CHANGED = (
    "This state also ran before the minion was restarted, but it has changed since then: it ran "
    "again."
)
_INTERRUPTED = (
    "The minion was restarted while this state ran, and it says 'safeupdate_rerun: False': it was "
    "not run again. See what it has done, then run it again."
)


_FOR_EVER = (
    "Nothing was done: this run has restarted {count} times for states that are not in it any more "
    "({names}). If the ID or the name of this state changes with each boot, that would continue "
    "forever: give it one that stays."
)
_AGAIN = (
    "Nothing was done: a 'module.run' around this run has called other functions, and would call "
    "them again after the restart. Give each of its functions a state of its own."
)

# The digest of what the ledger has of a state that has been found after its restart.
_FOUND = "found"
# Restarts of one job by states that are not found again, before it may not restart any more.
MOST_LOST = 3
# Seconds between two looks at states that run in processes of their own.
_LOOK_INTERVAL = 0.05


@changeable
class _Progress:
    """One attempt of a job: what earlier attempts recorded, and where it is now."""

    job: current.Job
    earlier: dict[str, tuple[str, bytes]]
    kept: Kept
    # The states that are being called, each inside the one before it, except for one that is
    # called plainly.
    path: list[dict[str, Any]] = field(default_factory=list)

    def tag(self, *low: dict[str, Any]) -> str:
        """Return what names a state in this job; without one, that which is being called."""
        return "/".join(salt.state._gen_tag(each) for each in (*self._called(), *low))

    def _called(self) -> list[dict[str, Any]]:
        run = runs.current()
        outer = [run.low] if run is not None and run.low is not None else []
        return [*outer, *self.path]

    def once(self) -> dict[str, str]:
        """Return the digests, by tag, of the states being called that must not be called twice."""
        called = self._called()
        tags = [salt.state._gen_tag(low) for low in called]
        return {
            "/".join(tags[: count + 1]): _digest(low)
            for count, low in enumerate(called)
            if low.get(KEYWORD) is False
        }

    def lost(self) -> list[str]:
        """
        Return the IDs of the states that have restarted and were not found behind that.

        A run that was suspended at its end has no state to find.
        """
        return [
            tag.split("_|-")[-3]
            for tag, (digest, _) in self.earlier.items()
            if tag.startswith(SUSPENDED) and tag != SUSPENDED and digest != _FOUND
        ]

    def known(self, low: dict[str, Any]) -> tuple[str, bytes]:
        """Return the digest and the result that an earlier attempt recorded of a state."""
        return self.earlier.get(self.tag(low), ("", b""))


class Resume:
    """
    Calls states for the ordering, and records their results.

    *call* is Salt's function. A state that took fewer than *no_time* milliseconds and changed
    nothing is not recorded.
    """

    def __init__(self, settings: Settings, no_time: float, call: Callable[..., Any]) -> None:
        self.no_time = no_time
        self._ledger = Ledger(settings.database)
        self._suspensions = Suspensions(settings.database)
        self._local = threading.local()
        # The newest complaint of the ledger that was logged.
        self._complaint = ""
        self._call = call

    def of_run(self) -> tuple[bool, bool]:
        """
        Tell whether the run that begins is recorded, and whether it is resumed.

        Raises Interrupted if it is to be, and cannot.
        """
        job = current.recorded()
        resumed = job is not None and job.attempt > 1
        if job is not None and resumed:
            self._of(job)
        return job is not None, resumed

    def restore(self, level: Level, results: dict[str, Any]) -> None:
        """Have the results of a run say what they were when it was suspended."""
        job = current.recorded()
        if job is not None:
            self._of(job).kept.restore(level.place, results)

    def place(self) -> str:
        """Return the name of the state that is being called, or an empty text."""
        job = current.recorded()
        return "" if job is None else self._of(job).tag()

    def call(
        self,
        state: Any,
        low: dict[str, Any],
        chunks: Any,
        running: Any,
        retries: int = 1,
        salts: Callable[..., Any] | None = None,
    ) -> Any:
        """
        Return the recorded result of a state, or call it and record its result.

        *salts* is Salt's function, if it is to be called with more than this.
        """
        call = salts or self._call
        job = current.recorded()
        _stay_suspended(job)
        if job is None or retries > 1 or state.mocked:
            return call(state, low, chunks, running, retries)
        progress = self._of(job)
        run = runs.current() or Run(levels=[Level(owner=state)])
        found = self._found(progress, run.levels[-1], state, low, running)
        if found is not None:
            return found
        if low.get("__prereq__"):
            return call(state, low, chunks, running, retries)
        once = low.get(KEYWORD) is False
        if once:
            self._record(progress, state, low, None)
        deferred = len(run.pending)
        progress.path.append(low)
        try:
            ret = call(state, low, chunks, running, retries)
        finally:
            progress.path.pop()
        _stay_suspended(job)
        if len(run.pending) > deferred:
            # It is called again in the next attempt, so that it defers that again.
            run.levels[-1].unfinished.add(salt.state._gen_tag(low))
        elif isinstance(ret, dict) and not low.get("parallel"):
            known, _ = progress.known(low)
            if known and known != _digest(low):
                ret["comment"] = join_comments(ret.get("comment"), _CHANGED)
            if once or (ret.get("result") is True and (known or self._is_worth_recording(ret))):
                self._record(progress, state, low, ret)
        return ret

    def _found(
        self, progress: _Progress, level: Level, state: Any, low: dict[str, Any], running: Any
    ) -> dict[str, Any] | None:
        """Return the result that is recorded of a state; None if it has to be called."""
        if running is not level.running:
            level.see(state, running)
            if running is not None:
                progress.kept.fill(level.place, state, running)
        done = progress.kept.result(level.place, low)
        if done is not None or not progress.earlier:
            return done
        known, earlier = progress.known(low)
        if known and known == _digest(low):
            done = _recorded(state, low, earlier)
        if done is None and not low.get("__prereq__"):
            done = self._behind_restart(progress, state, low)
        return done

    def suspend(self, process: str, timeout: float, ask: Callable[[], object]) -> NoReturn:
        """
        Have the job of this run go on when a *process* is gone, or after *timeout* seconds.

        Empty is the main process of the minion. The state that is being called makes it end by
        *ask*. If that raises, the run continues here. States that run in processes of their own
        have ended before that.
        """
        job, run = current.recorded(), runs.current()
        process = process or self._owner()
        if job is None or run is None or not process:
            raise RecordError("The ledger does not have this job. Nothing was done.")
        if run.calls_again:
            raise InputError(_AGAIN)
        progress = self._of(job)
        lost = progress.lost()
        if len(lost) >= MOST_LOST:
            raise InputError(_FOR_EVER.format(count=len(lost), names=", ".join(sorted(lost))))
        _end_parallel(run)
        tag = SUSPENDED + progress.tag()
        until = processes.since_boot() + timeout
        wanted = Suspension(process=process, until=until, timeout=timeout)
        results, once = kept.gathered(run), progress.once()
        if not self._suspensions.begin(job.key, tag, wanted, results, once):
            raise RecordError(
                "The ledger does not have this job any more, or somebody has ended it. Nothing was "
                "done."
            )
        try:
            ask()
        except Exception:
            self._suspensions.drop(job.key, tag, once)
            raise
        job.suspended = run.suspended = True
        raise Suspended

    def _owner(self) -> str:
        """Return the identity of the main process of the minion that has accepted this job."""
        job = current.recorded()
        rows = self._ledger.find(job.jid) if job is not None else []
        return next((row.owner for row in rows if job is not None and row.key == job.key), "")

    def _behind_restart(
        self, progress: _Progress, state: Any, low: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the result of a state that has asked for a restart; None for any other one."""
        tag = SUSPENDED + progress.tag(low)
        said = progress.earlier.get(tag)
        if said is None:
            return None
        from . import restarts

        progress.earlier[tag] = (_FOUND, said[1])
        ret = restarts.result(state, low, Suspension.of(said[1].decode()), self._owner())
        run = runs.current()
        if run is not None and not ret["result"] and progress.kept.restart_reason:
            # It was to restart anyway.
            run.restart_reason = run.restart_reason or progress.kept.restart_reason
            run.restarted.append(ret)
        self._record(progress, state, low, ret)
        self._add(progress, tag, _FOUND, said[1])
        return ret

    def record(self, state: Any, low: dict[str, Any], ret: Mapping[str, Any]) -> None:
        """Record the result of a state that was not called by :meth:`call`, if it is worth it."""
        job = current.recorded()
        _stay_suspended(job)
        if (
            job is not None
            and ret.get("result") is True
            and self._is_worth_recording(ret)
            and not state.mocked
        ):
            self._record(self._of(job), state, low, ret)

    def _is_worth_recording(self, ret: Mapping[str, Any]) -> bool:
        if ret.get("changes"):
            return True
        duration = ret.get("duration")
        return not isinstance(duration, float) or duration >= self.no_time

    def _of(self, job: current.Job) -> _Progress:
        progress: _Progress | None = getattr(self._local, "progress", None)
        if progress is None or progress.job is not job:
            earlier = self._earlier(job) if job.attempt > 1 else {}
            progress = self._local.progress = _Progress(
                job=job, earlier=earlier, kept=Kept(earlier)
            )
        return progress

    def _earlier(self, job: current.Job) -> dict[str, tuple[str, bytes]]:
        """Return what earlier attempts of a job have recorded. Raise Interrupted if it is gone."""
        try:
            earlier = self._ledger.chunks(job.key)
            if not earlier and self._ledger.outcome(job.jid) is None:
                raise Interrupted("what is recorded of it is gone")
        except SafeUpdateError as err:
            raise Interrupted(f"what is recorded of it cannot be read ({err})") from err
        return earlier

    def _record(
        self,
        progress: _Progress,
        state: Any,
        low: dict[str, Any],
        ret: Mapping[str, Any] | None,
    ) -> None:
        # Not asked in `call`, where every state passes: opts take their time to answer.
        if state.opts.get("test"):
            return
        tag = progress.tag(low)
        try:
            payload = b"" if ret is None else salt.payload.dumps(dict(ret))
        except (TypeError, ValueError, OverflowError) as err:
            log.warning("safeupdate: the result of state %s cannot be recorded: %s", tag, err)
            return
        # Without a result it is a state that must not run twice: that it started has to be on disk
        # before it does.
        self._add(progress, tag, _digest(low), payload, durable=ret is None)

    def _add(
        self, progress: _Progress, tag: str, digest: str, payload: bytes, *, durable: bool = False
    ) -> None:
        try:
            self._ledger.add_chunk(progress.job.key, tag, digest, payload, durable=durable)
        except SafeUpdateError as err:
            if str(err) != self._complaint:
                log.error("safeupdate: the result of state %s is not recorded: %s", tag, err)
            self._complaint = str(err)


def _recorded(state: Any, low: dict[str, Any], payload: bytes) -> dict[str, Any] | None:
    """Return a recorded result as one of this attempt; None if the state has to be called."""
    ret = salt.payload.loads(payload) if payload else None
    if low.get("__prereq__"):
        if ret is None:
            return None
        # The predicted changes are the actual changes.
        low["__prereq__"] = False
        return {**ret, "result": None if ret.get("changes") else True}
    if ret is None:
        ret = {
            "name": low["name"],
            "result": False,
            "changes": {},
            "comment": _INTERRUPTED,
            "__sls__": low.get("__sls__"),
            "__id__": low["__id__"],
        }
    else:
        ret["comment"] = join_comments(ret.get("comment"), kept.RESUMED)
        ret["__resumed__"] = True
    ret["__run_num__"] = state._State__run_num
    state._State__run_num += 1
    found: dict[str, Any] = ret
    return found


def _end_parallel(run: Run) -> None:
    """Wait for the states that run in processes of their own: their results are kept, too."""
    for level in run.levels:
        for state, running in level.seen:
            while not state.reconcile_procs(running):
                time.sleep(_LOOK_INTERVAL)


def _stay_suspended(job: current.Job | None) -> None:
    """Raise Suspended if the job is, and somebody has caught that: nothing else is called."""
    if job is not None and job.suspended:
        raise Suspended


def _digest(low: Mapping[str, Any]) -> str:
    """Return a digest that changes if the state does."""
    said = {key: value for key, value in low.items() if key not in _VOLATILE}
    text = json.dumps(said, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
