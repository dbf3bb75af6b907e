"""Put handlers in front of execution functions, in every loader that loads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import salt.loader
import salt.loader.lazy
from salt.exceptions import SaltException

from ..core.errors import SafeUpdateError
from ..patches import Call, contained, instead, replaced

# Called with the function's name, the function, and its arguments.
Handler = Callable[[str, Callable[..., Any], Any, dict[str, Any]], Any]

# How a handler keeps a function from being called on purpose.
_REFUSES = (SaltException, SafeUpdateError)
_MARK = "__safeupdate_guarded__"

_handlers: dict[str, Handler] = {}
_of_states: dict[str, Handler] = {}


def returners(opts: Mapping[str, Any], functions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Salt's returners. *functions* are its execution functions."""
    found: Mapping[str, Any] = salt.loader.returners(opts, functions)
    return found


def around_load_module(
    handlers: Mapping[str, Handler], of_states: Mapping[str, Handler] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Return what puts *handlers* in front of the functions that a loader has just loaded.

    *of_states* are the loaders of state functions.
    """

    def replace(load_module: Callable[..., Any]) -> Callable[..., Any]:
        _handlers.clear()
        _handlers.update(handlers)
        _of_states.clear()
        _of_states.update(of_states or {})

        return replaced(("self", "name"), _loaded)(load_module)

    return replace


def list_once(refresh: Callable[..., Any], loader: Any) -> Any:
    """
    Have a loader that is being made list its directories once.

    Salt lists them twice then, one right after the other. A job makes a dozen loaders, and the
    second listing takes longer than all that we do for a job.
    """
    known = vars(loader)
    if known.get("initial_load") and "file_mapping" in known:
        instead(refresh)
        return None
    return refresh(loader)


def _loaded(load_module: Callable[..., Any], loader: Any, name: str) -> Any:
    loaded = load_module(loader, name)
    if loader.tag in ("module", "rawmodule", "states"):
        _wrap(loader)
    elif loader.tag == "executor":
        _let_answer(loader, name)
    return loaded


def _let_answer(loader: Any, name: str) -> None:
    """
    Have an executor that has just been loaded answer whether a function may be missing.

    Salt asks each executor of a job. For one that has no answer it loads all others, and lists
    their directories again, to find none: that takes longer than all that we do for a job.
    """
    if f"{name}.execute" in loader._dict:
        loader._dict.setdefault(f"{name}.allow_missing_func", _is_no_function)


def _is_no_function(function: str) -> bool:
    """Tell that an executor does not run what is no function: what Salt takes for no answer."""
    return False


def adopt(function: Any) -> None:
    """Put the handlers in front of what the loader of *function* had loaded before."""
    loader = getattr(function, "loader", None)
    if isinstance(loader, salt.loader.lazy.LazyLoader):
        _wrap(loader)


def _wrap(loader: Any) -> None:
    functions = loader._dict
    if loader.tag in ("module", "states"):
        handlers = _of_states if loader.tag == "states" else _handlers
        for name, handler in handlers.items():
            if name in functions:
                functions[name] = _wrapped(name, functions[name], handler)
        return
    # A provider that the configuration or a state names: its functions carry the file's name.
    for key, function in list(functions.items()):
        virtual = _globals(function).get("__virtualname__")
        name = f"{virtual}.{key.rpartition('.')[2]}"
        if name in _handlers:
            functions[key] = _wrapped(name, function, _handlers[name])


def _wrapped(fun: str, original: Any, handler: Handler) -> Any:
    if hasattr(original, _MARK):
        return original

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = Call(original)

        @functools.wraps(original)
        def followed(*given: Any, **named: Any) -> Any:
            return call(*given, **named)

        return contained(
            fun,
            lambda _: handler(fun, followed, args, kwargs),
            call,
            refuses=_REFUSES,
            plainly=lambda: original(*args, **kwargs),
        )

    setattr(wrapper, _MARK, True)
    # Functions of the same module call it without the loader, as pkg.group_install does.
    module = _globals(original)
    name = wrapper.__name__
    if module.get(name) is original:
        module[name] = wrapper
    return wrapper


def _globals(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found
