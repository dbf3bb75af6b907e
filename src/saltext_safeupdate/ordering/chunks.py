"""Low chunks and results of Salt's state engine, taken apart and put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def but(low: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in low.items() if key not in keys}


def named(low: Mapping[str, Any]) -> set[str]:
    """Return the packages that a ``pkg`` state names."""
    names: set[str] = set()
    for key in ("pkgs", "sources"):
        for entry in low.get(key) or ():
            names.update(map(str, entry) if isinstance(entry, dict) else [str(entry)])
    return names or set(str(low.get("name", "")).split(","))


def without(low: dict[str, Any], names: frozenset[str]) -> dict[str, Any] | None:
    """Return the chunk without *names*; None where nothing else is left of it."""
    for key in ("pkgs", "sources"):
        entries = low.get(key)
        if not entries:
            continue
        kept: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                others = {name: value for name, value in entry.items() if str(name) not in names}
                kept += [type(entry)(others)] if others else []
            elif str(entry) not in names:
                kept.append(entry)
        return {**low, key: kept} if kept else None
    return None


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def joined(*comments: Any) -> str:
    return "\n".join(str(comment).rstrip() for comment in comments if comment)
