"""The list ``module_executors``, in which the order counts."""

from __future__ import annotations

from collections.abc import Sequence

OURS = "safeupdate"
DEFAULT = ("direct_call",)
# Executors that leave every job to the next one.
_PASSING = ("splay",)


def listed(option: object) -> list[str] | None:
    """Return what the option lists, as Salt reads it; None if it is no list of names."""
    if not option:
        return list(DEFAULT)
    names = [option] if isinstance(option, str) else option
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def before_ours(names: Sequence[str]) -> list[str]:
    """Return the executors before ours that run jobs themselves: ours never sees these jobs."""
    if OURS not in names:
        return []
    return [name for name in names[: names.index(OURS)] if name not in _PASSING]
