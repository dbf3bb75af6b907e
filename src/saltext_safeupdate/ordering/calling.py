"""The work around ``State.call``, for each state of a run."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import salt.state

from ..patches import Call, contained, instead, tell
from . import of_thread, results, runs
from .names import KEYWORD
from .ordering import Ordering
from .recording import Recording
from .runs import Deferral, LeftOut, Memo, Run

if TYPE_CHECKING:
    from .of_packages import OfPackages

_CALL = "salt.state.State.call"


class Calling:
    """
    Calls states: plainly if that is enough, else in full.

    *packages* returns what looks after the own packages.
    """

    def __init__(
        self,
        *,
        ordering: Ordering,
        packages: Callable[[], OfPackages],
        recording: Recording,
    ) -> None:
        self._ordering = ordering
        self._packages = packages
        self._recording = recording

    def around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of ``State.call``."""
        self._recording.attach(original)
        call, in_full, local = original, self._in_full, of_thread.local
        no_time = self._recording.no_time

        def _call(
            state: Any,
            low: Any,
            chunks: Any = None,
            running: Any = None,
            retries: int = 1,
            *rest: Any,
            **more: Any,
        ) -> Any:
            # Every state of every run passes here, and most of them need next to nothing. Code that
            # they do not need must not cost them anything.
            run = getattr(local, "run", None)
            if (
                run is None
                or not run.plain
                or retries > 1
                or low["state"] == "module"
                or "parallel" in low
                or "__prereq__" in low
                or KEYWORD in low
                or rest
                or more
            ):
                whole = Call(call, rest, more)
                return contained(_CALL, in_full, whole, (state, low, chunks, running, retries))
            run.plain, run.low = False, low
            recorded = run.recorded
            if recorded and running is not run.levels[-1].running:
                run.levels[-1].see(state, running)
            try:
                ret = call(state, low, chunks, running)
            except Deferral as deferral:
                # It has no result yet.
                run.low, recorded = None, False
                ret = self._deferred(run, (state, low, chunks, running), deferral)
            finally:
                run.plain, run.low = not run.suspended, None
            try:
                if (
                    run.restart_asked
                    or run.left_out
                    or ret.get("result") is None
                    or (
                        recorded and (ret.get("changes") or ret.get("duration", no_time) >= no_time)
                    )
                ):
                    self._after_plain_call(run, state, low, ret, recorded)
            except Exception as err:  # noqa: BLE001 (it is told)
                tell(_CALL, err)
            return ret

        return _call

    def _deferred(
        self, run: Run, called: tuple[Any, dict[str, Any], Any, Any], deferral: Deferral
    ) -> dict[str, Any]:
        """Return the result of a state, with its arguments, that has not changed anything yet."""
        try:
            return self._packages().deferring.result(run, called, deferral)
        except Exception as err:  # noqa: BLE001 (it is told)
            tell(_CALL, err)
            names = deferral.told
            return {
                **results.blank(*called[:2], datetime.datetime.now()),
                "result": False,
                "comment": results.NOT_DEFERRED.format(names=names, error=err),
            }

    def _after_plain_call(
        self, run: Run, state: Any, low: dict[str, Any], ret: dict[str, Any], recorded: bool
    ) -> None:
        asked, run.restart_asked = run.restart_asked, False
        left_out, run.left_out = run.left_out, []
        self._after(run, state, low, ret, asked, left_out)
        if recorded:
            self._recording.record(state, low, ret)

    def _in_full(
        self, call: Call, state: Any, low: dict[str, Any], chunks: Any, running: Any, retries: int
    ) -> Any:
        run = runs.current()
        if run is None and not state.mocked:
            return self._alone(call, state, low, chunks, running, retries)
        if run is None or run.finishing or retries > 1 or state.mocked:
            return self._recording.call(state, low, chunks, running, retries, call)
        memo, asked, plain = run.memo, run.restart_asked, run.plain
        left_out, run.left_out = run.left_out, []
        run.memo = Memo() if low["state"] == "module" else None
        run.restart_asked = run.plain = False
        run.calling += 1
        try:
            if "parallel" in low:
                from . import parallel

                low = parallel.prepare(run, low, self._packages().own)
            # It records results, and a deferred state has none yet.
            ret = self._recording.call(state, low, chunks, running, 1, call)
        except Deferral as deferral:
            ret = self._deferred(run, (state, low, chunks, running), deferral)
            # It counts in place of what Salt's function would have returned.
            instead(call, ret)
        finally:
            run.calling -= 1
            run.memo, run.plain = memo, plain and not run.suspended
            run.restart_asked, asked = asked, run.restart_asked
            run.left_out, left_out = left_out, run.left_out
        if isinstance(ret, dict):
            self._after(run, state, low, ret, asked, left_out)
        return ret

    def _alone(
        self, call: Call, state: Any, low: dict[str, Any], chunks: Any, running: Any, retries: int
    ) -> Any:
        """Make a run of a state that is called alone, by ``state.single`` or ``state.low``."""
        called: list[Any] = []

        def one() -> dict[str, Any]:
            called.append(self._in_full(call, state, low, chunks, running, retries))
            return {salt.state._gen_tag(low): called[0]}

        self._ordering.run(state, one)
        return called[0]

    def _after(
        self,
        run: Run,
        state: Any,
        low: dict[str, Any],
        ret: dict[str, Any],
        asked: bool,
        left_out: list[LeftOut],
    ) -> None:
        results.tell_left_out(ret, left_out)
        if asked:
            results.announce_restart(ret)
            run.restarted.append(ret)
        if ret.get("result") is None:
            self._packages().test_mode.tell(state, low, ret)
