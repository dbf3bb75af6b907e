"""Which publications may go out again: what a job, its function and the administrator say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..core.errors import InputError
from ..core.jobs import functions

# The key in the metadata of a job by which it says no, with all but True.
METADATA = "redeliver"
_KINDS = ("functions", "users", "minions")


class Choice(NamedTuple):
    """
    The choice of an administrator, as patterns of names (:mod:`fnmatch`).

    *include* are functions that are published again although they are about a moment. The rest is
    never published again: *functions*, what these *users* publish, and to these *minions*.
    """

    include: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    minions: tuple[str, ...] = ()

    def is_wanted(self, load: Mapping[str, Any]) -> bool:
        """Tell whether a publication may go out again."""
        metadata = load.get("metadata")
        if isinstance(metadata, Mapping) and metadata.get(METADATA, True) is not True:
            return False
        fun = load.get("fun")
        names = list(map(str, fun)) if isinstance(fun, list | tuple) else [str(fun)]
        if any(_is_in(name, self.functions) for name in names):
            return False
        if _is_in(str(load.get("user")), self.users):
            return False
        return all(functions.is_redelivered(n) or _is_in(n, self.include) for n in names)

    def may_get(self, minions: Iterable[str]) -> list[str]:
        """Return the minions in *minions* to which something may be published again."""
        if not self.minions:
            return list(minions)
        return [minion for minion in minions if not _is_in(minion, self.minions)]


def of(options: Mapping[str, Any]) -> Choice:
    """Return the choice in the options of the engine. Raises InputError if it is not valid."""
    left_out = options.get("leave_out") or {}
    if not isinstance(left_out, Mapping) or not set(left_out) <= set(_KINDS):
        raise InputError(f"'leave_out' must be a mapping with lists for {', '.join(_KINDS)}.")
    given = {"include": options.get("include"), **left_out}
    for name, patterns in given.items():
        fits = patterns is None or isinstance(patterns, list)
        if not fits or not all(isinstance(each, str) for each in patterns or ()):
            raise InputError(f"'{name}' must be a list of names or patterns.")
    return Choice(**{name: tuple(patterns or ()) for name, patterns in given.items()})


def _is_in(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
