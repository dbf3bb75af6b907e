"""Print whether a minion with the configuration file of the first argument has the engine named."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def names(config: str) -> list[str]:
    """Return the modules of the engines that Salt starts with a configuration."""
    return modules(
        importlib.import_module("salt.config").minion_config(config).get("engines") or []
    )


def modules(listed: Any) -> list[str]:
    """Return the modules of the engines of an option ``engines``: a list, or a mapping."""
    entries = listed.items() if isinstance(listed, dict) else [_first(each) for each in listed]
    return [
        str(options.get("engine_module", name) if isinstance(options, dict) else name)
        for name, options in entries
    ]


def _first(entry: Any) -> tuple[Any, Any]:
    """Return what Salt takes of an entry of a list: its first name, with the options."""
    return next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else (entry, None)


if __name__ == "__main__":
    print("listed" if sys.argv[2] in names(sys.argv[1]) else "not listed")
