"""
Values of a type, from the JSON in the database.

A type is ``str``, ``int``, ``float``, ``bool``, ``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]``,
``dict[str, X]``, or a dataclass or NamedTuple of these; ``Any`` is whatever JSON has. A value of
another type is an error. Keys that a dataclass does not have are left out, because a newer version
may have written them.
"""

from __future__ import annotations

import functools
import math
import types
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Fact(Generic[T]):
    """The *name* of a single value in the database, and the type that it has to be of."""

    __slots__ = ("kind", "name")

    def __init__(self, name: str, kind: Any) -> None:
        self.name, self.kind = name, kind

    def read(self, value: Any) -> T:
        """Return the value that was JSON. Raise TypeError if it is not of the type."""
        return cast("T", read(self.kind, value))


def read(kind: Any, value: Any) -> Any:
    """Return *value*, which was JSON, as one of the type *kind*. Raise TypeError if it is not."""
    if kind is Any:
        return value
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (kind,) = (each for each in given if each is not type(None))
        return None if value is None else read(kind, value)
    if origin is tuple:
        return _tuple(given, value)
    if origin is dict:
        return {_of(str, key): read(given[1], item) for key, item in _of(dict, value).items()}
    return _of_class(kind, value)


def _of_class(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        return _dataclass(cast("type", kind), value)
    if hasattr(kind, "_fields"):
        return kind(*_tuple(tuple(_hints(kind)[name] for name in kind._fields), value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is not bool and isinstance(value, bool):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value!r} is no number")
    return _of(kind, value)


def _of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    rows = _of(list, value)
    if kinds[1:] == (...,):
        kinds = kinds[:1] * len(rows)
    if len(kinds) != len(rows):
        raise TypeError(f"{value!r} has not {len(kinds)} values")
    return tuple(read(kind, each) for kind, each in zip(kinds, rows, strict=True))


def _dataclass(kind: type, value: Any) -> Any:
    return split(kind, value)[0]


def split(kind: type, value: Any) -> tuple[Any, dict[str, Any]]:
    """
    Return *value*, which was JSON, as the dataclass *kind*, and what it has besides.

    Raise TypeError if it is not.
    """
    left, hints = dict(_of(dict, value)), _hints(kind)
    names = [each.name for each in fields(kind) if each.name in left]
    return kind(**{name: read(hints[name], left.pop(name)) for name in names}), left


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def plain(value: Any) -> Any:
    """Return the value of such a type as what JSON knows."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value
