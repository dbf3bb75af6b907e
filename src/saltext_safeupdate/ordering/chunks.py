"""Low chunks and comments of Salt's state engine, taken apart and put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Conditions that Salt judges before it calls the state function: judged when the state is
# called, and not again for its part at the end.
_CONDITIONS = ("unless", "onlyif", "creates")
# What Salt judges after it: only the part at the end.
_CHECKS = ("check_cmd",)


def without_keys(low: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in low.items() if key not in keys}


def for_now(low: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chunk for the part of a deferred state that is done at once."""
    return without_keys(low, "parallel", *_CONDITIONS, *_CHECKS)


def for_the_end(low: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chunk for the part of a deferred state that is done at the end of the run."""
    return without_keys(low, "parallel", *_CONDITIONS)


def named_packages(low: Mapping[str, Any]) -> set[str]:
    """Return the packages that a ``pkg`` state names."""
    names: set[str] = set()
    for key in ("pkgs", "sources"):
        for entry in low.get(key) or ():
            names.update(map(str, entry) if isinstance(entry, dict) else [str(entry)])
    return names or set(str(low.get("name", "")).split(","))


def without_packages(low: dict[str, Any], names: frozenset[str]) -> dict[str, Any] | None:
    """Return the chunk without the packages *names*; None if it names no other package."""
    for key in ("pkgs", "sources"):
        entries = low.get(key)
        if not entries:
            continue
        others: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                rest = {name: value for name, value in entry.items() if str(name) not in names}
                others += [type(entry)(rest)] if rest else []
            elif str(entry) not in names:
                others.append(entry)
        return {**low, key: others} if others else None
    return None


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def join_comments(*comments: Any) -> str:
    return "\n".join(str(comment).rstrip() for comment in comments if comment)
