"""
Our errors as Salt's, which Salt shows to whoever called.

``salt-run`` shows most errors of a runner function as a traceback, answers bad input with the
usage, and ends with success after that. There is one error that it shows as it is, and ends with
1: what a runner function refuses is that one, on each series.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import salt.utils.args
from salt.exceptions import CommandExecutionError, SaltException
from salt.exceptions import NotImplemented as NotImplementedHere
from salt.utils.context import func_globals_inject

from ..core.errors import SafeUpdateError, one_line, version_text, visible

__all__ = [
    "OF_HOST",
    "RefusedError",
    "as_salts",
    "for_runner",
    "for_state",
    "of_host",
    "version_text",
]

log = logging.getLogger(__name__)

# How a runner function is shown to Salt: with this it leaves names that it does not know to us.
_MORE = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)


class RefusedError(CommandExecutionError, NotImplementedHere):  # type: ignore[misc]
    """What a runner function does not do, and why: one line, and the exit status 1."""


# Names that Salt puts into the globals of a state function for one call.
_TOLD = ("__low__", "__lowstate__")
# Errors that a host causes: SQLite raises its own if the database has not been read before.
OF_HOST = (SafeUpdateError, OSError, sqlite3.Error)
# Errors that a damaged file of a master causes in a runner function.
_OF_FILES = (sqlite3.Error, ValueError, zlib.error)


def of_host(err: Exception) -> str:
    """Return what an error of OF_HOST says; for one of the system, with its path and a fix."""
    if not isinstance(err, OSError):
        return str(err)
    where = f"{err.filename}: " if err.filename else ""
    return (
        f"{where}{err.strerror or err}. This host does not let safeupdate work; see "
        "'safeupdate.check', and the settings 'safeupdate:state_dir' and 'safeupdate:run_dir'."
    )


@contextmanager
def as_salts() -> Iterator[None]:
    """Raise CommandExecutionError for an error of ours, or of the host."""
    try:
        yield
    except OF_HOST as err:
        raise CommandExecutionError(of_host(err)) from err


def for_state(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Have a state fail with such an error as its comment, instead of a traceback."""

    @functools.wraps(function)
    def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        # Salt tells a function of its run by the globals of what it calls, which are ours here.
        told_of = {name: globals()[name] for name in _TOLD if name in globals()}
        try:
            with func_globals_inject(function, **told_of):
                return function(name, *args, **kwargs)
        except CommandExecutionError as err:
            told = str(err)
        except OF_HOST as err:
            told = of_host(err)
        return {"name": name, "result": False, "changes": {}, "comment": told}

    return call


def for_runner(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Have a runner function answer people in plain lines.

    Every refusal, and every unknown or surplus argument, is a RefusedError. What it returns has
    only characters that a terminal shows: names and reasons come from minions.
    """
    signature = inspect.signature(function)
    takes_more = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    def call(*args: Any, **kwargs: Any) -> Any:
        name = f"safeupdate.{function.__name__}"
        try:
            given = signature.bind(*args, **salt.utils.args.clean_kwargs(**kwargs))
        except TypeError as err:
            raise RefusedError(
                f"{name}: {one_line(err)}. Nothing was done; it takes {_names(signature)}."
            ) from err
        try:
            return _shown(function(*given.args, **given.kwargs))
        except RefusedError:
            raise
        except (SafeUpdateError, SaltException, OSError) as err:
            raise RefusedError(one_line(err) or type(err).__name__) from err
        except _OF_FILES as err:
            # The line says what it can; this has where it comes from.
            log.debug("%s has failed", name, exc_info=True)
            raise RefusedError(
                f"{name} cannot read what this master has stored, or cannot store anything: "
                f"{one_line(err) or type(err).__name__}. Look at the space, and at the files in "
                "'safeupdate' below its 'cachedir'."
            ) from err

    # Without '__wrapped__', which Salt would look at instead.
    functools.update_wrapper(call, function)
    del call.__wrapped__  # type: ignore[attr-defined]
    if not takes_more:
        signature_shown = signature.replace(parameters=[*signature.parameters.values(), _MORE])
        call.__signature__ = signature_shown  # type: ignore[attr-defined]
    else:
        call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def caller() -> str:
    """
    Return whom Salt has authenticated as the caller of a runner function; empty if it says nobody.

    Salt puts that into the module in which the function is, which is this one: see
    :func:`for_runner`.
    """
    return str(globals().get("__user__") or "")


def _names(signature: inspect.Signature) -> str:
    names = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    return ", ".join(f"'{name}'" for name in names) or "no arguments"


def _shown(told: object, whole: bool = True) -> Any:
    """Return plain data, and a *whole* text of lines, in visible characters."""
    if isinstance(told, str):
        return "\n".join(map(visible, told.split("\n"))) if whole else visible(told)
    if isinstance(told, Mapping):
        return {_shown(key, False): _shown(value, False) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_shown(each, False) for each in told]
    return told
