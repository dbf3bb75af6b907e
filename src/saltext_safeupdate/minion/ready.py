"""What the main process of a minion does when it is ready: its start need not wait for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..patches import tell


class Ready:
    """
    Does it once: before the first job, or with the first look at the schedule, a second later.

    An error of ours in it is told, and keeps nothing of Salt from being called.
    """

    def __init__(self, todo: Iterable[Callable[[], None]]) -> None:
        self._todo = list(todo)

    def before(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Return what does it, and then calls *handle*."""

        @functools.wraps(handle)
        def when_done(*args: Any, **kwargs: Any) -> Any:
            while self._todo:
                self._do(self._todo.pop(0))
            return handle(*args, **kwargs)

        return when_done

    def _do(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as err:  # noqa: BLE001 (it is told)
            tell("what is done when the minion is ready", err)
