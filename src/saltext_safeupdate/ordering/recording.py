"""
Calls the states of a run: with the ledger if that records the job of the run, else without it.

Nearly all runs that no ledger records are runs of ``salt-call``. They do not load what reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ..core.jobs import current
from ..core.settings import Settings
from .runs import Level

if TYPE_CHECKING:
    from .resume import Resume

# A state that took fewer milliseconds and changed nothing is called again: that is cheaper
# than to record it.
NO_TIME = 10.0


class Recording:
    """Stands before :class:`.resume.Resume`, which only a job that is recorded needs."""

    def __init__(self, settings: Settings, no_time: float = NO_TIME) -> None:
        self.no_time = no_time
        self._settings = settings
        self._call: Callable[..., Any]

    def attach(self, call: Callable[..., Any]) -> None:
        """Call states with Salt's own *call*."""
        self._call = call

    def resume(self) -> Resume:
        """Return what records the results of states, and reads them again."""
        return self._resume

    @cached_property
    def _resume(self) -> Resume:
        from .resume import Resume

        return Resume(self._settings, self.no_time, self._plainly)

    def _plainly(self, *args: Any) -> Any:
        return self._call(*args)

    def of_run(self) -> tuple[bool, bool]:
        """
        Tell whether the run that begins is recorded, and whether it is resumed.

        Raises Interrupted if it is to be, and cannot.
        """
        return self._resume.of_run() if current.recorded() else (False, False)

    def restore(self, level: Level, results: dict[str, Any]) -> None:
        """Have the results of a run say what they were when it was suspended."""
        if current.recorded():
            self._resume.restore(level, results)

    def place(self) -> str:
        """Return the name of the state that is being called, or an empty text."""
        return self._resume.place() if current.recorded() else ""

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
        if current.recorded():
            return self._resume.call(state, low, chunks, running, retries, salts)
        return (salts or self._call)(state, low, chunks, running, retries)

    def record(self, state: Any, low: dict[str, Any], ret: dict[str, Any]) -> None:
        """Record the result of a state that was not called by :meth:`call`, if it is worth it."""
        if current.recorded():
            self._resume.record(state, low, ret)

    def suspend(self, process: str, timeout: float, ask: Callable[[], object]) -> NoReturn:
        """Continue the job of this run after a restart: see :meth:`.resume.Resume.suspend`."""
        self._resume.suspend(process, timeout, ask)
