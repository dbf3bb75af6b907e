"""
Hard-linked copies of the old code, so that it stays readable until the restart.

A package transaction replaces or removes the files that the running minion imports from.
Before that, every directory of Python code is copied with hard links to a sibling directory.
That is cheap, because no content is copied. The copy does not change, because the package
manager replaces files by renaming. Processes that run the old code read it from there.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_PREFIX = ".salt-safeupdate-"
# The end of the name of one that is not whole yet.
PART = ".part"


class _File(NamedTuple):
    path: str
    device: int
    inode: int
    size: int


def make(roots: Iterable[str], identity: str) -> dict[str, str]:
    """
    Copy each root beside itself; return a mapping of root to copy. Idempotent.

    Files are linked, or copied if the file system cannot link them. Raises OSError if a copy
    cannot be made, and removes those that were made.
    """
    made: dict[str, str] = {}
    try:
        for root in roots:
            copy = copy_path(root, identity)
            made[root] = copy
            if not os.path.isdir(copy):
                _link_tree(root, f"{copy}{PART}")
                os.rename(f"{copy}{PART}", copy)
    except OSError:
        remove(made.values())
        raise
    return made


def of(roots: Iterable[str], identity: str) -> dict[str, str]:
    """
    Return the whole copies that are there, by root.

    Their names say whose they are: to find them takes no database, which may be what is broken.
    """
    paths = {root: copy_path(root, identity) for root in roots}
    return {root: copy for root, copy in paths.items() if os.path.isdir(copy)}


def remove(copies: Iterable[str]) -> None:
    """Remove the copies. Idempotent. A path that :func:`make` cannot have made is left alone."""
    for copy in copies:
        if os.path.basename(copy).startswith(_PREFIX):
            for path in (copy, f"{copy}{PART}"):
                if os.path.isdir(path):
                    shutil.rmtree(path)


def differing(copies: Mapping[str, str]) -> list[str]:
    """Return the roots whose files differ from those of their copies, except for byte code."""
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
        below[:] = [name for name in below if name != "__pycache__"]
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                seen = os.lstat(path)
                if stat.S_ISREG(seen.st_mode):
                    each = _File(path, seen.st_dev, seen.st_ino, seen.st_size)
                    found[os.path.relpath(path, top)] = each
    return found


def copy_path(root: str, identity: str) -> str:
    directory, name = os.path.split(root.rstrip("/"))
    return os.path.join(directory, f"{_PREFIX}{identity}-{name}")


def leftovers(roots: Iterable[str]) -> Iterator[str]:
    """Find copies beside the roots, of any update."""
    for directory in {os.path.dirname(root.rstrip("/")) for root in roots}:
        if os.path.isdir(directory):
            for name in os.listdir(directory):
                if name.startswith(_PREFIX):
                    yield os.path.join(directory, name)


def _link_tree(source: str, target: str) -> None:
    if os.path.isdir(target):
        shutil.rmtree(target)
    os.mkdir(target)
    shutil.copystat(source, target)
    with os.scandir(source) as entries:
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), path)
            elif entry.is_dir():
                _link_tree(entry.path, path)
            elif entry.is_file():
                _link(entry.path, path)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        # It was removed after the directory was listed, as temporary files of Python are.
        return
    except OSError:
        shutil.copy2(source, target)
