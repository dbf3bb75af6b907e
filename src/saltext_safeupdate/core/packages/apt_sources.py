"""The sources of apt, as far as their files say whether signatures are checked."""

from __future__ import annotations

import glob
import os
import re

_TRUSTED = re.compile(
    r"^\s*deb\s[^#\n]*\[[^\]\n]*\btrusted\s*=\s*yes\b|^Trusted:\s*yes\b", re.M | re.I
)


def trusting(single: str, directory: str) -> str | None:
    """
    Return a file with a repository that is trusted without a signature, or None.

    *single* is ``sources.list``, *directory* is ``sources.list.d``.
    """
    found = [single] if os.path.exists(single) else []
    for suffix in ("list", "sources"):
        found += sorted(glob.glob(f"{glob.escape(directory)}/*.{suffix}"))
    for path in found:
        with open(path, encoding="utf-8", errors="replace") as file:
            if _TRUSTED.search(file.read()):
                return path
    return None
