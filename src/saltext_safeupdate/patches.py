"""
What takes the place of Salt's own functions: all of it, or nothing.

A table says which function of Salt is replaced, by what, and which of its parameters the
replacement relies on. The whole table is compared with the installed Salt before the first
function is replaced. A Salt that differs is left as it is.

What takes the place of a function passes on what it does not know, and an error of ours does not
fail the call: it is as with plain Salt then, and is logged (:func:`replaced`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .core.errors import SafeUpdateError

if TYPE_CHECKING:
    from .core.generations.replaced import Row

log = logging.getLogger(__name__)

Replace = Callable[[Callable[..., Any]], Callable[..., Any]]

# The code of a function that does not run when it is called: of a generator, a coroutine, or both.
_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# What went wrong in this process, and in those that it is a fork of: by the function of Salt.
_troubles: dict[str, str] = {}


class UnknownSaltError(SafeUpdateError):
    """This Salt lacks functions that the table replaces, or has others; nothing was replaced."""


class Patch(NamedTuple):
    """
    One function of Salt and what takes its place.

    *owner* is the class or module that has the function as its own attribute *name*.
    *parameters* are the names of its first parameters, in their order: those that the
    replacement relies on. Others that follow need defaults: the replacement passes them on, and
    where we call the function ourselves, they are left out. *replace* gets the plain function,
    without ``classmethod`` or ``staticmethod`` around it, and returns the one that takes its
    place. *may_wait* tells that it may also be a coroutine function.
    """

    owner: Any
    name: str
    parameters: tuple[str, ...]
    replace: Replace
    may_wait: bool = False

    @property
    def place(self) -> str:
        """The name of the function in messages."""
        module = getattr(self.owner, "__module__", "")
        return ".".join(filter(None, (module, self.owner.__name__, self.name)))

    @property
    def row(self) -> Row:
        """The same as plain data, to be compared with sources."""
        # For the engine only, which says it once.
        from .core.generations import replaced as noted

        of_module = isinstance(self.owner, types.ModuleType)
        module = self.owner.__name__ if of_module else self.owner.__module__
        owner = "" if of_module else self.owner.__name__
        return noted.Row(module, owner, self.name, self.parameters, self.may_wait)


class Later:
    """
    Builds what a table of patches calls when it is first asked for: a start does not wait for it.

    *make* returns it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._built: dict[str, Any] = {}

    def build(self) -> None:
        """Build it, for this process and its children."""
        self.parts()

    def parts(self) -> Any:
        """Return what *make* returned, the first time."""
        if not self._built:
            # Another thread may just do that.
            self._built.setdefault("", self._make())
        return self._built[""]

    def by(self, name: str) -> Callable[..., Any]:
        """Return the function of that name, which is looked up when it is called."""

        def late(*args: Any, **kwargs: Any) -> Any:
            return getattr(self.parts(), name)(*args, **kwargs)

        return late


def unchanged(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: for one that we only call, and could not do without."""
    return original


class Call:
    """
    Salt's function as its replacement calls it, and what came of that.

    It is called with the parameters that the table names, all by place. What the caller gave
    beyond them is passed on: *rest* by place, *more* by name.
    """

    __slots__ = ("done", "error", "function", "more", "rest", "value")

    def __init__(
        self,
        function: Callable[..., Any],
        rest: Sequence[Any] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.function, self.rest, self.more = function, rest, more or {}
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.error = None
        try:
            self.value = self.function(*args, *self.rest, **kwargs, **self.more)
        except BaseException as err:
            self.error = err
            raise
        self.done = True
        return self.value


def replaced(
    parameters: Sequence[str],
    handle: Callable[..., Any],
    refuses: tuple[type[Exception], ...] = (),
) -> Replace:
    """
    Have *handle* called in place of a function, with that function before its *parameters*.

    *refuses* are the errors by which *handle* keeps the function from being called on purpose.
    """

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        most, defaults = len(parameters), _defaults(original)
        place = _place(original)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            known = args[:most]
            if kwargs:
                known += _by_place(parameters[len(known) :], kwargs, defaults)
            return contained(place, handle, Call(original, args[most:], kwargs), known, refuses)

        return replacement

    return replace


def _by_place(
    missing: Sequence[str], kwargs: dict[str, Any], defaults: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Take out of *kwargs* what the replacement knows, up to the last of it that is there."""
    there = [number for number, name in enumerate(missing) if name in kwargs]
    names = missing[: there[-1] + 1] if there else ()
    if any(name not in kwargs and name not in defaults for name in names):
        # Salt's function says best what is wrong with that.
        return ()
    return tuple(kwargs.pop(name) if name in kwargs else defaults[name] for name in names)


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    inner = _told(function)
    if isinstance(inner, types.FunctionType) and _names_parameters(inner):
        last = inner.__defaults__ or ()
        names = inner.__code__.co_varnames[: inner.__code__.co_argcount]
        return {
            **dict(zip(names[len(names) - len(last) :], last, strict=True)),
            **(inner.__kwdefaults__ or {}),
        }
    listed = inspect.signature(inner).parameters.values() if inner else ()
    return {each.name: each.default for each in listed if each.default is not each.empty}


def contained(
    place: str,
    handle: Callable[..., Any],
    call: Call,
    known: Sequence[Any] = (),
    refuses: tuple[type[Exception], ...] = (),
    plainly: Callable[[], Any] | None = None,
) -> Any:
    """
    Return the result of *handle* for a call. After an error of ours, report it and call Salt's own.

    An exception of Salt's function reaches the caller. Its return counts, whatever happens
    afterwards; it is not called twice. *plainly* calls it, if not with the *known* arguments.
    """
    try:
        return handle(call, *known)
    except refuses:
        raise
    except Exception as err:
        if err is call.error:
            raise
        tell(place, err)
        if call.error is not None:
            raise call.error from None
        if call.done:
            return call.value
        return plainly() if plainly else call(*known)


def instead(original: Callable[..., Any], value: Any = None) -> None:
    """Note that the call is dealt with: Salt's function is not called, whatever happens now."""
    if isinstance(original, Call):
        original.value, original.done = value, True


def tell(place: str, err: Exception) -> None:
    """Log an error of this extension, once for each function of Salt, and remember it."""
    if place not in _troubles:
        _troubles[place] = f"{type(err).__name__}: {err}"
        log.error(
            "safeupdate: an error of this extension at %s; the call is made as with plain "
            "Salt. Please report it with the following traceback.",
            place,
            exc_info=err,
        )


def troubles() -> dict[str, str]:
    """Return what was told in this process and before its fork, by the function of Salt."""
    return dict(_troubles)


def differences(patches: Iterable[Patch]) -> list[str]:
    """Return what this Salt lacks, and what is not as the table says."""
    found = []
    for patch in patches:
        function = _plain(vars(patch.owner).get(patch.name))
        if not callable(function):
            found.append(f"{patch.place} is not there")
            continue
        told = _told(function)
        if told is not None and _fits(told, patch.parameters):
            continue
        if told is None:
            if not _takes_whatever_comes(function):
                found.append(f"{patch.place} does not tell what it takes")
            continue
        parameters = list(inspect.signature(told).parameters.values())
        names = [each.name for each in parameters]
        surplus = parameters[len(patch.parameters) :]
        if tuple(names[: len(patch.parameters)]) != patch.parameters or any(map(_needed, surplus)):
            found.append(f"{patch.place} takes ({', '.join(names)})")
        if kind := _kind(told, may_wait=patch.may_wait):
            found.append(f"{patch.place} is {kind}")
    return found


def _fits(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    """Tell at once that a function takes these, needs no other, and runs when it is called."""
    if not (isinstance(function, types.FunctionType) and _names_parameters(function)):
        return False
    code = function.__code__
    others = code.co_argcount - len(parameters)
    return (
        code.co_varnames[: len(parameters)] == parameters
        and 0 <= others <= len(function.__defaults__ or ())
        and len(function.__kwdefaults__ or ()) == code.co_kwonlyargcount
        and not code.co_flags & _RUNS_LATER
    )


def _needed(parameter: inspect.Parameter) -> bool:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variable


def _kind(function: Callable[..., Any], *, may_wait: bool) -> str:
    """Return what a function is that does not run when it is called; empty if it runs."""
    inner = inspect.unwrap(function)
    if inspect.iscoroutinefunction(inner) and not may_wait:
        return "a coroutine function"
    if inspect.isasyncgenfunction(inner):
        return "an asynchronous generator function"
    # Tornado's coroutines are wrapped ones, and run.
    return "a generator function" if inspect.isgeneratorfunction(function) else ""


def _told(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """
    Return the function that tells what *function* takes: itself, or the one that it calls.

    Decorators of Salt and of other extensions take whatever comes, and have the function that
    they call in their closure. None if nothing tells.
    """
    if _names_parameters(function):
        return function
    if not _takes_whatever_comes(function):
        return function if _signature(function) is not None else None
    called = [each for each in _closure(function) if isinstance(each, types.FunctionType)]
    return _told(called[0]) if len(called) == 1 else None


def _names_parameters(function: Callable[..., Any]) -> bool:
    """Tell whether it is a function without a decorator: nearly all are, and it is seen at once."""
    return (
        isinstance(function, types.FunctionType)
        and not vars(function)
        and function.__code__.co_argcount > 0
    )


def _takes_whatever_comes(function: Callable[..., Any]) -> bool:
    signature = _signature(function)
    kinds = [each.kind for each in signature.parameters.values()] if signature else []
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _closure(function: Callable[..., Any]) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        # A cell that is empty has nothing that could be called.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def _place(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None)
    return ".".join(filter(None, (module, getattr(function, "__qualname__", None))))


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
