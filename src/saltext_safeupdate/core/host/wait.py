"""How long to wait: time in which the host stood still, as a paused container, does not count."""

from __future__ import annotations

import time
from collections.abc import Callable

# A wait looks every few seconds. Between two looks that are so many apart, nothing ran.
_STOOD_STILL = 60.0


class Wait:
    """It is over after some seconds in which somebody looked."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._until = self._looked + seconds

    @property
    def left(self) -> float:
        now = self._clock()
        passed, self._looked = now - self._looked, now
        if passed >= _STOOD_STILL:
            self._until += passed
        return self._until - now

    @property
    def over(self) -> bool:
        return self.left <= 0
