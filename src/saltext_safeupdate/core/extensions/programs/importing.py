"""Import the modules that the arguments name; print a line for each: good, or bad and why."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 (also one that calls sys.exit)
            print(f"bad {name} {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        else:
            print(f"good {name}", flush=True)
