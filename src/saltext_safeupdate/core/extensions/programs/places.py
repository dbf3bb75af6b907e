"""
Print where this interpreter finds distributions, and their names, as JSON.

It does not look into them: the restart of the minion waits for this program.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig


def names() -> list[str]:
    """Return the names of the distributions that have metadata."""
    return [
        name.rpartition(".")[0].partition("-")[0]
        for place in filter(os.path.isdir, sys.path)
        for name in os.listdir(place)
        if name.endswith((".dist-info", ".egg-info"))
        and any(os.path.isfile(os.path.join(place, name, n)) for n in ("METADATA", "PKG-INFO"))
    ]


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "python": list(sys.version_info[:2]),
                "paths": sys.path,
                "purelib": sysconfig.get_paths()["purelib"],
                "names": names(),
            }
        )
    )
