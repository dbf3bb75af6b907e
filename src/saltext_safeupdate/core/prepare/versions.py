"""Which of two versions of a package is the older one."""

from __future__ import annotations

import re

_PARTS = re.compile(r"\d+|[^\d.:~+-]+")

Key = tuple[int, list[tuple[bool, int, str]]]


def key(version: str) -> Key:
    """Return something that sorts versions of one package: the epoch, then numbers by value."""
    epoch, _, rest = version.rpartition(":")
    parts = [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in _PARTS.findall(rest)
    ]
    return (int(epoch) if epoch.isdecimal() else 0, parts)
