"""What the main process of a minion sees of those before it, that were handed over to it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.errors import SafeUpdateError
from ..core.generations.table import Generations
from .complaints import Complaints

# Seconds for which this one goes on claiming when the one before takes no more: it may be that
# late with what both have heard.
_LATE = 300.0


class FormerOnes:
    """Whether others that began before this one still take jobs, or did so a moment ago."""

    def __init__(
        self,
        generations: Generations,
        complaints: Complaints,
        monotonic: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._generations = generations
        self._complaints = complaints
        self._monotonic = monotonic
        self._clock = clock
        # None: not looked yet.
        self._processes: list[str] | None = None
        self._late_until = 0.0
        # When they took no more, in epoch seconds.
        self._left_at = 0.0

    @property
    def are_there(self) -> bool:
        """Whether some took jobs when this one last looked."""
        return bool(self._processes)

    def are_found(self) -> bool:
        """Look for them if nobody has; tell whether that has found some."""
        if self._processes is not None:
            return False
        try:
            self._processes = self._generations.overlapping()
        except SafeUpdateError:
            # The one before claims nothing then, so it runs nothing. Each job tells of it.
            return False
        return bool(self._processes)

    def may_run_the_same(self) -> bool:
        """Tell whether one of them may have, or still get, what this one hears."""
        return self.are_there or self._monotonic() < self._late_until

    def may_have_run(self, at: float) -> bool:
        """Tell whether one of them may have run a job that was due at that time, also long ago."""
        return 0.0 < at <= self._left_at

    def look(self) -> None:
        """Note which of them still take jobs."""
        if not self._processes:
            return
        try:
            there = self._generations.overlapping()
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return
        self._processes = [each for each in there if each in self._processes]
        if not self._processes:
            self._late_until = self._monotonic() + _LATE
            self._left_at = self._clock()
