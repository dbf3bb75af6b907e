"""Which executors this minion has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import salt.loader


def missing_executors(opts: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return those that Salt's loader cannot load: no job runs with one of them."""
    loaded = salt.loader.executors(opts)
    return [name for name in names if f"{name}.execute" not in loaded]
