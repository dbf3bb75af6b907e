"""Exit with 0 if Salt's loader finds the package that the argument names, and it can be loaded."""

from __future__ import annotations

import importlib.metadata
import sys

if __name__ == "__main__":
    points = importlib.metadata.entry_points(group="salt.loader")
    sys.exit(not any(point.name == sys.argv[1] and point.load() for point in points))
