"""
Hard-linked copies of the old code, so that it stays readable until the restart.

A package transaction replaces or removes the files that the running minion imports from.
Before that, every directory of Python code is copied with hard links to a sibling directory.
That is cheap, because no content is copied. The copy does not change, because the package
manager replaces files by renaming. Processes that run the old code read it from there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from . import copy_names

# The end of the name of one that is not whole yet.
PART = ".part"


class _File(NamedTuple):
    path: str
    device: int
    inode: int
    size: int


class Bounds:
    """The limits of a copy, in files and in seconds. Beyond that it raises OSError."""

    def __init__(
        self, files: int, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._files = files
        self._monotonic = monotonic
        self._deadline = monotonic() + seconds

    def count(self, files: int) -> None:
        """Count the files of one more directory."""
        self._files -= files
        if self._files < 0:
            raise OSError(errno.EFBIG, "it has too many files")
        if self._monotonic() > self._deadline:
            raise OSError(errno.ETIMEDOUT, "it takes too long")


def make(
    roots: Iterable[str],
    identity: str,
    *,
    bounds: Bounds | None = None,
    lock: Callable[[str], object] | None = None,
) -> dict[str, str]:
    """
    Copy each root to a directory next to it; return a mapping of root to copy. Idempotent.

    *identity* is the owner's, without a hyphen. *lock* is called with each copy before anything is
    in it. Files are linked, or copied if the file system cannot link them. Raises OSError if a copy
    cannot be made, and removes those that were made. With *bounds*, files are linked only, and what
    was made is a leftover: to remove it takes longer than to make it.
    """
    made: dict[str, str] = {}
    try:
        for root in roots:
            copy = copy_names.path(root, identity)
            made[root] = copy
            if not os.path.isdir(copy):
                part = f"{copy}{PART}"
                if os.path.isdir(part):
                    shutil.rmtree(part)
                os.mkdir(part)
                if lock is not None:
                    lock(part)
                _link_tree(root, part, bounds)
                os.rename(part, copy)
    except OSError:
        if bounds is None:
            remove(made.values())
        raise
    return made


def remove(copies: Iterable[str]) -> None:
    """Remove the copies. Idempotent. A path that :func:`make` cannot have made is left alone."""
    for copy in copies:
        if copy_names.is_copy(os.path.basename(copy)):
            for path in (copy, f"{copy}{PART}"):
                _rmtree(path)


def differing(copies: Mapping[str, str]) -> list[str]:
    """Return the roots whose files differ from their copies, except byte code."""
    return [root for root, copy in copies.items() if os.path.isdir(copy) and _differ(root, copy)]


def _differ(root: str, copy: str) -> bool:
    found, kept = _files(root), _files(copy)
    if found.keys() != kept.keys():
        return True
    return any(_changed(found[name], kept[name]) for name in found)


def _changed(one: _File, other: _File) -> bool:
    """
    Tell whether the content differs. A link is the same file as its original.

    A file of another version may have the size and the time of the one before: packages that are
    built reproducibly have one time for all their files.
    """
    if (one.device, one.inode) == (other.device, other.inode):
        return False
    if one.size != other.size:
        return True
    # Only an update that was interrupted comes here.
    import filecmp

    # It remembers what it has seen by size and time.
    filecmp.clear_cache()
    try:
        return not filecmp.cmp(one.path, other.path, shallow=False)
    except FileNotFoundError:
        return True


def _files(top: str) -> dict[str, _File]:
    """Return the regular files below a directory by their paths in it, except for byte code."""
    found = {}
    for folder, below, names in os.walk(top):
        below[:] = [
            name for name in below if name != "__pycache__" and not copy_names.is_copy(name)
        ]
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                seen = os.lstat(path)
                if stat.S_ISREG(seen.st_mode):
                    each = _File(path, seen.st_dev, seen.st_ino, seen.st_size)
                    found[os.path.relpath(path, top)] = each
    return found


def hold(copy: str) -> int:
    """
    Keep a copy as long as this process, or a child that it forks, lives; or until this is closed.

    Raises OSError, also if somebody has just taken it for a leftover.
    """
    fd = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # To remove it, a process locks it exclusively while it renames it.
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not os.path.samestat(os.stat(copy), os.fstat(fd)):
            raise FileNotFoundError(errno.ENOENT, "it was replaced", copy)
    except OSError:
        os.close(fd)
        raise
    return fd


def leftovers(roots: Iterable[str], owner: str = "") -> Iterator[str]:
    """
    Find copies next to the roots, except held ones.

    The names of their owners begin with *owner*.
    """
    for directory in {os.path.dirname(root.rstrip("/")) for root in roots}:
        if os.path.isdir(directory):
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                if name.startswith(f"{copy_names.PREFIX}{owner}"):
                    with _unheld(path) as it_is:
                        if it_is:
                            yield path


def remove_leftovers(
    roots: Iterable[str], owner: str = "", kept: Callable[[str], bool] = lambda copy: False
) -> None:
    """Remove what :func:`leftovers` finds, except copies to be *kept*. Raises OSError."""
    for copy in list(leftovers(roots, owner)):
        if kept(copy):
            continue
        with _unheld(copy) as it_is:
            # A new generation may just have come to use it.
            if not it_is:
                continue
            part = copy if copy.endswith(PART) else f"{copy}{PART}"
            if part != copy:
                _rmtree(part)
                try:
                    os.rename(copy, part)
                except OSError as err:
                    # A directory of a lower layer cannot be renamed (overlayfs).
                    if err.errno != errno.EXDEV:
                        raise
                    part = copy
        _rmtree(part)


@contextlib.contextmanager
def _unheld(copy: str) -> Iterator[bool]:
    """Tell whether no process that has called :func:`hold` lives, and let none do so meanwhile."""
    try:
        fd = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            it_is = True
        except BlockingIOError:
            it_is = False
        except OSError:
            # Then nobody can hold it.
            it_is = True
        yield it_is
    finally:
        os.close(fd)


def _rmtree(path: str) -> None:
    # An engine and an update may remove one at the same time.
    while os.path.isdir(path):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def _link_tree(source: str, target: str, bounds: Bounds | None) -> None:
    shutil.copystat(source, target)
    with os.scandir(source) as found:
        # Copies in this directory are not part of its files.
        entries = [entry for entry in found if not copy_names.is_copy(entry.name)]
    if bounds is not None:
        bounds.count(len(entries))
    for entry in entries:
        path = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        elif entry.is_dir():
            os.mkdir(path)
            _link_tree(entry.path, path, bounds)
        elif entry.is_file():
            _link(entry.path, path, copies=bounds is None)


def _link(source: str, target: str, *, copies: bool) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        # It was removed after the directory was listed, as temporary files of Python are.
        return
    except OSError:
        if not copies:
            raise
        shutil.copy2(source, target)
