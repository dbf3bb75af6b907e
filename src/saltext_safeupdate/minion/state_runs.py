"""
The state runs that are active, as the main process of a minion sees them.

After a handover, state runs of the earlier minion continue. Salt refuses each run that comes
meanwhile and does not queue itself. After a restart of plain Salt there would be none in its way.
So such a run waits for them, but no longer than a restart waits for jobs: then it begins although
an earlier run, which may hang, has not ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt.utils.minion

from ..core.host import processes


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

    @staticmethod
    def active(opts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the state runs that are active."""
        found: Iterable[dict[str, Any]] = salt.utils.minion.running(opts)
        return [each for each in found if str(each.get("fun", "")).startswith("state.")]

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
