"""
The state runs that are active, as the main process of a minion sees them.

After a handover, state runs of the earlier minion continue. Salt refuses each run that comes
meanwhile and does not queue itself. After a restart of plain Salt there would be none in its way.
So such a run waits for them, but no longer than a restart waits for jobs: then it begins although
an earlier run, which may hang, has not ended.

Those that have waited begin one at a time, as each of them would be refused while another one runs.
A process notes only after a moment that its run is active, so this remembers what has begun.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt.utils.minion

from ..core.host import processes
from ..patches import instead
from . import proc_files, queues

_Process = Callable[[Callable[..., Any], Any], Any]
# Seconds in which a process that begins a run has noted that it is active, or never does.
_NOTED = 10.0


class StateRuns:
    """
    *main* is the identity of the main process; empty: no other minion can be before it.

    *patience* is the number of seconds, from its start, for which runs wait for earlier ones. Time
    in which the host sleeps does not count: nothing runs then.
    """

    def __init__(
        self, main: str, patience: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._main = main
        self._monotonic = monotonic
        self._until = monotonic() + patience
        # The processes that have begun a run; empty: it begins in a moment. And since when.
        self._begun: list[tuple[str, float]] = []
        # The parts of the minion, one for each master, whose queue of state runs Salt processes.
        self._queues: weakref.WeakSet[Any] = weakref.WeakSet()

    @staticmethod
    def active(opts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the state runs that are active."""
        threads = not opts.get("multiprocessing", True)
        read = salt.utils.minion.running if threads else proc_files.listed
        found: Iterable[dict[str, Any]] = read(opts)
        return [each for each in found if str(each.get("fun", "")).startswith("state.")]

    def begins(self) -> None:
        """Note that a run begins in a moment."""
        self._begun.append(("", self._monotonic()))

    def has_begun(self, function: str, process: Any) -> None:
        """Note that this process has begun a job; it may be a thread, or None."""
        # Salt sees no state run in a job of several functions.
        if not function.startswith("state.") or "," in function:
            return
        self._begun = [each for each in self._begun if each[0]]
        pid = getattr(process, "pid", None)
        if pid:
            self._begun.append((processes.identity(pid), self._monotonic()))

    def in_turn(self, process_queue: _Process) -> _Process:
        """Return what processes Salt's queue of state runs, unless one begins at this moment."""

        def process(original: Callable[..., Any], minion: Any) -> Any:
            self._queues.add(minion)
            if self.one_begins(minion.opts):
                instead(original)
                return None
            return process_queue(original, minion)

        return process

    def one_begins(self, opts: Mapping[str, Any]) -> bool:
        """Tell whether a run has begun that is not active yet, or Salt is about to begin one."""
        looking = (
            each for each in self._queues if getattr(each, "_state_queue_processing_active", False)
        )
        # It looks about once a second, mostly at an empty queue.
        if any(queues.has_state_runs(each.opts) for each in looking):
            return True
        now = self._monotonic()
        self._begun = [
            (who, at)
            for who, at in self._begun
            if now < at + _NOTED and (not who or processes.alive(who))
        ]
        if not self._begun:
            return False
        noted = {processes.identity(int(each.get("pid") or 0)) for each in self.active(opts)}
        self._begun = [each for each in self._begun if each[0] not in noted - {""}]
        return bool(self._begun)

    def is_earlier(self, run: Mapping[str, Any]) -> bool:
        """Tell whether a run is a job that began before this minion did."""
        # With plain Salt, a restart ends no salt-call.
        if not self._main or not run.get("pid") or run.get("tgt") == "salt-call":
            return False
        return processes.began_before(processes.identity(int(run["pid"])), self._main)

    def is_overdue(self, run: Mapping[str, Any]) -> bool:
        """Tell whether a run is an earlier one that was waited for long enough."""
        if not self.is_earlier(run) or not processes.alive(self._main):
            return False
        return self._monotonic() > self._until
