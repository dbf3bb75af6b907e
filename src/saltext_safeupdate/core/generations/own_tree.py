"""
The copies of its code that a generation reads from its start on, or its slot.

Packages change meanwhile, and it continues with one version. The processes of the generations that
read a copy hold it. The copy of the code as it is on disk now is also for the next generation,
which need not make it again. Any other copy that no process holds is a leftover, which any minion
of the host removes.
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
# A file in a copy for others: the directories of its root, so that none of them is listed again.
_LIST = f"{copy_names.PREFIX}directories"
# The ID of an update is hexadecimal.
_MARK = "g"
# The subdirectory of slots in their directory.
_SLOTS = "slots"
_DIGITS = 16
# Seconds after a change in which another change may get the same time (the kernel's clock for
# files ticks every few milliseconds).
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

    Return a mapping of root to copy. *clock* returns epoch seconds. Raise OSError; then
    :func:`sweep` removes the copies.
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
    Read a file in a copy that this process has already read in the root. Raise OSError.

    If programs may read only paths that the host knows (fapolicyd, AppArmor), they may not read a
    copy, although they have made it.
    """
    top = os.path.join(root, "")
    for module in list(sys.modules.values()):
        # Some modules import others if other attributes are read.
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
    """Return a copy of the root and hold it: an existing one, or a new one."""
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
    # Files that changed while they were copied must not be in a copy for others.
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
    """Tell whether a copy is for others, and equals the code as it is on disk."""
    try:
        with open(os.path.join(copy, _LIST), "rb") as file:
            below = file.read().split(b"\0")
        return copy == copy_names.path(root, _state(root, below, now))
    except (OSError, ValueError):
        # There is no such list, or no such directory any more.
        return False


def _directories(root: str) -> Iterator[bytes]:
    """Yield the path of each directory below a root. Raise OSError, also for too many files."""
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
    Return a digest of the directories of a root, in the form of an owner of copies.

    Adding, removing or replacing a file or a directory changes the ``ctime`` of its directory,
    which nobody can set (inode(7)). Byte code does not count. Empty: a directory has changed a
    moment ago. Raise OSError if a directory is missing.
    """
    digest, newest, top = hashlib.sha256(), 0.0, os.path.join(os.fsencode(root), b"")
    for path in below:
        seen = os.stat(top + path)
        newest = max(newest, seen.st_ctime)
        digest.update(b"%s\0%d.%d.%d\0" % (path, seen.st_dev, seen.st_ino, seen.st_ctime_ns))
    return f"{_MARK}{digest.hexdigest()[:_DIGITS]}" if newest < now - _FRESH else ""


def slots_of(roots: Sequence[str], slots_dir: str) -> list[str]:
    """Return the slots that contain the roots; empty if one of them is in no slot."""
    top = os.path.join(os.path.realpath(slots_dir), _SLOTS, "")
    inside = [root.removeprefix(top).split(os.sep)[0] for root in roots if root.startswith(top)]
    return [os.path.join(top, name) for name in inside] if len(inside) == len(roots) else []


def hold(slots: Iterable[str]) -> None:
    """
    Keep slots as long as this process, or a child that it forks, lives: nothing changes in them.

    Raise OSError, also if one is just being removed.
    """
    from ..host import linked_copy

    for each in slots:
        _held.append(linked_copy.hold(each))


def is_read() -> bool:
    """Tell whether this process, or the process that forked it, has made copies or holds slots."""
    return bool(_held)


def of(roots: Iterable[str], process: str) -> Mapping[str, str]:
    """Return the copies that the generation with that main process holds, by root."""
    if not processes.alive(process):
        return {}
    try:
        paths = list(processes.opened(processes.pid(process)))
    except OSError:
        # It has ended, or belongs to another user: then its copies are unknown.
        return {}
    copies = [path for path in paths if copy_names.is_copy(os.path.basename(path))]
    found = {copy_names.original(path): path for path in copies}
    return {root: found[root] for root in roots if root in found}


def sweep(
    roots: Iterable[str], *, everything: bool = False, clock: Callable[[], float] = time.time
) -> None:
    """
    Remove the copies that no process holds, except the ones of the present code.

    With *everything*, remove these, too. Raise OSError.
    """
    from ..host import linked_copy

    roots = list(roots)

    def kept(copy: str) -> bool:
        root = copy_names.original(copy)
        return root in roots and not everything and _is_of_now(copy, root, clock())

    linked_copy.remove_leftovers(roots, _MARK, kept)


def _owner(process: str) -> str:
    """Return a name for a main process, without a hyphen, so that it is not an update's."""
    boot, _, rest = process.partition(":")
    return f"{_MARK}{boot.partition('-')[0]}.{rest.replace(':', '.')}"
