"""The time after an update in which the new minion has to show that it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.record.store import Store
from .complaints import Complaints

# Seconds for which a job is left to the former minion, which may be slow or hang.
_LEFT = 5.0


class Trial:
    """
    Whether an update is on trial, and the jobs that the new minion has left to the former one.

    The former minion takes all jobs meanwhile. Jobs that it has not claimed in time start here.
    """

    def __init__(
        self, store: Store, complaints: Complaints, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._complaints = complaints
        self._monotonic = monotonic
        self._left: list[tuple[Any, dict[str, Any], float]] = []
        # Whether the trial still runs, and whether jobs start here nevertheless.
        self.goes_on = self.insists = False
        # The main processes whose jobs ran while the packages changed: they serve meanwhile.
        self.before: tuple[str, ...] = ()

    def look(self) -> None:
        """Read the record. If it cannot be read, nothing changes here."""
        try:
            last = self._store.latest() if self._store.exists() else None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return
        self.goes_on = last is not None and last.on_trial
        self.before = () if last is None else last.progress.beside

    def leave(self, minion: Any, data: dict[str, Any]) -> None:
        """Leave a job to the former minion."""
        self._left.append((minion, data, self._monotonic()))

    def start_left(self, *, leaves: bool) -> None:
        """Start jobs that were left too long ago; all of them if this minion *leaves* no more."""
        while self._left and (not leaves or self._monotonic() > self._left[0][2] + _LEFT):
            minion, data, _ = self._left.pop(0)
            self.insists = True
            try:
                minion._invoke_execution(data)
            finally:
                self.insists = False
