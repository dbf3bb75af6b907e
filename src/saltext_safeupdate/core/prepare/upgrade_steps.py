"""Which upgrade steps lie between two versions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from . import versions

# A version and, if there is one, a name. What editors and package managers leave is none.
_NAME = re.compile(r"(\d+(?:\.\d+)*)(?:-[\w-]+)?")


def due(directory: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names of the steps between two sets of packages, in their order."""
    before, after = of_salt(old, new)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match and os.access(os.path.join(directory, name), os.X_OK):
            version = _sorted_by(match[1])
            if _sorted_by(before) < version <= _sorted_by(after):
                found.append((version, name))
    return [name for _, name in sorted(found)]


def of_salt(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    """Return the versions of Salt before and after; empty if no own package is named so."""
    known = [name for name in sorted(new) if name in old and not name.startswith("saltext")]
    names = [name for name in known if "salt" in name]
    return (old[names[0]], new[names[0]]) if names else ("", "")


def _sorted_by(version: str) -> list[tuple[bool, int, str]]:
    """Leave the epoch out: the name of a step has none."""
    return versions.key(version)[1]
