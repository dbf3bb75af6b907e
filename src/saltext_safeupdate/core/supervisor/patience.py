"""
How long to wait for a minion: only time counts in which its host let it run, not clock time.
"""

from __future__ import annotations

from collections.abc import Callable

# The longest wait in multiples of the time-out, however little time the host had for the minion.
MOST = 6.0
# Seconds between two checks of that time.
_LOOK_INTERVAL = 1.0
# Seconds that a check may be late before it means that the host had no time for us either.
_LATE = 1.0
_STOOD_STILL = 60.0


class Patience:
    """
    Counts the seconds in which a minion could have come up.

    *limit* is how many seconds it gets, *had* how many it has had before. Time in which its
    processes waited for their host does not count, nor time in which this process was kept from
    checking. In any case the wait ends after ``MOST`` times the limit. If the host stood still,
    such as a paused virtual machine, only the first minute of that time counts towards this end.
    """

    def __init__(
        self,
        limit: float,
        monotonic: Callable[[], float],
        waited: Callable[[int], float],
        *,
        had: float = 0.0,
    ) -> None:
        self.limit = limit
        self._monotonic = monotonic
        self._waited = waited
        self._last = monotonic()
        self._had = had
        self._watched = 0.0
        waited(0)

    def look(self, pid: int, *, stops: bool = False) -> None:
        """
        Count the time that has passed; *pid* is the main process, 0 if none runs.

        Nothing counts while *stops* is true. Then something outside of the minion stops it: the
        earlier process has not ended yet, or no master can be reached.
        """
        now = self._monotonic()
        passed = now - self._last
        if passed < _LOOK_INTERVAL:
            return
        self._last = now
        self._watched += min(passed, _STOOD_STILL)
        could = 0.0 if stops else min(passed, _LOOK_INTERVAL + _LATE)
        self._had += max(0.0, could - self._waited(pid))

    def begin_anew(self) -> None:
        """Give it the whole time again; the latest end stays the same."""
        self._had = 0.0

    @property
    def watched(self) -> float:
        """How long it has been watched, in seconds of the clock."""
        return max(self._watched, self._had)

    @property
    def over(self) -> bool:
        return self._had >= self.limit or self._watched >= MOST * self.limit

    @property
    def spent(self) -> str:
        """The time that was counted, in words."""
        counted = min(self._had, self.limit)
        if self._watched < counted + 2 * _LATE:
            return f"within {self.limit:g} s"
        return (
            f"within {self.limit:g} s of the host's time for it (in {self._watched:.0f} s the host "
            f"had {counted:.0f} s for it)"
        )
