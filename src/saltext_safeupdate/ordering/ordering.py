"""A state run from its start to its end: which functions of Salt are a run, and how it ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..patches import tell
from ..this_host import Host
from . import ending, names, results, runs, set_up_gone
from .ending import Ending
from .loaders import Handler
from .recording import Recording
from .runs import Level, Run


class Ordering:
    """Makes runs of what Salt calls, and ends them."""

    def __init__(self, host: Host, recording: Recording, end: Ending) -> None:
        self._host = host
        self._recording = recording
        self._end = end

    def run(self, owner: Any, function: Callable[[], Any]) -> Any:
        """Call *function* as a run, the outermost one or a nested one; return its result."""
        place = self._recording.place()
        with runs.enter(owner) as (run, level):
            level.place = place
            if len(run.levels) == 1:
                files = set_up_gone.stamp(self._host.opts)
                run.recorded, resumed = self._recording.of_run()
                run.plain, run.suspend = not resumed, self._recording.suspend
            try:
                ret = function()
            except SystemExit:
                if len(run.levels) == 1 and not run.remote:
                    self._end.interrupted(run)
                raise
            try:
                self._conclude(run, level, ret)
            except Exception as err:  # noqa: BLE001 (it is told)
                tell("the end of a state run", err)
                ending.fail(run, level, err)
            if len(run.levels) == 1 and not run.remote:
                set_up_gone.look(self._host, files)
            return ret

    def _conclude(self, run: Run, level: Level, ret: Any) -> None:
        if isinstance(ret, dict):
            self._recording.restore(level, ret)
            level.results = ret
        if level.parallel and not run.remote:
            from . import parallel

            parallel.collect(run, level)
        if run.pending[level.first :] and results.is_aborted(level):
            ending.abort(run, level)
        if len(run.levels) == 1:
            self._end.finish(run, level)

    def _chunks(self, state: Any, function: Callable[[], Any], chunks: Any) -> Any:
        """Call chunks, in the current run or as a run of their own."""
        run = runs.current()
        if run is None or run.levels[-1].owner is not state:
            return self.run(state, lambda: self._chunks(state, function, chunks))
        ret = function()
        # Not before the call: Salt removes disabled states from the list.
        run.levels[-1].chunks.extend(chunks)
        return ret

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers, by the execution functions that they are called instead of."""
        return dict.fromkeys(names.RUNS, self._function)

    def _function(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Call a function as a run that Salt's own state engine does not see as one."""
        ret = self.run(None, lambda: original(*args, **kwargs))
        # The function set the return code before the end of the run changed the results.
        judge = getattr(inspect.unwrap(original), "__globals__", {}).get("_set_retcode")
        if judge is not None and isinstance(ret, dict):
            judge(ret)
        return ret

    # -- replacements of functions of salt.state.State --------------------------

    def call_high(self, original: Callable[..., Any], state: Any, high: Any) -> Any:
        return self.run(state, lambda: original(state, high))

    def call_chunks(self, original: Callable[..., Any], state: Any, chunks: Any) -> Any:
        return self._chunks(state, lambda: original(state, chunks), chunks)
