"""Errors in parts of a task that do not depend on each other."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import SafeUpdateError


class Problems:
    """Runs every part, and raises the first error after all of them."""

    def __init__(self) -> None:
        self._first: SafeUpdateError | None = None

    def __bool__(self) -> bool:
        return self._first is not None

    def of(self, part: Callable[[], object]) -> None:
        """Run a part, and keep its error for later."""
        try:
            part()
        except SafeUpdateError as err:
            self._first = self._first or err

    def tell(self) -> None:
        """Raise the first error, if any."""
        if self._first is not None:
            raise self._first
