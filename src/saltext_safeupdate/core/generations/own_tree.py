"""
The copies of its code that a generation reads from its start on.

Packages change below it, and it goes on with one version. A copy has the generation in its name,
and is held by the processes of that generation: the last one that ends makes it a leftover, which
any minion of the host removes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..host import copy_names

if TYPE_CHECKING:
    from ..host.linked_copy import Bounds

# A tree of Salt has some 10,000 files, which takes a fraction of a second.
_FILES = 60_000
_SECONDS = 5.0
# The ID of an update is hexadecimal.
_MARK = "g"

# They stay open: the children of this process inherit them.
_held: list[int] = []


def make(roots: Iterable[str], process: str, bounds: Bounds | None = None) -> dict[str, str]:
    """
    Copy the roots for the generation with the main process *process*, which is this one.

    Return a mapping of root to copy. Raises OSError; then :func:`sweep` removes what was made.
    """
    from ..host import linked_copy

    if not process:
        raise OSError(errno.ESRCH, "there is no /proc")
    try:
        return linked_copy.make(
            roots,
            _owner(process),
            bounds=bounds or linked_copy.Bounds(_FILES, _SECONDS),
            lock=lambda copy: _held.append(linked_copy.hold(copy)),
        )
    except OSError:
        while _held:
            os.close(_held.pop())
        raise


def is_read() -> bool:
    """Tell whether this process, or the one that it is a fork of, has made copies."""
    return bool(_held)


def of(roots: Iterable[str], process: str) -> Mapping[str, str]:
    """Return the copies of the generation with that main process, by root."""
    return copy_names.of(roots, _owner(process))


def sweep(roots: Iterable[str]) -> None:
    """Remove the copies of generations of which no process is left. Raises OSError."""
    from ..host import linked_copy

    linked_copy.remove(list(linked_copy.leftovers(roots, _MARK)))


def _owner(process: str) -> str:
    """Return the name of a main process, without a hyphen, as that of no update."""
    boot, _, rest = process.partition(":")
    return f"{_MARK}{boot.partition('-')[0]}.{rest.replace(':', '.')}"
