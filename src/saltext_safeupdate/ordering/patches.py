"""Every function of Salt that is replaced to order state runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import salt.loader.lazy
import salt.state
import salt.utils.functools

from ..core.settings import Settings
from ..patches import Patch, replaced, unchanged
from ..this_host import Host
from . import loaders, parallel, resume, runs
from .calling import Calling
from .deferring import Deferring
from .ending import Ending
from .guard import Guard
from .ordering import Ordering
from .own_packages import OwnPackages
from .quarantine import Quarantine
from .resume import Resume
from .testmode import TestMode


def patches(host: Host, settings: Settings, *, no_time: float = resume.NO_TIME) -> list[Patch]:
    """Build the objects that order state runs; return the table that puts them into Salt."""
    own = OwnPackages(host)
    quarantine = Quarantine(host)
    guard = Guard(host, own, quarantine)
    resuming = Resume(settings, no_time)
    ordering = Ordering(resuming, Ending(guard, resuming.call))
    calling = Calling(
        ordering=ordering,
        deferring=Deferring(own, resuming.call),
        resume=resuming,
        test_mode=TestMode(own, quarantine, settings.service),
        own=own,
        run_dir=settings.run_dir,
    )
    state = salt.state.State
    loader = salt.loader.lazy.LazyLoader
    handlers = {**guard.handlers(), **ordering.handlers()}
    return [
        Patch(state, "call", ("self", "low", "chunks", "running", "retries"), calling.around_call),
        _by(state, "call_high", ("self", "high"), ordering.call_high),
        _by(state, "call_chunks", ("self", "chunks"), ordering.call_chunks),
        _by(state, "module_refresh", ("self",), _module_refresh),
        _by(
            state,
            "_call_parallel_target",
            ("cls", "instance", "init_kwargs", "name", "cdata", "low", "inject_globals"),
            parallel.call_target,
        ),
        Patch(state, "call_chunk", ("self", "low", "running", "chunks"), unchanged),
        Patch(state, "check_failhard", ("self", "low", "running"), unchanged),
        Patch(state, "reconcile_procs", ("self", "running"), unchanged),
        Patch(state, "load_modules", ("self",), unchanged),
        Patch(state, "event", ("self", "chunk_ret", "length", "fire_event"), unchanged),
        Patch(
            salt.utils.functools,
            "call_function",
            ("salt_function",),
            _around_call_function,
        ),
        Patch(loader, "_load_module", ("self", "name"), loaders.around_load_module(handlers)),
        Patch(salt.state, "_gen_tag", ("low",), unchanged),
    ]


def _by(owner: Any, name: str, parameters: tuple[str, ...], handle: Callable[..., Any]) -> Patch:
    """Return the row by which *handle* is called in the place of a function."""
    return Patch(owner, name, parameters, replaced(parameters, handle))


def _module_refresh(original: Callable[..., Any], state: Any) -> Any:
    run = runs.current()
    # At the end of a run the tree on disk is the new one: loading from it would mix the two.
    if run is None or not run.finishing:
        return original(state)
    return None


def _around_call_function(original: Callable[..., Any]) -> Callable[..., Any]:
    def call_function(salt_function: Any, *args: Any, **kwargs: Any) -> Any:
        run = runs.current()
        if run is None or run.memo is None:
            return original(salt_function, *args, **kwargs)
        # The memo is not for what the function calls in its turn.
        memo, run.memo = run.memo, None
        again, run.calls_again = run.calls_again, run.calls_again or memo.has_called
        try:
            return memo.call(original, (salt_function, *args), kwargs)
        finally:
            run.memo, run.calls_again = memo, again

    return call_function
