"""Every function of Salt that is replaced to order state runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import salt.loader.lazy
import salt.state
import salt.utils.functools
from salt.exceptions import SaltException

from ..core.settings import Settings
from ..patches import Later as BuiltLater
from ..patches import Patch, replaced, tell, unchanged
from ..this_host import Host
from . import loaders, names
from .of_thread import local

if TYPE_CHECKING:
    from .built import Built


class Later(BuiltLater):
    """Builds what orders state runs: it is most of what this extension imports."""

    def __init__(self, host: Host, settings: Settings, no_time: float | None = None) -> None:
        super().__init__(partial(_built, host, settings, no_time))

    def build(self) -> None:
        super().build()
        self.parts().load()

    def handler(self, fun: str, *args: Any) -> Any:
        """Be in front of an execution function."""
        return self.parts().handlers[fun](fun, *args)

    def around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of ``State.call``; have Salt accept our keyword there."""
        known = getattr(salt.state, "STATE_INTERNAL_KEYWORDS", ())
        salt.state.STATE_INTERNAL_KEYWORDS = frozenset((*known, names.KEYWORD))
        calls: list[Callable[..., Any]] = []

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not calls:
                try:
                    calls.append(self.parts().around_call(original))
                except Exception as err:  # noqa: BLE001 (it is told)
                    tell("salt.state.State.call", err)
                    return original(*args, **kwargs)
            return calls[0](*args, **kwargs)

        return call


def _built(host: Host, settings: Settings, no_time: float | None) -> Built:
    from .built import Built

    return Built(host, settings) if no_time is None else Built(host, settings, no_time)


def patches(later: Later) -> list[Patch]:
    """Return the table that puts into Salt what orders state runs."""
    state = salt.state.State
    loader = salt.loader.lazy.LazyLoader
    handlers = dict.fromkeys(names.GUARDED, later.handler)
    return [
        Patch(state, "call", ("self", "low", "chunks", "running", "retries"), later.around_call),
        _by(state, "call_high", ("self", "high"), later.by("call_high")),
        _by(state, "call_chunks", ("self", "chunks"), later.by("call_chunks")),
        _by(state, "module_refresh", ("self",), _module_refresh),
        _by(
            state,
            "_call_parallel_target",
            ("cls", "instance", "init_kwargs", "name", "cdata", "low", "inject_globals"),
            later.by("call_target"),
        ),
        Patch(
            state,
            "format_slots",
            ("self", "cdata"),
            replaced(("self", "cdata"), partial(_format_slots, later), (SaltException,)),
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
            partial(_around_call_function, later),
        ),
        Patch(loader, "_load_module", ("self", "name"), loaders.around_load_module(handlers)),
        _by(loader, "_refresh_file_mapping", ("self",), loaders.list_once),
        Patch(salt.state, "_gen_tag", ("low",), unchanged),
    ]


def _by(owner: Any, name: str, parameters: tuple[str, ...], handle: Callable[..., Any]) -> Patch:
    """Return the row by which *handle* is called in place of a function."""
    return Patch(owner, name, parameters, replaced(parameters, handle))


def _module_refresh(original: Callable[..., Any], state: Any) -> Any:
    run = getattr(local, "run", None)
    # At the end of a run the tree on disk is the new one: loading from it would mix the two.
    if run is None or not run.finishing:
        return original(state)
    return None


def _format_slots(later: Later, original: Callable[..., Any], state: Any, cdata: Any) -> Any:
    """Be called right before a state function, behind the conditions of its state."""
    ret = original(state, cdata)
    run = getattr(local, "run", None)
    if run is not None and run.pending and cdata.get("full") in names.STATES:
        later.parts().call_state(state, cdata)
    return ret


def _around_call_function(later: Later, original: Callable[..., Any]) -> Callable[..., Any]:
    def call_function(salt_function: Any, *args: Any, **kwargs: Any) -> Any:
        run = getattr(local, "run", None)
        if run is None or run.memo is None:
            return original(salt_function, *args, **kwargs)
        name = getattr(salt_function, "name", "")
        if run.pending and name.startswith("pkg.") and name not in names.GUARDED:
            # It asks about packages; the others are guarded.
            later.parts().call_function(args, kwargs)
        # The memo is not for what the function calls in its turn.
        memo, run.memo = run.memo, None
        again, run.calls_again = run.calls_again, run.calls_again or memo.has_called
        try:
            return memo.call(original, (salt_function, *args), kwargs)
        finally:
            run.memo, run.calls_again = memo, again

    return call_function
