"""Print the distributions that this interpreter finds, with their files, as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    for place in filter(os.path.isdir, sys.path):
        for name, (each, info) in in_place(place).items():
            # The first one on the path is imported.
            if name not in found:
                found[name] = described(each, place, info)
    print(
        json.dumps(
            {
                "python": list(sys.version_info[:2]),
                "paths": sys.path,
                "purelib": sysconfig.get_paths()["purelib"],
                "distributions": list(found.values()),
            }
        )
    )


def in_place(place: str) -> dict[str, tuple[importlib.metadata.Distribution, str]]:
    """Return the distributions in a directory of the path, with the names of their metadata."""
    infos = [
        info for info in sorted(os.listdir(place)) if info.endswith((".dist-info", ".egg-info"))
    ]
    # If pip installs into a target, as in the bundle, it leaves the metadata of an earlier version:
    # the newest metadata is right.
    infos.sort(key=lambda info: written(os.path.join(place, info)))
    found: dict[str, tuple[importlib.metadata.Distribution, str]] = {}
    for info in infos:
        each = importlib.metadata.Distribution.at(os.path.join(place, info))
        if name := each.metadata["Name"]:
            found[name.lower().replace("_", "-")] = (each, info)
    return found


def written(info: str) -> int:
    """Return when metadata were written, in nanoseconds; 0 for a link to nowhere."""
    for path in (os.path.join(info, "METADATA"), os.path.join(info, "PKG-INFO"), info):
        if os.path.exists(path):
            return os.stat(path).st_mtime_ns
    return 0


def described(each: importlib.metadata.Distribution, place: str, info: str) -> dict[str, Any]:
    """Return the data of a distribution; *info* is the name of its metadata in *place*."""
    return {
        "name": each.metadata["Name"],
        "version": each.version,
        "place": place,
        "info": info,
        "files": [str(file) for file in each.files or ()] or unlisted(each, place, info),
        "points": [
            point.value.partition(":")[0]
            for point in each.entry_points
            if point.group == "salt.loader"
        ],
        "requires": each.metadata["Requires-Python"] or "",
        "needs": needs(each.requires or ()),
    }


def needs(requirements: Iterable[str]) -> list[str]:
    """Return the names of the requirements without extras, on any system."""
    found = [re.match(r"[\w.-]+", each) for each in requirements if "extra ==" not in each]
    return [match[0] for match in found if match]


def unlisted(each: importlib.metadata.Distribution, place: str, info: str) -> list[str]:
    """Return the files of a distribution that has no list of them."""
    tops = (each.read_text("top_level.txt") or "").split()
    files = [path for top in tops for path in below(place, top)]
    files += [n for n in [*(f"{t}.py" for t in tops), info] if os.path.isfile(f"{place}/{n}")]
    return [*files, *below(place, info)]


def below(place: str, top: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(directory, name), place)
        for directory, _, names in os.walk(os.path.join(place, top))
        for name in names
    ]


if __name__ == "__main__":
    main()
