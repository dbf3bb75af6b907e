"""
What takes the place of Salt's own functions: all of it, or nothing.

A table says which function of Salt is replaced, by what, and which of its parameters the
replacement relies on. The whole table is compared with the installed Salt before the first
function is replaced. A Salt that differs is left as it is.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .core.errors import SafeUpdateError


class UnknownSaltError(SafeUpdateError):
    """This Salt lacks functions that the table replaces, or has others; nothing was replaced."""


class Patch(NamedTuple):
    """
    One function of Salt and what takes its place.

    *owner* is the class or module that has the function as its own attribute *name*.
    *parameters* are the names of its first parameters, in their order: those that the
    replacement relies on. *replace* gets the plain function, without ``classmethod`` or
    ``staticmethod`` around it, and returns the one that takes its place. *exact* tells that this
    one takes no others.
    """

    owner: Any
    name: str
    parameters: tuple[str, ...]
    replace: Callable[[Callable[..., Any]], Callable[..., Any]]
    exact: bool = False

    @property
    def place(self) -> str:
        """What a message calls the function."""
        module = getattr(self.owner, "__module__", "")
        return ".".join(filter(None, (module, self.owner.__name__, self.name)))


def unchanged(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: for one that we only call, and could not do without."""
    return original


def differences(patches: Iterable[Patch]) -> list[str]:
    """Return what this Salt lacks, and what is not as the table says."""
    found = []
    for patch in patches:
        function = _plain(vars(patch.owner).get(patch.name))
        if not callable(function):
            found.append(f"{patch.place} is not there")
            continue
        names = _parameters(function)
        if names is None:
            found.append(f"{patch.place} does not tell what it takes")
        elif names and (
            names[: len(patch.parameters)] != patch.parameters
            or (patch.exact and len(names) > len(patch.parameters))
        ):
            found.append(f"{patch.place} takes ({', '.join(names)})")
    return found


def _parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """
    Return what the function takes; None if it does not tell, nothing if it takes whatever comes.

    Decorators of Salt and of other extensions take whatever comes, and have the function that
    they call in their closure.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = [parameter.kind for parameter in parameters]
    if kinds != [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return tuple(parameter.name for parameter in parameters)
    called = [each for each in _closure(function) if isinstance(each, types.FunctionType)]
    return _parameters(called[0]) if len(called) == 1 else ()


def _closure(function: Callable[..., Any]) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        # A cell that is empty has nothing that could be called.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def apply(patches: Sequence[Patch]) -> None:
    """Replace every function of the table. Raise UnknownSaltError, with none replaced."""
    different = differences(patches)
    if different:
        raise unknown(different)
    ready = []
    for patch in patches:
        original = vars(patch.owner)[patch.name]
        try:
            replacement: Any = patch.replace(_plain(original))
        except (AttributeError, TypeError) as err:
            raise unknown([f"{patch.place} cannot be replaced: {err}"]) from err
        if isinstance(original, classmethod | staticmethod):
            replacement = type(original)(replacement)
        ready.append((patch, replacement))
    for patch, replacement in ready:
        setattr(patch.owner, patch.name, replacement)


def unknown(different: Iterable[str]) -> UnknownSaltError:
    """Return the error that says what is different in this Salt."""
    return UnknownSaltError(
        f"This Salt is not known: {'; '.join(different)}. It was left as it is: jobs run, but "
        "state runs are not ordered and no job is held."
    )


def _plain(attribute: Any) -> Any:
    return attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
