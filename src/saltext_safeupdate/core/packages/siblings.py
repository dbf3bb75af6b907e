"""Packages that have to change together."""

from __future__ import annotations

from collections.abc import Iterable


def closure(pairs: Iterable[tuple[str, str]], start: Iterable[str]) -> set[str]:
    """Return *start* and all that is bound to it by the pairs, in either direction."""
    bound: dict[str, set[str]] = {}
    for one, other in pairs:
        bound.setdefault(one, set()).add(other)
        bound.setdefault(other, set()).add(one)
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(bound.get(name, ()))
    return found
