"""What is at a path of a file system: its kind, owner, content and attributes."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import IO, TypeVar

from . import copy_names
from .files import anchored

CHUNK = 1 << 20
Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """
    One file, directory or link, as it was.

    ``content`` is the name of the copy of a file, or the target of a link; ``digest`` the
    SHA-256 of a file; ``attributes`` are the extended ones, with access lists and labels.
    """

    path: str
    mode: int
    uid: int
    gid: int
    changed_ns: int
    content: str = ""
    digest: str = ""
    attributes: dict[str, str]

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)


def walk(roots: Sequence[str]) -> Iterator[str]:
    """Yield the paths that exist, each directory before its contents, without linked copies."""
    for root in roots:
        try:
            mode = os.lstat(root).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            yield root
            try:
                names = filterfalse(copy_names.is_copy, sorted(os.listdir(root)))
            except FileNotFoundError:
                continue
            yield from walk([os.path.join(root, name) for name in names])
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield root


def each_of(roots: Sequence[str], look: Callable[[str], Seen]) -> Iterator[tuple[str, Seen]]:
    """
    Yield the paths of :func:`walk`, each with what *look* returns of it, by a path of its own.

    One that somebody removes meanwhile, such as a master that runs, is left out.
    """
    for path in walk(roots):
        try:
            with anchored(path) as place:
                seen = look(place)
        except FileNotFoundError:
            if os.path.lexists(path):
                raise
            continue
        yield path, seen


def read(path: str) -> Entry:
    """Return what is there, without the digest of a file."""
    found = os.lstat(path)
    return Entry(
        path=path,
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        changed_ns=found.st_mtime_ns,
        content=os.readlink(path) if stat.S_ISLNK(found.st_mode) else "",
        attributes=attributes(path),
    )


def attributes(path: str) -> dict[str, str]:
    """Return the extended attributes, in hexadecimal."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}  # a file system without them
    return {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names}


def open_file(path: str) -> IO[bytes]:
    """Open a regular file, which is no link. Raises OSError, also for anything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file any more", path)
    return open(fd, "rb")


def digest(path: str) -> str:
    """Return the SHA-256 of a regular file, which is no link."""
    with open_file(path) as file:
        found = hashlib.sha256()
        while block := file.read(CHUNK):
            found.update(block)
    return found.hexdigest()


def fingerprint(path: str) -> str:
    """Return what tells one version of a path from another. Its times do not."""
    entry = read(path)
    if stat.S_ISREG(entry.mode):
        entry = replace(entry, digest=digest(path))
    return of_entry(entry)


def of_entry(entry: Entry) -> str:
    what = entry.content if stat.S_ISLNK(entry.mode) else entry.digest
    return f"{entry.mode:o} {entry.uid}:{entry.gid} {what}"
