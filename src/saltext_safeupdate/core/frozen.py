"""
Values with named fields that cost a process of the minion little.

``dataclasses`` compiles some functions for each class. For the classes in every process of a
minion, that was a tenth of the memory that this extension adds, and of its start. So these classes
share one of each function, and are dataclasses in everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Do at run time what ``typing.dataclass_transform`` of Python 3.11 does: nothing."""
        return lambda decorator: decorator


T = TypeVar("T")


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
)
def frozen(cls: type[T]) -> type[T]:
    """Make a class what ``dataclass(frozen=True, kw_only=True)`` makes it."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    made.__init__ = _init
    made.__repr__ = _repr
    made.__eq__ = _eq
    made.__hash__ = _hash
    made.__setattr__ = made.__delattr__ = _refuse
    return cls


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def changeable(cls: type[T]) -> type[T]:
    """Make a class what ``dataclass(kw_only=True, eq=False, repr=False)`` makes it."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    made.__init__ = _init
    return cls


def _init(self: Any, **given: Any) -> None:
    cls, values = type(self), self.__dict__
    for name, field in cls.__dataclass_fields__.items():
        if name in given:
            values[name] = given.pop(name)
        elif field.default is not dataclasses.MISSING:
            values[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[name] = field.default_factory()
        else:
            raise TypeError(f"{cls.__name__} needs {name!r}")
    if given:
        raise TypeError(f"{cls.__name__} has no {', '.join(map(repr, given))}")
    check = getattr(self, "__post_init__", None)
    if check is not None:
        check()


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={given!r}" for name, given in self.__dict__.items())
    return f"{type(self).__qualname__}({shown})"


def _compared(self: Any) -> tuple[Any, ...]:
    fields = type(self).__dataclass_fields__.items()
    return tuple(self.__dict__[name] for name, field in fields if field.compare)


def _eq(self: Any, other: object) -> Any:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")
