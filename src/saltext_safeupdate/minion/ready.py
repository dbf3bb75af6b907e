"""
Work that the main process of a minion does when it is ready, so that its start need not wait.

It is ready when it has told its master that it has started. Then it starts its engine
(:func:`engine_later`): while parent and child share memory, the main process has to copy each page
that it writes to. Until then, garbage is collected less often (:func:`begin`), because a start
mostly creates modules and functions, which stay. Work that must be done earlier
(:func:`meanwhile`) is done while the minion waits for its master. If that takes longer than 5
seconds, nothing is deferred any longer (:func:`wait_on`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from salt.exceptions import SaltClientError

from ..core.host import processes
from ..patches import instead, tell
from . import steady
from .rest import is_ours, living

# Objects that are created before garbage is collected; Python's default is 700. A start creates
# about 150,000. If no master can be reached, garbage is collected at each such number.
_OBJECTS = 50_000
# Seconds after the answer of the master, which first has to tell others about the start.
_MOMENT = 0.3
# Seconds after which the engine is started although the minion has no master yet.
_PATIENCE = 5.0
# Seconds of the age of this process. Salt looks after the children of a minion only if there is one
# 10 seconds after its loop began, and on a slow host the start of the engines alone takes longer.
_LOOKED_AFTER = 9.0
# Seconds between two checks whether an earlier minion still takes the jobs.
_LOOK = 1.0
# Seconds until it waits for its master: Salt connects as soon as its loop continues.
_ASKED = 0.02
# Seconds that each of them may take to end.
_END = 10.0

_ends: list[int] = []
_begun: list[int] = []
_threshold: list[int] = []
# Functions to call while it waits for its master.
_meanwhile: list[Callable[[], None]] = []
# Functions to call if its start takes long.
_at_length: list[Callable[[], None]] = []
# Functions that start the deferred engines; there is one for each master.
_engines: list[Callable[[], Any]] = []
# The arguments with which Salt starts them, by its process manager.
_given: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


class Ready:
    """
    Calls functions once, just after the master knows about the start.

    Those that the jobs need (*needed*) are called before the first job, if that comes earlier. A
    minion that waits for its master calls all of them after 5 seconds: what they import and read is
    on the disk now, and may be another version later. One without a master calls them with the
    first check of the schedule. An error of ours in them is logged, and does not keep any function
    of Salt from being called.

    The master hears of the start only when this minion takes the jobs, and no earlier one *shares*
    them: who reacts to a start wants the minion that has started.
    """

    def __init__(
        self,
        needed: Iterable[Callable[[], None]],
        others: Iterable[Callable[[], None]] = (),
        shares: Callable[[], bool] = lambda: False,
    ) -> None:
        self._needed, self._others, self._shares = list(needed), list(others), shares
        # By the part of the minion: a loop itself does not keep its tasks.
        self._tasks: dict[int, Any] = {}
        self._told: set[int] = set()
        _at_length.append(self._do)

    def before(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls all of them, and then *handle*."""
        return _after(self._do, handle)

    def before_job(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls those that the jobs need, and then *handle*."""
        return _after(self._do_needed, handle)

    def after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """
        Return a function that calls *original*, and has the loop call them soon after its end.

        *original* may be a coroutine function.
        """
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def waits(minion: Any, *args: Any, **kwargs: Any) -> Any:
                _do_all([partial(engine_again, minion)])
                if self._is_early(minion):
                    loop = minion.io_loop
                    again = partial(waits, minion, *args, **kwargs)
                    keep = partial(self._tasks.__setitem__, id(minion))
                    loop.call_later(_LOOK, lambda: keep(loop.create_task(again())))
                    return self._do_soon(minion)
                # If the minion ends meanwhile, nothing is left to do.
                try:
                    told = await original(minion, *args, **kwargs)
                except Exception:
                    self._do_soon(minion)
                    raise
                self._do_soon(minion)
                return told

            return waits

        @functools.wraps(original)
        def calls(minion: Any, *args: Any, **kwargs: Any) -> Any:
            _do_all([partial(engine_again, minion)])
            if self._is_early(minion):
                minion.io_loop.call_later(_LOOK, partial(calls, minion, *args, **kwargs))
                return self._do_soon(minion)
            future = original(minion, *args, **kwargs)
            if hasattr(future, "add_done_callback"):
                # A coroutine of Tornado.
                future.add_done_callback(lambda _: self._do_soon(minion))
            return future

        return calls

    def _is_early(self, minion: Any) -> bool:
        """Tell whether the start of this part of the minion must not be told yet."""
        if id(minion) not in self._told and self._shares():
            return True
        self._told.add(id(minion))
        return False

    def _do_soon(self, minion: Any) -> None:
        try:
            minion.io_loop.call_later(_MOMENT, self._do)
        except Exception as err:  # noqa: BLE001 (it is told)
            tell("salt.minion.Minion._fire_master_minion_start", err)
            self._do()

    def _do(self) -> None:
        self._do_needed()
        _do_all(self._others)

    def _do_needed(self) -> None:
        if self._needed:
            catch_up()
            _do_all(self._needed)


def _after(first: Callable[[], None], handle: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handle)
    def when_done(*args: Any, **kwargs: Any) -> Any:
        first()
        return handle(*args, **kwargs)

    return when_done


def _do_all(todo: list[Callable[[], None]]) -> None:
    while todo:
        what = todo.pop(0)
        try:
            what()
        except Exception as err:  # noqa: BLE001 (it is told)
            tell("what is done when the minion is ready", err)


def engines_end_with_it() -> None:
    """
    Have the engines of ours that this process has forked end when it ends.

    Salt ends the engines of a minion that has had a master. Python waits for any others before it
    lets a process end, and an engine runs until its minion has ended.
    """
    if os.getpid() not in _ends:
        _ends[:] = [os.getpid()]
        Finalize(None, _end_engines, exitpriority=0)


def _end_engines() -> None:
    # Python would now collect garbage from before begin() and after it together. In Salt 3008, a
    # connection among it may wait for another one without end.
    gc.freeze()
    ours = living()
    for each in ours:
        each.terminate()
    for each in ours:
        each.join(_END)
        if each.is_alive():
            each.kill()


def begin() -> None:
    """Defer work of this process, the main process of a minion, until :func:`end`; once."""
    if _begun:
        return
    _begun.append(os.getpid())
    _threshold[:] = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *_threshold[1:])
    loop = _loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        # The deferred work would be late if somebody sets the clock back, as a boot may do.
        steady.keep_loop(loop)
    if loop is not None:
        loop.call_later(_PATIENCE, wait_on)
    os.register_at_fork(before=catch_up, after_in_child=_go_on)


def meanwhile(what: Callable[[], None]) -> None:
    """
    Have *what* done while this process waits for its master, which takes no time of its start.

    It is done before the process forks a child, and before it is ready. If it takes longer than
    'auth_timeout' (5 seconds), Salt asks its master once more.
    """
    loop = _loop()
    _meanwhile.append(what)
    if loop is None:
        catch_up()
    else:
        loop.call_later(_ASKED, catch_up)


def wait_on() -> None:
    """Do the deferred work of this main process of a minion, once: its start takes long."""
    if _threshold:
        catch_up()
        _do_all(_at_length)
        start_engines()


def catch_up() -> None:
    """Do what is to be done meanwhile, if that is not done yet."""
    _do_all(_meanwhile)


def end() -> None:
    """Collect garbage as before :func:`begin`: this process is ready."""
    if _threshold:
        gc.set_threshold(*_threshold)
        _threshold.clear()


def give_back() -> None:
    """
    Give memory that only the start needed back to the system, for this process and its children.

    The C library of GNU keeps it at the end of its heap (``malloc_trim``). One that has no such
    function, or cannot be called from Python, keeps its memory.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def engine_later(
    add: Callable[..., Any],
    manager: Any,
    tgt: Any,
    args: Any = None,
    kwargs: Any = None,
    name: str | None = None,
) -> Any:
    """
    Take the place of ``salt.utils.process.ProcessManager.add_process``: defer our engine.

    It is started by :func:`start_engines`, and at the latest after 5 seconds: it also looks after
    a minion that reaches no master (see :func:`or_wait_on`). If nothing could start it then, or
    Salt would not look after it any more, it is started at once.
    """
    if not _threshold or not is_ours(args):
        return add(manager, tgt, args, kwargs, name)
    _given[manager] = (tgt, args, kwargs, name)
    loop = _loop()
    left = 0.0 if loop is None else _LOOKED_AFTER - (processes.age(os.getpid()) or _LOOKED_AFTER)
    if loop is None or left <= 0:
        return add(manager, tgt, args, kwargs, name)
    loop.call_later(min(_PATIENCE, left), wait_on)
    _engines.append(partial(_start, add, manager, tgt, args, kwargs, name))
    return instead(add)


def or_wait_on(original: Callable[..., Any]) -> Callable[..., Any]:
    """
    Return a function that calls *original*, and does the deferred work if it fails.

    Salt sleeps after it could not find its master ('retry_dns'), and nothing else runs meanwhile.
    """

    @functools.wraps(original)
    def calls(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except SaltClientError:
            wait_on()
            raise

    return calls


def engine_again(minion: Any) -> None:
    """
    Start our engine again if Salt has ended it and never would: the minion has a master only now.

    Salt ends the engines of a minion that fails to get one, as with 'master_type: failover' if no
    master's name is found, and tries again without them. Those of others stay as Salt leaves them.
    """
    given = _given.pop(minion.process_manager, None)
    if given is None or getattr(minion.process_manager, "_restart_processes", True):
        return
    kind = type(minion.process_manager)
    minion.process_manager = manager = kind(name=minion.process_manager.name)
    watch = manager.run(asynchronous=True)
    # A coroutine of Tornado runs already.
    if inspect.iscoroutine(watch):
        minion.io_loop.create_task(watch)
    manager.add_process(*given)


def start_engines() -> None:
    """Start the deferred engines; once."""
    _do_all(_engines)


def _start(add: Callable[..., Any], manager: Any, *given: Any) -> None:
    # Those of a minion that ends, or is handed over, are not started any more.
    if getattr(manager, "_restart_processes", True):
        add(manager, *given)


def _loop() -> Any:
    """Return the loop of events that calls this; None if it is not known."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    try:
        # Salt 3006 has its own.
        from salt.ext.tornado.ioloop import IOLoop
    except ImportError:
        return None
    return IOLoop.current(instance=False)


def _go_on() -> None:
    # A child of one that was not ready collects garbage as usual, and starts none of its engines.
    end()
    _engines.clear()
    _at_length.clear()
