"""
The copies of its code that a generation reads from its start on, or the slot that it is in.

Packages change below it, and it goes on with one version. A copy is held by the processes of the
generations that read it. The one of the code as it is on disk now is for the next generation too,
which need not make it again; any other one that nobody holds is a leftover, which any minion of
the host removes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..host import copy_names, processes

if TYPE_CHECKING:
    from ..host.linked_copy import Bounds

# A tree of Salt has some 10,000 files, which takes a fraction of a second.
_FILES = 60_000
_SECONDS = 5.0
# In a copy for others: the directories of its root, so that none of them is listed again.
_LIST = f"{copy_names.PREFIX}directories"
# The ID of an update is hexadecimal.
_MARK = "g"
# Where slots are, below their directory.
_SLOTS = "slots"
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
        copies = {root: _take(root, process, bounds, clock) for root in roots}
        for root, copy in copies.items():
            _try_to_read(root, copy)
    except OSError:
        while _held:
            os.close(_held.pop())
        raise
    return copies


def _try_to_read(root: str, copy: str) -> None:
    """
    Read in a copy what this process has already read in the root. Raises OSError.

    Where programs may read only what the host knows by its path (fapolicyd, AppArmor), a copy is
    denied to them, although they have made it.
    """
    top = os.path.join(root, "")
    for module in list(sys.modules.values()):
        # Some modules import others if they are asked for more.
        path = getattr(module, "__dict__", {}).get("__file__")
        path = os.path.realpath(path) if isinstance(path, str) else ""
        if not path.startswith(top) or not path.endswith(".py"):
            continue
        # It may be gone since it was imported.
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(copy, path.removeprefix(top)), "rb") as file:
                file.read(1)
            return


def _take(root: str, process: str, bounds: Bounds, clock: Callable[[], float]) -> str:
    """Return a copy of the root that is held: the one that there is, or a new one."""
    from ..host import linked_copy

    for copy in copy_names.beside(root, _MARK):
        if _is_of_now(copy, root, clock()) and _hold(copy):
            return copy
    below = list(_directories(root))
    state = _state(root, below, clock())
    own = linked_copy.make(
        [root],
        _owner(process),
        bounds=bounds,
        lock=lambda copy: _held.append(linked_copy.hold(copy)),
    )[root]
    # What has changed while it was copied is in no copy for others.
    if not state or _state(root, below, clock()) != state:
        return own
    shared = copy_names.path(root, state)
    try:
        os.rename(own, shared)
    except OSError:
        # Another minion was faster, or the list is damaged. A sweep removes ours.
        if not _hold(shared):
            return own
    with open(os.path.join(shared, _LIST), "wb") as file:
        file.write(b"\0".join(below))
    return shared


def _hold(copy: str) -> bool:
    from ..host import linked_copy

    try:
        _held.append(linked_copy.hold(copy))
    except FileNotFoundError:
        return False
    return True


def _is_of_now(copy: str, root: str, now: float) -> bool:
    """Tell whether a copy is for others, and of the code as it is on disk."""
    try:
        with open(os.path.join(copy, _LIST), "rb") as file:
            below = file.read().split(b"\0")
        return copy == copy_names.path(root, _state(root, below, now))
    except (OSError, ValueError):
        # There is no such list, or no such directory any more.
        return False


def _directories(root: str) -> Iterator[bytes]:
    """Give the path of each directory of a root, in it. Raises OSError, also for too many files."""
    files, waiting = 0, [b""]
    while waiting:
        path = waiting.pop()
        yield path
        with os.scandir(os.path.join(os.fsencode(root), path)) as found:
            entries = list(found)
        files += len(entries)
        if files > _FILES:
            raise OSError(errno.EFBIG, "it has too many files")
        waiting += sorted(
            os.path.join(path, entry.name)
            for entry in entries
            if entry.name != b"__pycache__"
            and not copy_names.is_copy(os.fsdecode(entry.name))
            and entry.is_dir(follow_symlinks=False)
        )


def _state(root: str, below: Iterable[bytes], now: float) -> str:
    """
    Return what the directories of a root say of its files, as an owner of copies.

    Whoever adds, removes or replaces a file or a directory changes the ``ctime`` of the directory
    that it is in, which nobody can set (inode(7)). Byte code tells nothing of the sources. Empty:
    one has changed a moment ago. Raises OSError if one is not there.
    """
    digest, newest, top = hashlib.sha256(), 0.0, os.path.join(os.fsencode(root), b"")
    for path in below:
        seen = os.stat(top + path)
        newest = max(newest, seen.st_ctime)
        digest.update(b"%s\0%d.%d.%d\0" % (path, seen.st_dev, seen.st_ino, seen.st_ctime_ns))
    return f"{_MARK}{digest.hexdigest()[:_DIGITS]}" if newest < now - _FRESH else ""


def slots_of(roots: Sequence[str], slots_dir: str) -> list[str]:
    """Return the slots that the roots are in; empty if one of them is in none."""
    top = os.path.join(os.path.realpath(slots_dir), _SLOTS, "")
    inside = [root.removeprefix(top).split(os.sep)[0] for root in roots if root.startswith(top)]
    return [os.path.join(top, name) for name in inside] if len(inside) == len(roots) else []


def hold(slots: Iterable[str]) -> None:
    """
    Keep slots as long as this process, or a child that it forks, lives: nothing changes in them.

    Raises OSError, also if one is just being removed.
    """
    from ..host import linked_copy

    for each in slots:
        _held.append(linked_copy.hold(each))


def is_read() -> bool:
    """Tell whether this process, or the one that it is a fork of, has made copies, or has slots."""
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
        root = copy_names.original(copy)
        return root in roots and not everything and _is_of_now(copy, root, clock())

    linked_copy.remove_leftovers(roots, _MARK, kept)


def _owner(process: str) -> str:
    """Return the name of a main process, without a hyphen, as that of no update."""
    boot, _, rest = process.partition(":")
    return f"{_MARK}{boot.partition('-')[0]}.{rest.replace(':', '.')}"
