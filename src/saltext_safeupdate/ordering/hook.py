"""
The hook on ``salt.state.State``.

``call`` catches the Deferral of a state that is about to change the minion's own
packages and leaves a placeholder for it; what else the state names is done where it
stands. Where the outermost run ends, after listeners and beacons, the rest is carried
out and the real result put under the user's own state ID.
"""

from __future__ import annotations

import datetime
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import salt.payload
import salt.state
import salt.utils.files
import salt.utils.functools
import salt.utils.hashutils
from salt.exceptions import CommandExecutionError

from ..core.errors import SafeUpdateError
from ..core.packages.request import Action, Request
from . import parallel, results, runs
from .chunks import but, joined, listed, named, without
from .guard import Guard
from .loaders import Handler
from .resume import KEYWORD, NO_TIME, Resume
from .runs import Deferral, Level, Memo, Pending, Run

log = logging.getLogger(__name__)

_CHANGERS = {
    "installed": Action.INSTALL,
    "latest": Action.INSTALL,
    "removed": Action.REMOVE,
    "purged": Action.PURGE,
    "uptodate": Action.UPGRADE,
}
_REFRESHERS = ("installed", "latest", "uptodate")
# Asked where the state stands, and not again for its part at the end; or the other way round.
_ASKED_FIRST = ("unless", "onlyif", "creates")
_ASKED_LAST = ("check_cmd",)
# Functions of the module ``state`` that call chunks one by one.
_RUNS = ("state.sls_id", "state.pkg")


class Ordering:
    """The decisions; :func:`install` puts them into Salt."""

    def __init__(self, guard: Guard, resume: Resume, call_chunk: Callable[..., Any]) -> None:
        self.guard = guard
        self._resume = resume
        # Recording comes last: what is put off here is not finished.
        self._call = resume.call
        self._call_chunk = call_chunk

    # -- runs ------------------------------------------------------------------

    def run(self, owner: Any, function: Callable[[], Any]) -> Any:
        """Return what *function* does, the outermost run or one nested in a state of it."""
        with runs.enter(owner) as (run, level):
            if len(run.levels) == 1:
                run.recorded, resumed = self._resume.of_run()
                run.plain = not resumed
            ret = function()
            if isinstance(ret, dict):
                level.results = ret
            if level.parallel and not run.remote:
                self._collect(run, level)
            if run.pending[level.first :] and results.aborted(level):
                self._abort(run, level.first)
            if len(run.levels) == 1:
                self._finish(run, level)
            return ret

    def chunks(self, state: Any, function: Callable[[], Any], chunks: Any) -> Any:
        """Run chunks, of the run under way or as a run."""
        run = runs.current()
        if run is None or run.levels[-1].owner is not state:
            return self.run(state, lambda: self.chunks(state, function, chunks))
        ret = function()
        # Only now: Salt takes disabled states out of the list it is given.
        run.levels[-1].chunks.extend(chunks)
        return ret

    def handlers(self) -> dict[str, Handler]:
        """Return what stands in front of which execution function."""
        return dict.fromkeys(_RUNS, self._function)

    def _function(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Make a run of a function that is one, but not for Salt's engine."""
        ret = self.run(None, lambda: original(*args, **kwargs))
        # The function has judged its results before the end changed them.
        judge = getattr(inspect.unwrap(original), "__globals__", {}).get("_set_retcode")
        if judge is not None and isinstance(ret, dict):
            judge(ret)
        return ret

    # -- where a state is called -----------------------------------------------

    def call(
        self,
        state: Any,
        low: dict[str, Any],
        chunks: Any = None,
        running: Any = None,
        retries: int = 1,
    ) -> Any:
        run = runs.current()
        if run is None or run.finishing or retries > 1 or state.mocked:
            if run is None and not state.mocked:
                return self._alone(state, low, chunks, running, retries)
            return self._call(state, low, chunks, running, retries)
        memo, asked, plain = run.memo, run.restart_asked, run.plain
        run.memo = Memo() if low["state"] == "module" else None
        run.restart_asked = run.plain = False
        run.calling += 1
        try:
            if "parallel" in low:
                low = self._aside(run, low)
            ret = self._call(state, low, chunks, running)
        except Deferral as deferral:
            ret = self._deferred(run, state, low, chunks, running, deferral)
        finally:
            run.calling -= 1
            run.memo, run.plain = memo, plain
            run.restart_asked, asked = asked, run.restart_asked
        if isinstance(ret, dict):
            self._after(run, state, low, ret, asked)
        return ret

    def put_off(
        self,
        run: Run,
        state: Any,
        low: dict[str, Any],
        chunks: Any,
        running: Any,
        deferral: Deferral,
    ) -> dict[str, Any]:
        """Put off a state that was called plainly."""
        run.calling += 1
        try:
            return self._deferred(run, state, low, chunks, running, deferral)
        finally:
            run.calling -= 1

    def called(self, run: Run, state: Any, low: dict[str, Any], ret: dict[str, Any]) -> None:
        """Do what is due after a state that was called plainly."""
        asked, run.restart_asked = run.restart_asked, False
        self._after(run, state, low, ret, asked)
        if run.recorded:
            self._resume.record(state, low, ret)

    def _after(
        self, run: Run, state: Any, low: dict[str, Any], ret: dict[str, Any], asked: bool
    ) -> None:
        if asked:
            ret["comment"] = results.told(ret)
            run.restarted.append(ret)
        if ret.get("result") is None:
            self._tell_of_test(state, low, ret)

    def _alone(
        self, state: Any, low: dict[str, Any], chunks: Any, running: Any, retries: int
    ) -> Any:
        """A state that is called by itself (``state.single``, ``state.low``) is a run of one."""
        called: list[Any] = []

        def one() -> dict[str, Any]:
            called.append(self.call(state, low, chunks, running, retries))
            return {salt.state._gen_tag(low): called[0]}

        self.run(state, one)
        return called[0]

    def _aside(self, run: Run, low: dict[str, Any]) -> dict[str, Any]:
        """Remember a state that gets a process of its own, or keep it from getting one."""
        if low["parallel"] and not low.get("__prereq__"):
            if self._names_own(low):
                # The package manager lets one at a time in anyway.
                return but(low, "parallel")
            run.levels[-1].parallel.append(salt.state._gen_tag(low))
        return low

    def _deferred(
        self,
        run: Run,
        state: Any,
        low: dict[str, Any],
        chunks: Any,
        running: Any,
        deferral: Deferral,
    ) -> dict[str, Any]:
        state.states.inject_globals = {}
        if "provider" in low:
            state.load_modules()
        if low.get("__prereq__"):
            # It acted although it was only asked what it would do.
            low["__prereq__"] = False
            return {
                "name": low["name"],
                "result": None,
                "changes": results.predicted(deferral),
                "comment": results.WOULD_MOVE.format(names=listed(deferral.changes)),
            }
        return self._defer(run, state, low, chunks, running, deferral)

    def _defer(
        self,
        run: Run,
        state: Any,
        low: dict[str, Any],
        chunks: Any,
        running: Any,
        deferral: Deferral,
    ) -> dict[str, Any]:
        names = listed(deferral.changes)
        memo, run.memo = run.memo, None
        if low["state"] == "pkg" and low["fun"] in _REFRESHERS:
            # The guard has done it, where it was asked for.
            low = {**low, "refresh": False}
        start = datetime.datetime.now()
        placed = self._place(run, state, low, chunks, running, deferral)
        if placed is not None and placed.get("result") is False:
            placed["comment"] = joined(
                placed.get("comment"), results.REST_FAILED.format(names=names)
            )
            return placed
        ret = placed if placed is not None else self._blank(state, low, start)
        placeholder = {
            **ret,
            "name": low["name"],
            "changes": {**ret["changes"], **results.predicted(deferral)},
            "comment": joined(ret.get("comment"), results.LATER.format(names=names)),
        }
        if run.remote:
            placeholder[parallel.MARKER] = parallel.marked(deferral, low)
        run.pending.append(
            Pending(
                state=state,
                low=but(low, "parallel", *_ASKED_FIRST),
                level=run.levels[-1],
                deferral=deferral,
                placed=placed,
                placeholder=placeholder,
                memo=memo,
            )
        )
        log.info("safeupdate: %s is moved to the end of the run", low["__id__"])
        return placeholder

    def _place(
        self,
        run: Run,
        state: Any,
        low: dict[str, Any],
        chunks: Any,
        running: Any,
        deferral: Deferral,
    ) -> dict[str, Any] | None:
        """Do the part of the state that has nothing to do with us, where it stands."""
        if low["state"] != "pkg":
            return None
        low = but(low, "parallel", *_ASKED_FIRST, *_ASKED_LAST)
        try:
            if "uptodate" in (low["fun"], low.get("sfun")):
                return self._place_upgrade(run, state, low, chunks, running)
            rest = without(low, deferral.names)
            return None if rest is None else self._placed(state, rest, chunks, running)
        except (Deferral, SafeUpdateError):
            return None

    def _place_upgrade(
        self, run: Run, state: Any, low: dict[str, Any], chunks: Any, running: Any
    ) -> dict[str, Any] | None:
        with self.guard.leaving_out(run) as possible:
            if possible:
                return self._placed(state, low, chunks, running)
        if low.get("pkgs"):
            return None
        others = self.guard.others()
        return self._placed(state, {**low, "pkgs": others}, chunks, running) if others else None

    def _placed(
        self, state: Any, low: dict[str, Any], chunks: Any, running: Any
    ) -> dict[str, Any] | None:
        ret = self._call(state, low, chunks, running)
        return ret if isinstance(ret, dict) else None

    @staticmethod
    def _blank(state: Any, low: Mapping[str, Any], start: datetime.datetime) -> dict[str, Any]:
        ret = {
            "name": low["name"],
            "result": True,
            "changes": {},
            "comment": "",
            "__sls__": low.get("__sls__"),
            "__run_num__": state._State__run_num,
            "__id__": low["__id__"],
            "start_time": start.time().isoformat(),
            "duration": (datetime.datetime.now() - start).total_seconds() * 1000,
        }
        state._State__run_num += 1
        return ret

    # -- test mode -------------------------------------------------------------

    def _tell_of_test(self, state: Any, low: Mapping[str, Any], ret: dict[str, Any]) -> None:
        """Say what would be deferred."""
        if not state.opts.get("test") or low.get("__prereq__"):
            return
        if low["state"] == "pkg" and low["fun"] in _CHANGERS:
            touched = self._would_touch(low, ret)
            if touched:
                ret["comment"] = joined(
                    ret.get("comment"), results.WOULD_MOVE.format(names=listed(touched))
                )
        elif low["state"] == "service" and low["fun"] == "mod_watch":
            name = str(low.get("name", "")).removesuffix(".service")
            if name == self.guard.factory.settings.service:
                ret["comment"] = joined(ret.get("comment"), results.WOULD_RESTART)

    def _would_touch(self, low: Mapping[str, Any], ret: Mapping[str, Any]) -> set[str]:
        names = set(map(str, ret.get("changes") or ())) or named(low)
        try:
            own = self.guard.factory.own().names
            if names & own or not own:
                return names & own
            targets = tuple((name, None) for name in sorted(names))
            return set(self.guard.touched(Request(action=_CHANGERS[low["fun"]], targets=targets)))
        except SafeUpdateError as err:
            # Only words depend on it here; the guard meets the same error where it matters.
            log.error("safeupdate: the minion's own packages are not known: %s", err)
            return set()

    def _names_own(self, low: Mapping[str, Any]) -> bool:
        if low["state"] != "pkg":
            return False
        try:
            return bool(named(low) & self.guard.factory.own().names)
        except SafeUpdateError:
            # The guard meets the same error in a moment, and its caller reports it.
            return False

    # -- where a run ends ------------------------------------------------------

    def _finish(self, run: Run, level: Level) -> None:
        """Carry out what was left for the end, and a restart that was asked for."""
        run.finishing, run.plain = True, False
        if run.pending:
            self._carry_out(run, level)
            for failed in {id(e.level): e.level for e in run.pending if results.failed(e)}.values():
                self._after_failure(failed)
        if run.restart:
            self._restart(run)

    def _carry_out(self, run: Run, outermost: Level) -> None:
        names = sorted({name for entry in run.pending for name in entry.deferral.changes})

        def work() -> list[Any]:
            return [self._again(run, entry) for entry in run.pending]

        try:
            settled = self.guard.transact(work, f"state run: {', '.join(names)}", results.failure)
        except CommandExecutionError as err:
            settled = [
                {
                    **self._blank(entry.state, entry.low, datetime.datetime.now()),
                    "result": False,
                    "comment": str(err),
                }
                for entry in run.pending
            ]
        for entry, result in zip(run.pending, settled, strict=True):
            results.settle(entry, result, self.guard.warning)
            results.report(entry, outermost)

    def _again(self, run: Run, entry: Pending) -> Any:
        run.memo = entry.memo
        if run.memo is not None:
            run.memo.rewind()
        try:
            return self._call(entry.state, entry.low, entry.level.chunks, entry.level.results)
        finally:
            run.memo = None

    def _after_failure(self, level: Level) -> None:
        """Run what waited for a failure, and what waits for that: Salt's engine judges again."""
        waiting = [chunk for chunk in level.chunks if results.waits(chunk, level.results)]
        while waiting:
            left = [chunk for chunk in waiting if not self._reconsider(level, chunk)]
            if len(left) == len(waiting):
                return
            waiting = left

    def _reconsider(self, level: Level, chunk: dict[str, Any]) -> bool:
        tag = salt.state._gen_tag(chunk)
        before = level.results.pop(tag)
        while True:
            answer = self._call_chunk(level.owner, chunk, level.results, level.chunks)
            # From 3008 on it tells as well whether it waits for a parallel state.
            pending = isinstance(answer, tuple) and answer[1]
            while not level.owner.reconcile_procs(level.results):
                time.sleep(0.01)
            if not pending:
                break
        if level.results.get(tag, {}).get("__state_ran__", True):
            return True
        level.results[tag] = before
        return False

    def _restart(self, run: Run) -> None:
        try:
            self.guard.request_restart(run.restart)
        except CommandExecutionError as err:
            log.error("safeupdate: the deferred restart cannot be asked for: %s", err)
            for ret in run.restarted:
                ret.update(result=False, comment=joined(ret.get("comment"), err))

    @staticmethod
    def _abort(run: Run, first: int) -> None:
        """Leave alone what a run that did not come to its end had put off."""
        for entry in run.pending[first:]:
            placed = entry.placed or {}
            entry.placeholder.pop(parallel.MARKER, None)
            entry.placeholder.update(
                result=False,
                changes=placed.get("changes", {}),
                comment=joined(
                    placed.get("comment"),
                    results.ABORTED.format(names=listed(entry.deferral.changes)),
                ),
            )
        del run.pending[first:]

    @staticmethod
    def _collect(run: Run, level: Level) -> None:
        """States with a process of their own left word of their deferrals in their results."""
        for tag in level.parallel:
            ret = level.results.get(tag)
            for found, marked in parallel.find_marked(ret):
                if "restart" in marked:
                    run.restart = run.restart or marked["restart"]
                    run.restarted.append(found)
                if "changes" in marked:
                    low = salt.payload.loads(marked["low"])
                    run.pending.append(
                        Pending(
                            state=level.owner,
                            low=but(low, "parallel", *_ASKED_FIRST),
                            level=level,
                            deferral=parallel.unmarked(marked),
                            placed=None,
                            placeholder=found,
                        )
                    )


def install(guard: Guard, resume: Resume) -> Ordering:
    """Put the hook in place; the handlers of what it returns are for the loaders."""
    cls = salt.state.State
    call_high, call_chunks, module_refresh = cls.call_high, cls.call_chunks, cls.module_refresh
    target = cls.__dict__["_call_parallel_target"].__func__
    call_function = salt.utils.functools.call_function
    ordering = Ordering(guard, resume, cls.call_chunk)
    call, everything, local = cls.call, ordering.call, runs.local

    def _call(
        self: Any, low: Any, chunks: Any = None, running: Any = None, retries: int = 1
    ) -> Any:
        # Every state of every run passes here, and most need next to nothing: what they do
        # not need costs them nothing.
        run = getattr(local, "run", None)
        if (
            run is None
            or not run.plain
            or retries > 1
            or low["state"] == "module"
            or "parallel" in low
            or "__prereq__" in low
            or KEYWORD in low
        ):
            return everything(self, low, chunks, running, retries)
        run.plain, run.low = False, low
        try:
            ret = call(self, low, chunks, running)
        except Deferral as deferral:
            run.low = None
            ret = ordering.put_off(run, self, low, chunks, running, deferral)
        finally:
            run.plain, run.low = True, None
        if (
            run.restart_asked
            or ret.get("result") is None
            or (run.recorded and (ret.get("changes") or ret.get("duration", NO_TIME) >= NO_TIME))
        ):
            ordering.called(run, self, low, ret)
        return ret

    def _call_high(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ordering.run(self, lambda: call_high(self, *args, **kwargs))

    def _call_chunks(self: Any, chunks: Any, *args: Any, **kwargs: Any) -> Any:
        return ordering.chunks(self, lambda: call_chunks(self, chunks, *args, **kwargs), chunks)

    def _module_refresh(self: Any) -> None:
        run = runs.current()
        # Where the tree on disk is the new one, loading from it would mix the two.
        if run is None or not run.finishing:
            module_refresh(self)

    def _call_parallel_target(
        owner: Any, instance: Any, init: Any, name: Any, cdata: Any, low: Any, inject: Any
    ) -> None:
        bound = target.__get__(owner)
        if instance is None:
            bound(instance, init, name, cdata, low, inject)
            return
        parallel.target(bound, instance, low, (instance, init, name, cdata, low, inject))

    def _call_function(salt_function: Any, *args: Any, **kwargs: Any) -> Any:
        run = runs.current()
        if run is None or run.memo is None:
            return call_function(salt_function, *args, **kwargs)
        # What it calls itself is its own business.
        memo, run.memo = run.memo, None
        try:
            return memo.call(call_function, (salt_function, *args), kwargs)
        finally:
            run.memo = memo

    cls.call = _call
    cls.call_high = _call_high
    cls.call_chunks = _call_chunks
    cls.module_refresh = _module_refresh
    cls._call_parallel_target = classmethod(_call_parallel_target)
    salt.utils.functools.call_function = _call_function
    return ordering
