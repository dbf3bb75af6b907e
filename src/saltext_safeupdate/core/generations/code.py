"""
The files that a minion runs from, and whether they have changed since it started.

They change when somebody installs packages while the minion runs: the package manager of the host
in a shell, pip, the system's Python, or a library that Python maps. From then on the minion has one
part of its code in memory and loads another one from the disk.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

# Seconds between two checks. An installation in progress is left alone: it has ended when nothing
# has changed from one check to the next.
_INTERVAL = 20.0
# Most checks read only the directories, an eighth of the work: an installer replaces a file by a
# new one. Every so many checks also read the files and the mapped libraries.
_WHOLE = 5
# A process maps no installed code from there; needrestart has the same list.
_NO_CODE = ("/dev/", "/memfd:", "/proc/", "/run/", "/SYSV", "/tmp/", "/var/tmp/", "/[")  # noqa: S108
_GONE = " (deleted)"

# Inode, time and size as one number: there are hundreds of them in each process of a minion.
Stamp = int
Stamps = dict[str, Stamp]

# The noted files and their stamps, in the same order: a tenth of the memory of a dictionary.
_noted_files: list[str] = []
_noted_stamps = array("q")
# The process that has noted the first ones.
_noted_by: list[int] = []


def remember(leave_out: Iterable[str], *, more: bool = False) -> None:
    """
    Note the files that this process, the main process of a minion, has loaded, for its children.

    Once some are noted, only *more* adds the ones that were loaded since. Files below one of the
    directories *leave_out* come from a master, or others take care of them.
    """
    if not _noted_files:
        _noted_by[:] = [os.getpid()]
    if more or not _noted_files:
        files = files_of(sys.modules.values()).difference(_noted_files)
        for file in installed(files, sys.path, leave_out):
            seen = stamp(file)
            if seen is not None:
                _noted_files.append(file)
                _noted_stamps.append(seen)


def are_inherited() -> bool:
    """Tell whether the process that has forked this one has noted the files."""
    return bool(_noted_by) and _noted_by != [os.getpid()]


def folders() -> tuple[Stamp | None, ...]:
    """Return the stamps of the directories of the noted files: an installer replaces files."""
    return tuple(map(stamp, _folders(len(_noted_files))))


@functools.lru_cache(maxsize=1)
def _folders(_: int) -> list[str]:
    return sorted(set(map(os.path.dirname, _noted_files)))


def remembered() -> Stamps:
    """Return the noted files."""
    return dict(zip(_noted_files, _noted_stamps, strict=True))


def files_of(modules: Iterable[Any]) -> set[str]:
    """Return the files of modules."""
    # Some modules load others when an attribute is read. A library of cffi only pretends to be a
    # module, and makes its dictionary when somebody asks for it.
    found = (
        object.__getattribute__(module, "__dict__").get("__file__")
        for module in list(modules)
        if issubclass(type(module), ModuleType)
    )
    return {file for file in found if isinstance(file, str)}


def installed(files: Iterable[str], path: Iterable[str], leave_out: Iterable[str]) -> set[str]:
    """Return the files below a directory of *path*, without those below one of *leave_out*."""
    below, but = (
        tuple(os.path.join(each, "") for each in places if os.path.isabs(each))
        for places in (path, leave_out)
    )
    return {file for file in files if file.startswith(below) and not file.startswith(but)}


def stamp(file: str) -> Stamp | None:
    try:
        seen = os.stat(file)
    except OSError:
        return None
    return hash((seen.st_ino, seen.st_mtime_ns, seen.st_size))


def replaced_maps(pid: int, proc: str = "/proc") -> set[str]:
    """Return programs and libraries that a process runs and that are no longer on the disk."""
    found = set()
    try:
        with open(f"{proc}/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            # Read it line by line: otherwise all of it would stay in the memory of the engine.
            for line in maps:
                # Addresses, permissions, offset, device, inode, and a path that may have blanks.
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) == 6 and "x" in fields[1] and fields[5].endswith(_GONE):
                    found.add(fields[5].removesuffix(_GONE))
    except OSError:
        return set()
    return {path for path in found if not path.startswith(_NO_CODE)}


class Code:
    """Checks, now and then, the *files* that a minion with the process *pid* runs from."""

    def __init__(
        self,
        files: Stamps,
        pid: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        maps: Callable[[int], set[str]] = replaced_maps,
    ) -> None:
        self._files = files
        self._pid = pid
        self._monotonic = monotonic
        self._maps = maps
        self._look_at = monotonic() + _INTERVAL
        self._folders: dict[str, Stamp | None] = dict.fromkeys(map(os.path.dirname, files))
        self._looks = 0
        self._seen: dict[str, Stamp | None] = {}
        self._settled: dict[str, Stamp | None] = {}

    def changed(self) -> tuple[str, ...]:
        """
        Return the replaced or removed files, sorted, once no more change; otherwise nothing.

        Each check returns them until :meth:`settle` is called or more files change.
        """
        now = self._monotonic()
        if now < self._look_at:
            return ()
        self._look_at = now + _INTERVAL
        if not self._is_due():
            return ()
        found = self._replaced()
        last, self._seen = self._seen, found
        if found != last or found == self._settled:
            return ()
        return tuple(sorted(found))

    def _is_due(self) -> bool:
        """Tell whether this check reads everything: something may have changed, or it is time."""
        before = self._folders
        self._folders = {each: stamp(each) for each in self._folders}
        self._looks += 1
        return self._folders != before or self._seen != self._settled or self._looks % _WHOLE == 0

    def is_as_noted(self) -> bool:
        """Tell whether the last check found no change."""
        return self._looks > 0 and not self._seen

    def is_unchanged(self) -> bool:
        """Tell whether nothing is replaced now: read all files and the mapped libraries."""
        return not self._replaced()

    def _replaced(self) -> dict[str, Stamp | None]:
        """Return the replaced files with their stamps, and the mapped libraries."""
        found: dict[str, Stamp | None] = dict.fromkeys(self._maps(self._pid))
        for file, before in self._files.items():
            present = stamp(file)
            if present != before:
                found[file] = present
        return found

    def settle(self) -> None:
        """Note that the caller has acted upon the change."""
        self._settled = self._seen
