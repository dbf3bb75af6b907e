"""Print whether a minion with the configuration file of the first argument has the engine named."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def names(config: str) -> list[str]:
    """Return the engines that Salt finds in a configuration."""
    listed: Any = importlib.import_module("salt.config").minion_config(config).get("engines") or []
    entries = [listed] if isinstance(listed, dict) else listed
    return [name for each in entries for name in (each if isinstance(each, dict) else [each])]


if __name__ == "__main__":
    print("listed" if sys.argv[2] in names(sys.argv[1]) else "not listed")
