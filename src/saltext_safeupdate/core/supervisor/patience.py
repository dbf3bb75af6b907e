"""
How long a minion is waited for: the time that its host had for it counts, and not the clock.
"""

from __future__ import annotations

from collections.abc import Callable

# How many times the time-out a minion gets at most, whatever its host has for it.
MOST = 6.0
# Seconds between two looks at what the host has for it.
_LOOK_INTERVAL = 1.0
# Seconds that a look may be late before it means that the host had no time for us either.
_LATE = 1.0
_STOOD_STILL = 60.0


class Patience:
    """
    Counts the seconds in which a minion could have come up.

    *limit* is how many it gets, *had* how many it has had before. Time in which its processes
    waited for their host does not count, nor time in which this process was kept from looking.
    It is over with ``MOST`` times the limit in any case; of a time in which the host stood still,
    such as a virtual machine that was paused, the first minute counts for that.
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
        Count what has passed; *pid* is the main process, 0 if none is there.

        While something *stops* it that is none of its own, nothing counts: the one before has not
        gone yet, or no master can be reached.
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
        """Give it the whole time again; the end in any case stays where it is."""
        self._had = 0.0

    @property
    def watched(self) -> float:
        """How long it was looked at, in seconds of the clock."""
        return max(self._watched, self._had)

    @property
    def over(self) -> bool:
        return self._had >= self.limit or self._watched >= MOST * self.limit

    @property
    def spent(self) -> str:
        """What it was, in words."""
        counted = min(self._had, self.limit)
        if self._watched < counted + 2 * _LATE:
            return f"within {self.limit:g} s"
        return (
            f"within {self.limit:g} s of the host's time for it (in {self._watched:.0f} s the host "
            f"had {counted:.0f} s for it)"
        )
