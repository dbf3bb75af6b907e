"""The content of a tree, with a digest of each file, to detect changes later."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from ..errors import VerificationError
from ..host.files import sync_directory

_CHUNK = 256 << 10
# Not part of a build: byte code, which Python writes again if its times differ from those in the
# sources; the directory for packages that an administrator adds with 'salt-pip' of a onedir; and
# this extension, which is updated in its place.
_OTHERS = re.compile(
    r"(?:.*/)?__pycache__(?:/.*)?|extras-.*|"
    r"(?:.*/)?\.?saltext_safeupdate(?:-[^/]*-info|\.part)?(?:/.*)?"
)

# A file is its digest, size and mode, a link its target, and a directory nothing.
Entries = dict[str, list[Any]]


def settle(root: str) -> Entries:
    """Write the whole tree to the disk; return its content. Raise OSError."""
    return dict(_entries(root, sync=True))


def differences(root: str, recorded: Entries) -> Iterator[str]:
    """
    Name each entry of the tree that differs from the record, and say how.

    Byte code in ``__pycache__`` does not count. Raise OSError.
    """
    left = dict(recorded)
    for path, entry in _entries(root, sync=False):
        before = left.pop(path, None)
        if before is None:
            yield f"{path} was added"
        elif before != entry:
            yield f"{path} was changed"
    yield from (f"{path} is gone" for path in left)


def as_bytes(entries: Entries) -> bytes:
    return json.dumps(entries, separators=(",", ":")).encode()


def from_bytes(content: bytes) -> Entries:
    """Return the argument of :func:`as_bytes`, or raise VerificationError."""
    try:
        given = json.loads(content)
    except ValueError as err:
        raise VerificationError(f"The list of the files of a slot is damaged: {err}.") from err
    if not isinstance(given, dict) or not all(isinstance(each, list) for each in given.values()):
        raise VerificationError("The list of the files of a slot is damaged.")
    return given


def _entries(top: str, *, sync: bool) -> Iterator[tuple[str, list[Any]]]:
    for place, names, files in os.walk(top, topdown=False, onerror=_raise):
        for name in (*names, *files):
            path = os.path.join(place, name)
            seen = os.lstat(path)
            if stat.S_ISREG(seen.st_mode):
                mode = stat.S_IMODE(seen.st_mode)
                entry = [_digest(path, sync=sync), seen.st_size, mode]
            elif stat.S_ISLNK(seen.st_mode):
                entry = [os.readlink(path)]
            elif stat.S_ISDIR(seen.st_mode):
                entry = []
            else:
                entry = [stat.S_IFMT(seen.st_mode)]
            told = os.path.relpath(path, top)
            if not _OTHERS.fullmatch(told):
                yield told, entry
        if sync:
            sync_directory(place)


def _digest(path: str, *, sync: bool) -> str:
    found = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while block := os.read(fd, _CHUNK):
            found.update(block)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    return found.hexdigest()


def _raise(err: OSError) -> None:
    raise err
