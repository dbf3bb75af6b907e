"""The end of a run: the deferred states are carried out there."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import salt.state
from salt.exceptions import CommandExecutionError

from ..core.errors import SafeUpdateError
from ..core.host import processes
from ..core.jobs import current
from . import results
from .chunks import join_comments
from .runs import Level, Pending, Run

if TYPE_CHECKING:
    from .of_packages import OfPackages

log = logging.getLogger(__name__)

# Seconds in which a host that goes down is down; then the run continues without a boot.
_DOWN_TIMEOUT = 600.0
_GOES_DOWN = (
    "The system goes down, so nothing was changed, and {why}. Run this again after the boot, "
    "without a reboot. A job that a master publishes continues by itself."
)
_LEFT = (
    "The system goes down, so nothing was changed yet: the minion updates itself to exactly this "
    "after the boot. 'safeupdate.status' shows its result. The next run does whatever else this "
    "state asks for."
)


class Ending:
    """
    Carries out what is deferred.

    *packages* returns what looks after the own packages, and *call* calls a state of Salt.
    """

    def __init__(self, packages: Callable[[], OfPackages], call: Callable[..., Any]) -> None:
        self._packages = packages
        self._call = call

    def finish(self, run: Run, outermost: Level) -> None:
        """Carry out the deferred states, and request a restart that was asked for."""
        run.finishing, run.plain = True, False
        if run.pending:
            try:
                self._carry_out(run, outermost)
            finally:
                _drop(run.pending)
            failed = {id(entry.level): entry.level for entry in run.pending if _has_failed(entry)}
            for level in failed.values():
                _react_to_failures(level)
        if run.restart_reason:
            self._request_restart(run)

    def interrupted(self, run: Run) -> None:
        """Leave to the next boot what is deferred in a run that the host ends with itself."""
        guard = self._packages().guard
        try:
            # A recorded run is resumed.
            if run.pending and not run.recorded and guard.host_goes_down():
                guard.leave_to_next_boot(run.pending)
        except (CommandExecutionError, SafeUpdateError) as err:
            log.error("safeupdate: nothing is left to the next boot: %s", err)
        finally:
            _drop(run.pending)

    def _carry_out(self, run: Run, outermost: Level) -> None:
        names = sorted({name for entry in run.pending for name in entry.deferral.changes})
        requests = [entry.deferral.request for entry in run.pending]

        def work() -> list[Any]:
            return [self._call_again(run, entry) for entry in run.pending]

        guard, following = self._packages().guard, self._packages().following
        try:
            real = self._leave_to_next_boot(run)
            if real is None:
                _refuse(following.refusal(run.pending))
                try:
                    real = guard.transact(
                        work,
                        f"state run: {', '.join(names)}",
                        results.failures,
                        again=sorted(following.again(run.pending)),
                        anew=any(request is not None and request.again for request in requests),
                    )
                except (CommandExecutionError, SafeUpdateError):
                    # The host may have begun to go down meanwhile.
                    real = self._leave_to_next_boot(run)
                    if real is None:
                        raise
        except (CommandExecutionError, SafeUpdateError) as err:
            real = [_ended(entry, False, str(err)) for entry in run.pending]
        for entry, result in zip(run.pending, real, strict=True):
            results.settle(entry, result, guard.warning)
            entry.settled = True
            if _has_failed(entry):
                results.tell_reacted(entry)
            results.report(entry, outermost)

    def _leave_to_next_boot(self, run: Run) -> list[Any] | None:
        """
        Leave it to the next boot if the host goes down: systemd starts no supervisor any more.

        The run is suspended. If it cannot continue after a boot, a request for an update stays;
        return the results then. Return None if the host does not go down. Raise
        CommandExecutionError if nothing of this is possible.
        """
        guard = self._packages().guard
        if not guard.host_goes_down():
            return None
        why = _suspend(run)
        _refuse(self._packages().following.refusal(run.pending))
        try:
            guard.leave_to_next_boot(run.pending)
        except CommandExecutionError as err:
            raise CommandExecutionError(_GOES_DOWN.format(why=f"{why} ({err})")) from err
        return [
            _ended(entry, None, _LEFT)
            if entry.secured is not None
            else _ended(entry, False, _GOES_DOWN.format(why=why))
            for entry in run.pending
        ]

    def _call_again(self, run: Run, entry: Pending) -> Any:
        run.memo, run.secured = entry.memo, entry.secured
        low = entry.low
        if entry.secured is not None:
            low = entry.secured.state(low)
        if run.memo is not None:
            run.memo.rewind()
        try:
            ret = self._call(entry.state, low, entry.level.chunks, entry.level.results)
        finally:
            run.memo = run.secured = None
        if isinstance(ret, dict):
            results.judge(entry, ret, self._packages().own.installed())
        return ret

    def _request_restart(self, run: Run) -> None:
        try:
            self._packages().guard.request_restart(run.restart_reason)
        except CommandExecutionError as err:
            log.error("safeupdate: the deferred restart cannot be requested: %s", err)
            for ret in run.restarted:
                ret.update(result=False, comment=join_comments(ret.get("comment"), err))


def _suspend(run: Run) -> str:
    """Suspend the run until the boot; return why it cannot continue then."""
    job, opts = current.get(), run.pending[0].state.opts
    threads = not opts.get("multiprocessing", True)
    if run.suspend is None or job is None or not job.may_go_back or threads:
        return "this run cannot continue after a boot"
    try:
        run.suspend(processes.identity(1), _DOWN_TIMEOUT, lambda: None)
    except SafeUpdateError as err:
        return str(err)
    return ""


def _refuse(why: str) -> None:
    if why:
        raise CommandExecutionError(why)


def _ended(entry: Pending, result: bool | None, comment: str) -> dict[str, Any]:
    blank = results.blank(entry.state, entry.low, datetime.datetime.now())
    return {**blank, "result": result, "comment": comment}


def abort(run: Run, level: Level) -> None:
    """Forget the states that were deferred in an aborted run, and say so in their results."""
    from . import parallel

    for entry in run.pending[level.first :]:
        entry.placeholder.pop(parallel.MARKER, None)
        results.settle_aborted(entry)
    _drop(run.pending[level.first :])
    del run.pending[level.first :]


def fail(run: Run, level: Level, err: Exception) -> None:
    """Have the results say what an error of ours has left open at the end of this level."""
    for entry in run.pending[level.first :]:
        if not entry.settled:
            results.settle_unfinished(entry, err)
    del run.pending[level.first :]
    if level.parallel:
        from . import parallel

        parallel.fail(level, err)
    if run.restart_reason and len(run.levels) == 1:
        said = f"The minion may not restart by itself: {err}. Restart it."
        for ret in run.restarted:
            ret.update(result=False, comment=join_comments(ret.get("comment"), said))


def _drop(pending: Iterable[Pending]) -> None:
    """Remove the files that were taken for deferred states."""
    for entry in pending:
        if entry.secured is not None:
            entry.secured.drop()


def _has_failed(entry: Pending) -> bool:
    return entry.placeholder.get("result") is False


def _react_to_failures(level: Level) -> None:
    """Run the states that waited for a failure, and those that wait for them."""
    waiting = [chunk for chunk in level.chunks if results.waited(chunk, level.results)]
    while waiting:
        left = [chunk for chunk in waiting if not _call_chunk_again(level, chunk)]
        if len(left) == len(waiting):
            return
        waiting = left


def _call_chunk_again(level: Level, chunk: dict[str, Any]) -> bool:
    """Let Salt judge the requisites of a chunk again; tell whether it ran this time."""
    tag = salt.state._gen_tag(chunk)
    before = level.results.pop(tag)
    while True:
        answer = level.owner.call_chunk(chunk, level.results, level.chunks)
        # From 3008 on the answer also tells whether the chunk waits for a parallel state.
        pending = isinstance(answer, tuple) and answer[1]
        while not level.owner.reconcile_procs(level.results):
            time.sleep(0.01)
        if not pending:
            break
    if level.results.get(tag, {}).get("__state_ran__", True):
        return True
    level.results[tag] = before
    return False
