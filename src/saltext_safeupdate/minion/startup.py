"""
The startup states of a minion (``startup_states``), which run once at each of its starts.

They have no job ID of their own, so Salt's queue of state runs would keep them forever. They wait
in memory instead: until this minion has shown that an update works, and no other state run is
active. Otherwise a rollback would cut them short, or Salt would refuse them and tell nobody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from .publication import beside_others, is_of_startup
from .state_runs import StateRuns

log = logging.getLogger(__name__)

# Seconds between two checks whether they may begin.
_INTERVAL = 1.0
# In a publication: it was decided that they begin now.
_BEGIN = "safeupdate_begin"


class Startup:
    """
    Keeps them until they may begin.

    *unproven* tells whether the minion has to show first that it works.
    """

    def __init__(
        self,
        runs: StateRuns,
        unproven: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs
        self._unproven = unproven
        self._monotonic = monotonic
        # With several masters, each part of the minion has its own.
        self._waiting: list[tuple[Any, dict[str, Any]]] = []
        self._look_at = 0.0

    def keep(self, minion: Any, data: dict[str, Any]) -> bool:
        """Keep a job if it is the startup states and may not begin yet; tell whether that is so."""
        if not is_of_startup(data) or data.pop(_BEGIN, False):
            return False
        why = self._why_not(minion, data)
        if why:
            self._waiting.append((minion, data))
            log.info("safeupdate: the startup states wait: %s", why)
        return bool(why)

    def begin(self, minion: Any) -> None:
        """Start the startup states of this part of the minion if they may begin now."""
        if not self._waiting or self._monotonic() < self._look_at:
            return
        self._look_at = self._monotonic() + _INTERVAL
        ours = [each for each in self._waiting if each[0] is minion]
        for each in ours:
            if self._why_not(*each):
                return
            self._waiting.remove(each)
            self._runs.begins()
            # As a job from one of Salt's queues: Salt has seen its JID already.
            _, data = each
            data |= {"__ignore_process_count_max": True, _BEGIN: True}
            handle, loop = minion._handle_decoded_payload, minion.io_loop
            if hasattr(loop, "spawn_callback"):
                loop.spawn_callback(handle, data)
            else:
                loop.create_task(handle(data))

    def _why_not(self, minion: Any, data: dict[str, Any]) -> str:
        """Return why they may not begin; if only overdue runs are active, do not be refused."""
        if self._unproven():
            return "this minion has to show first that the update works"
        if self._runs.one_begins(minion.opts):
            return "another state run begins"
        active = self._runs.active(minion.opts)
        for each in active:
            if not self._runs.is_overdue(each):
                return f"state run {each.get('jid')} (PID {each.get('pid')}) is active"
        if active:
            data |= beside_others(data)
        return ""
