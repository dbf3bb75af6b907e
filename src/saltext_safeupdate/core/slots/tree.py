"""The tree of a slot while it is filled: nothing is written outside of it, and nothing twice."""

from __future__ import annotations

import os
from collections.abc import Iterable

from . import inside, private

# The most entries of a tree: a tree of Salt has 14,000.
MOST_ENTRIES = 200_000
# The latest time of a file, in seconds since 1970: some file systems accept no later one.
_LATEST = 1 << 33
_DIRECTORY, _FILE, _LINK = "directory", "file", "link"


class Tree:
    """
    Unpacks into the new, empty directory *root*, which nobody else can write to.

    *size* is the most bytes of all files. Each method raises VerificationError for an entry that is
    not allowed, before anything is written for it, and OSError.
    """

    def __init__(self, root: str, *, size: int, entries: int = MOST_ENTRIES) -> None:
        self._root = root
        self._size = self._left = size
        self._entries = entries
        self._kinds = {".": _DIRECTORY}
        # Directories that have their own entry, not only entries below them.
        self._told: set[str] = set()

    @property
    def written(self) -> int:
        """Bytes of all files so far."""
        return self._size - self._left

    def directory(self, name: str) -> None:
        path = inside.path(name)
        if path in self._told or self._kinds.get(path, _DIRECTORY) != _DIRECTORY:
            raise inside.refused(name, "it is there twice")
        self._told.add(path)
        self._count(name)
        self._make(path, name)

    def file(
        self,
        name: str,
        content: Iterable[bytes],
        *,
        size: int,
        executable: bool = False,
        changed: float = 0.0,
    ) -> None:
        """Write a file of exactly *size* bytes; *changed* is its time, in seconds since 1970."""
        path = self._new(name)
        if not 0 <= size <= self._left:
            raise inside.refused(name, "the whole content is larger than its manifest says")
        if not 0 <= changed < _LATEST:
            raise inside.refused(name, "its time is before 1970, or after the year 2200")
        self._left -= size
        self._kinds[path] = _FILE
        written = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._place(path), flags, 0o600)
        try:
            for block in content:
                written += len(block)
                if written > size:
                    raise inside.refused(name, "it is longer than it says")
                write_all(fd, block)
            if written != size:
                raise inside.refused(name, "it is cut off")
            # The author of the archive does not decide who may write here.
            os.fchmod(fd, 0o755 if executable else 0o644)
            os.utime(fd, (changed, changed))
        finally:
            os.close(fd)

    def symlink(self, name: str, target: str) -> None:
        path = self._new(name)
        inside.link(path, target)
        self._kinds[path] = _LINK
        os.symlink(target, self._place(path))

    def hard_link(self, name: str, target: str) -> None:
        """Add another name for a file of this tree."""
        original = inside.path(target)
        path = self._new(name)
        if self._kinds.get(original) != _FILE:
            raise inside.refused(name, "it is a hard link, and its target is not an earlier file")
        self._kinds[path] = _FILE
        os.link(self._place(original), self._place(path), follow_symlinks=False)

    def _new(self, name: str) -> str:
        """Return the path of a new entry, in directories of this tree."""
        path = inside.path(name)
        if path in self._kinds:
            raise inside.refused(name, "it is there twice")
        self._count(name)
        self._make(os.path.dirname(path), name)
        return path

    def _make(self, path: str, name: str) -> None:
        """Make a directory, and the ones above it."""
        for each in (*inside.above(path), path) if path else ():
            kind = self._kinds.get(each)
            if kind is None:
                private.make(self._place(each))
                self._kinds[each] = _DIRECTORY
            elif kind != _DIRECTORY:
                raise inside.refused(name, f"{each} is a {kind}, not a directory")

    def _count(self, name: str) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise inside.refused(name, "it has too many entries")

    def _place(self, path: str) -> str:
        return os.path.join(self._root, path)


def write_all(fd: int, block: bytes) -> None:
    """Write all of it: one system call may write only a part."""
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(fd, rest) :]
