"""
The names of linked copies of code (:mod:`.linked_copy`), and where they are.

Copies have the names of their owners: updates, and generations of a minion.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

PREFIX = ".salt-safeupdate-"
_IN_PATH = rf"/{re.escape(PREFIX)}[^/-]+-(?=[^/])"


def of(roots: Iterable[str], identity: str) -> dict[str, str]:
    """
    Return the whole copies that are there, by root.

    Their names say whose they are: to find them takes no database, which may be what is broken.
    """
    paths = {root: path(root, identity) for root in roots}
    return {root: copy for root, copy in paths.items() if os.path.isdir(copy)}


def path(root: str, identity: str) -> str:
    directory, name = os.path.split(root.rstrip("/"))
    return os.path.join(directory, f"{PREFIX}{identity}-{name}")


def beside(root: str, owner: str) -> list[str]:
    """Return the whole copies of a root whose owners' names begin with *owner*. Raises OSError."""
    directory, name = os.path.split(root.rstrip("/"))
    copy = re.compile(rf"{re.escape(PREFIX + owner)}[^-]*-{re.escape(name)}")
    return [os.path.join(directory, each) for each in os.listdir(directory) if copy.fullmatch(each)]


def is_copy(name: str) -> bool:
    """Tell whether that is the name of a copy."""
    return name.startswith(PREFIX)


def original(path: str) -> str:
    """Return the path in the root that a copy was made of; a path in no copy as it is."""
    # Nearly every process asks this of paths in no copy.
    return re.sub(_IN_PATH, "/", path) if PREFIX in path else path
