"""Write and remove files so that a crash leaves no half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile


def write_atomic(path: str, content: str | bytes, *, mode: int = 0o600) -> None:
    """Write *content* to the disk. A crash leaves either the old file or the new one."""
    directory = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(dir=directory, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(directory)


def make_private(path: str) -> None:
    """Make a directory, and those above it that are not there, for nobody else to look into."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)


def text(path: str) -> str:
    """Return what a file says, whatever its bytes are; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def remove(path: str) -> bool:
    """Remove a file; tell whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_directory(os.path.dirname(path))
    return True


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
