"""The time after an update in which the new minion has to show that it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.record.store import Store
from .complaints import Complaints

# Seconds for which a job is left to the minion before: that one may be slow, or hang.
_LEFT = 5.0


class Trial:
    """
    Whether an update is on trial, and what the new minion has left to the one before it.

    That one takes all jobs meanwhile. What it has not claimed in time is started here.
    """

    def __init__(
        self, store: Store, complaints: Complaints, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._complaints = complaints
        self._monotonic = monotonic
        self._left: list[tuple[Any, dict[str, Any], float]] = []
        # Whether it goes on now, and whether jobs are started here all the same.
        self.goes_on = self.insists = False
        # The main processes beside whose jobs the packages changed: those that serve meanwhile.
        self.before: tuple[str, ...] = ()

    def look(self) -> None:
        """Look into the record. If that cannot be read, what was so stays so."""
        try:
            last = self._store.latest() if self._store.exists() else None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return
        self.goes_on = last is not None and last.on_trial
        self.before = () if last is None else last.progress.beside

    def leave(self, minion: Any, data: dict[str, Any]) -> None:
        """Leave a job to the minion before."""
        self._left.append((minion, data, self._monotonic()))

    def start_left(self, *, leaves: bool) -> None:
        """Start what was left too long ago; all of it if this minion *leaves* nothing any more."""
        while self._left and (not leaves or self._monotonic() > self._left[0][2] + _LEFT):
            minion, data, _ = self._left.pop(0)
            self.insists = True
            try:
                minion._invoke_execution(data)
            finally:
                self.insists = False
