"""
What the main process of a minion does when it is ready: its start need not wait for it.

It is ready when it has told its master that it has started. Its engine begins with its work then
(:func:`wait`), and until then garbage is collected less often (:func:`begin`): what a start makes
are modules and functions, which stay.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import select
from collections.abc import Callable, Iterable
from typing import Any

from ..patches import tell

# Objects that are made until garbage is looked for; Python's default is 700. A start makes about
# 150,000. If no master can be reached, it is looked for at each such number.
_OBJECTS = 50_000
# Seconds after the answer of the master, which has to tell others of the start first.
_MOMENT = 0.3
# Seconds after which the engine begins although the minion has no master yet.
PATIENCE = 5.0

_begun: list[int] = []
# The ends of a pipe: the main process closes the second one when it is ready.
_pipe: list[int] = []
_threshold: list[int] = []


class Ready:
    """
    Does it once: just after the master has been told of the start, or before the first job.

    A minion without a master does it with the first look at the schedule. An error of ours in it
    is told, and keeps nothing of Salt from being called.
    """

    def __init__(self, todo: Iterable[Callable[[], None]]) -> None:
        self._todo = list(todo)

    def before(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Return what does it, and then calls *handle*."""

        @functools.wraps(handle)
        def when_done(*args: Any, **kwargs: Any) -> Any:
            self._do()
            return handle(*args, **kwargs)

        return when_done

    def after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """
        Return what calls *original* with a minion, and soon after its end has the loop do it.

        It may be a coroutine function.
        """
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def waits(minion: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    return await original(minion, *args, **kwargs)
                finally:
                    self._do_soon(minion)

            return waits

        @functools.wraps(original)
        def calls(minion: Any, *args: Any, **kwargs: Any) -> Any:
            future = original(minion, *args, **kwargs)
            if hasattr(future, "add_done_callback"):
                # A coroutine of Tornado.
                future.add_done_callback(lambda _: self._do_soon(minion))
            return future

        return calls

    def _do_soon(self, minion: Any) -> None:
        try:
            minion.io_loop.call_later(_MOMENT, self._do)
        except Exception as err:  # noqa: BLE001 (it is told)
            tell("salt.minion.Minion._fire_master_minion_start", err)
            self._do()

    def _do(self) -> None:
        while self._todo:
            what = self._todo.pop(0)
            try:
                what()
            except Exception as err:  # noqa: BLE001 (it is told)
                tell("what is done when the minion is ready", err)


def begin() -> None:
    """Have this process, the main one of a minion, put off until :func:`end` what it can; once."""
    if _begun:
        return
    _begun.append(os.getpid())
    _pipe[:] = os.pipe()
    _threshold[:] = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *_threshold[1:])
    os.register_at_fork(after_in_child=_go_on)


def end() -> None:
    """Go on as before :func:`begin`: this process is ready."""
    _go_on()
    while _pipe:
        os.close(_pipe.pop())


def wait(timeout: float = PATIENCE) -> bool:
    """
    Wait in a child until the main process is ready, or has ended, *timeout* seconds at most.

    Return whether it is or has; always if it has not put anything off.
    """
    return not _pipe or bool(select.select(_pipe, (), (), timeout)[0])


def _go_on() -> None:
    # A child of one that was not ready keeps the first end of the pipe.
    if _threshold:
        gc.set_threshold(*_threshold)
        _threshold.clear()
        os.close(_pipe.pop())
