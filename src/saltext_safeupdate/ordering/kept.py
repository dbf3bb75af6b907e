"""
What a run had done when it was suspended: the results of all its states so far.

They stay as they were, whether the states had failed, had nothing to do, or have changed since.
There is one record for the run, and one for each run around the state that is suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import salt.payload
import salt.state

from ..core.errors import RecordError
from ..core.jobs.suspension import Interrupted
from . import parallel
from .chunks import join_comments
from .runs import Run

RESUMED = "Finished before the minion was restarted: this is the result from then (safeupdate)."
# The ledger has the data of a run under its place with this prefix.
_RESULTS = "results "


def gathered(run: Run) -> dict[str, bytes]:
    """Return what to record of a run. Raise RecordError if that cannot be recorded."""
    # A deferred state is deferred again.
    deferred = {id(entry.placeholder) for entry in run.pending}
    rows = {}
    for level in run.levels:
        results = {
            tag: ret
            for _, running in level.seen
            for tag, ret in running.items()
            if isinstance(ret, dict)
            and parallel.MARKER not in ret
            and id(ret) not in deferred
            and tag not in level.unfinished
        }
        # The record of the outermost run is always the one from last time.
        noted = {"results": results, "restart": "" if level.place else run.restart_reason}
        try:
            rows[_RESULTS + level.place] = salt.payload.dumps(noted)
        except (TypeError, ValueError, OverflowError) as err:
            raise RecordError(
                f"The returns of the states before this one cannot be recorded ({err}), and "
                "they must not run twice. Nothing was done."
            ) from err
    return rows


class Kept:
    """The data that was recorded of a run before it continued, by the *rows* of the ledger."""

    def __init__(self, rows: Mapping[str, tuple[str, bytes]]) -> None:
        self._results: dict[str, dict[str, dict[str, Any]]] = {}
        # Why the minion was to restart after the run.
        self.restart_reason = ""
        for tag, (_, payload) in rows.items():
            if tag.startswith(_RESULTS):
                self._results[tag.removeprefix(_RESULTS)] = self._read(payload)

    def _read(self, payload: bytes) -> dict[str, dict[str, Any]]:
        try:
            noted = salt.payload.loads(payload)
            self.restart_reason = self.restart_reason or str(noted["restart"])
            results = {tag: dict(ret) for tag, ret in noted["results"].items()}
        except Exception as err:
            # The serializer raises errors of many kinds for bytes that it did not write.
            raise Interrupted(f"what its states had done cannot be read ({err})") from err
        for ret in results.values():
            if not ret.get("__resumed__"):
                ret["comment"] = join_comments(ret.get("comment"), RESUMED)
                ret["__resumed__"] = True
        return results

    def fill(self, place: str, state: Any, running: Any) -> None:
        """Put the results into those that the next state of Salt's engine is called with."""
        results = self._results.get(place, {})
        for tag, ret in results.items():
            running.setdefault(tag, ret)
            # By these it judges states that come before others. One that failed has failed.
            failed = ret.get("result") is False
            state.pre.setdefault(tag, ret if failed else _as_asked(ret, ret.get("changes")))
        numbers = [ret["__run_num__"] for ret in results.values() if "__run_num__" in ret]
        state._State__run_num = max([state._State__run_num, *(each + 1 for each in numbers)])

    def result(self, place: str, low: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a state; None if it has not run."""
        results = self._results.get(place)
        if not results:
            return None
        ret = results.get(salt.state._gen_tag(low))
        if ret is None and "sfun" in low:
            # Salt calls it once more because of what it watches.
            ret = results.get(salt.state._gen_tag({**low, "fun": low["sfun"]}))
        if ret is None or not low.get("__prereq__"):
            return ret
        low["__prereq__"] = False
        # One that came before it has its result only if this one would change something.
        return _as_asked(ret, ret.get("changes") or _has_run_before(low, results))

    def restore(self, place: str, results: dict[str, Any]) -> None:
        """Have *results* of a run say what they were, whatever Salt has judged again."""
        results.update(self._results.get(place, {}))


def _as_asked(ret: Mapping[str, Any], changes: object) -> dict[str, Any]:
    """Return a result in the form of a state in test mode: what it has done."""
    return {**ret, "result": None if changes else True}


def _has_run_before(low: Mapping[str, Any], results: Iterable[str]) -> bool:
    """Tell whether a state that is to come before this one is among *results*."""
    before = [pair for each in low.get("prerequired") or () for pair in each.items()]
    known = [tag.split("_|-") for tag in results]
    return any(kind == each[0] and name in each[1:3] for kind, name in before for each in known)
