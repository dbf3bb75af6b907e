"""
The copies of its code that a generation reads from its start on.

Packages change below it, and it goes on with one version. A copy is held by the processes of the
generations that read it. The one of the code as it is on disk now is for the next generation too,
which need not make it again; any other one that nobody holds is a leftover, which any minion of
the host removes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..host import copy_names, processes

if TYPE_CHECKING:
    from ..host.linked_copy import Bounds

# A tree of Salt has some 10,000 files, which takes a fraction of a second.
_FILES = 60_000
_SECONDS = 5.0
# The ID of an update is hexadecimal.
_MARK = "g"
_DIGITS = 16
# Seconds after a change in which another one may have the same time (the kernel counts them in
# some milliseconds).
_FRESH = 2.0

# They stay open: the children of this process inherit them.
_held: list[int] = []


def make(
    roots: Iterable[str],
    process: str,
    bounds: Bounds | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[str, str]:
    """
    Copy the roots for the generation with the main process *process*, which is this one.

    Return a mapping of root to copy. *clock* returns epoch seconds. Raises OSError; then
    :func:`sweep` removes what was made.
    """
    from ..host import linked_copy

    if not process:
        raise OSError(errno.ESRCH, "there is no /proc")
    bounds = bounds or linked_copy.Bounds(_FILES, _SECONDS)
    try:
        return {root: _take(root, process, bounds, clock) for root in roots}
    except OSError:
        while _held:
            os.close(_held.pop())
        raise


def _take(root: str, process: str, bounds: Bounds, clock: Callable[[], float]) -> str:
    """Return a copy of the root that is held: the one that there is, or a new one."""
    from ..host import linked_copy

    state = _state(root, clock())
    shared = copy_names.path(root, state) if state else ""
    if state and _hold(shared):
        return shared
    own = linked_copy.make(
        [root],
        _owner(process),
        bounds=bounds,
        lock=lambda copy: _held.append(linked_copy.hold(copy)),
    )[root]
    # What has changed while it was copied is in no copy for others.
    if not state or _state(root, clock()) != state:
        return own
    try:
        os.rename(own, shared)
    except OSError:
        # Another minion was faster. A sweep removes ours.
        return shared if _hold(shared) else own
    return shared


def _hold(copy: str) -> bool:
    from ..host import linked_copy

    try:
        _held.append(linked_copy.hold(copy))
    except FileNotFoundError:
        return False
    return True


def _state(root: str, now: float) -> str:
    """
    Return what the directories of a root say of its files, as an owner of copies.

    Whoever adds, removes or replaces a file changes the ``ctime`` of its directory, which nobody
    can set (inode(7)). Byte code tells nothing of the sources. Empty: one has changed a moment ago,
    or there are too many.
    """
    digest, newest, files = hashlib.sha256(), 0.0, 0
    waiting = [root]
    while waiting:
        path = waiting.pop()
        seen = os.stat(path)
        newest = max(newest, seen.st_ctime)
        said = f"{os.path.relpath(path, root)}\0{seen.st_dev}.{seen.st_ino}.{seen.st_ctime_ns}\0"
        digest.update(os.fsencode(said))
        with os.scandir(path) as found:
            entries = list(found)
        files += len(entries)
        if files > _FILES:
            return ""
        waiting += sorted(
            entry.path
            for entry in entries
            if entry.name != "__pycache__"
            and not copy_names.is_copy(entry.name)
            and entry.is_dir(follow_symlinks=False)
        )
    return f"{_MARK}{digest.hexdigest()[:_DIGITS]}" if newest < now - _FRESH else ""


def is_read() -> bool:
    """Tell whether this process, or the one that it is a fork of, has made copies."""
    return bool(_held)


def of(roots: Iterable[str], process: str) -> Mapping[str, str]:
    """Return the copies that the generation with that main process holds, by root."""
    if not processes.alive(process):
        return {}
    try:
        paths = list(processes.opened(processes.pid(process)))
    except OSError:
        # It has ended, or is another user's: then it is not known to have any.
        return {}
    copies = [path for path in paths if copy_names.is_copy(os.path.basename(path))]
    found = {copy_names.original(path): path for path in copies}
    return {root: found[root] for root in roots if root in found}


def sweep(
    roots: Iterable[str], *, everything: bool = False, clock: Callable[[], float] = time.time
) -> None:
    """
    Remove the copies that no process holds, but for those of the code as it is now.

    With *everything* these, too. Raises OSError.
    """
    from ..host import linked_copy

    roots = list(roots)

    def kept(copy: str) -> bool:
        # There is seldom one, so that the roots are seldom looked through.
        root = copy_names.original(copy)
        is_ours = root in roots and not everything
        return is_ours and copy == copy_names.path(root, _state(root, clock()))

    linked_copy.remove_leftovers(roots, _MARK, kept)


def _owner(process: str) -> str:
    """Return the name of a main process, without a hyphen, as that of no update."""
    boot, _, rest = process.partition(":")
    return f"{_MARK}{boot.partition('-')[0]}.{rest.replace(':', '.')}"
