"""Packages that have to change together."""

from __future__ import annotations

from collections.abc import Iterable


def closure(pairs: Iterable[tuple[str, str]], start: Iterable[str]) -> set[str]:
    """Return *start* and everything that the pairs connect with it, in either direction."""
    linked: dict[str, set[str]] = {}
    for one, other in pairs:
        linked.setdefault(one, set()).add(other)
        linked.setdefault(other, set()).add(one)
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(linked.get(name, ()))
    return found
