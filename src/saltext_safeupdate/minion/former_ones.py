"""Earlier minions that were handed over to this one, as its main process sees them."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.errors import SafeUpdateError
from ..core.generations.table import Generations
from .complaints import Complaints

# Seconds for which this minion still claims jobs when the former one takes no more: the former one
# may be that late with jobs that both have received.
_LATE = 300.0


class FormerOnes:
    """Whether minions that began before this one still take jobs, or did so a moment ago."""

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
        # None: not checked yet.
        self._processes: list[str] | None = None
        self._late_until = 0.0
        # When they stopped taking jobs, in epoch seconds.
        self._left_at = 0.0

    @property
    def are_there(self) -> bool:
        """Whether some took jobs at the last check."""
        return bool(self._processes)

    def are_found(self) -> bool:
        """Check for them if that was not done yet; tell whether this has found some."""
        if self._processes is not None:
            return False
        try:
            self._processes = self._generations.overlapping()
        except SafeUpdateError:
            # The former minion claims nothing then, so it runs nothing. Each job logs it.
            return False
        return bool(self._processes)

    def may_run_the_same(self) -> bool:
        """Tell whether one of them may have the jobs that this one gets, or still get them."""
        return self.are_there or self._monotonic() < self._late_until

    def may_have_run(self, at: float) -> bool:
        """Tell whether one of them may have run a job that was due at that time, even long ago."""
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
