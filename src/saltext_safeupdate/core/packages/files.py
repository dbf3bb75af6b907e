"""Package files on the disk: complete, durable, and the same as when they were recorded."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host.files import sync_directory
from .request import File

Show = Callable[[str], tuple[str, str]]
_BLOCK = 1 << 20
# Nanoseconds in which two writes may have the same time: a file system's clock goes in ticks.
_TICK = 20_000_000
# The digests that this process has taken of package files, by what no later write leaves as it is.
_taken: dict[tuple[int, ...], str] = {}


def digest(path: str, algorithm: str = "sha256") -> str:
    """Return the digest of a file."""
    with open(path, "rb") as file:
        return _digest(file, algorithm)


def _digest(file: IO[bytes], algorithm: str) -> str:
    found = hashlib.new(algorithm, usedforsecurity=False)
    while block := file.read(_BLOCK):
        found.update(block)
    return found.hexdigest()


def _package_digest(path: str) -> str:
    """Return the digest of a package file. Until somebody writes to it, it is taken once."""
    with open(path, "rb") as file:
        before = _stamp(file)
        if before in _taken:
            return _taken[before]
        at_rest = time.time_ns() - before[-1] > _TICK
        found = _digest(file, "sha256")
        if at_rest and _stamp(file) == before:
            _taken[before] = found
        return found


def _stamp(file: IO[bytes]) -> tuple[int, ...]:
    """Return what changes with each write. Nobody sets the time of the last change of an inode."""
    seen = os.fstat(file.fileno())
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def store_file(source: str, directory: str, name: str, version: str) -> File:
    """Move a complete package file into *directory*, durably; return its record."""
    path = os.path.join(directory, os.path.basename(source))
    with open(source, "rb") as file:
        os.fchmod(file.fileno(), 0o600)
        os.fsync(file.fileno())
    os.replace(source, path)
    sync_directory(directory)
    return File(name, version, path, _package_digest(path))


def take_files(paths: Iterable[str], directory: str, show: Show) -> list[File]:
    """Copy package files into *directory*, durably; *show* reads name and version from one."""
    with writing_packages(directory):
        found = []
        for path in paths:
            place = tempfile.mkdtemp(prefix="file-", dir=directory)
            copy = shutil.copy(path, place)
            found.append(store_file(copy, place, *show(copy)))
        return found


@contextmanager
def writing_packages(directory: str) -> Iterator[None]:
    """Turn an OSError while package files are written into one that says what to do."""
    try:
        yield
    except OSError as err:
        raise SafeUpdateError(
            f"package files cannot be put into {directory}: {err.strerror or err}. Nothing was "
            "installed: make room there, and try again"
        ) from err


def verify_files(files: Sequence[File], show: Show) -> None:
    """
    Raise VerificationError if a file is not what was recorded.

    *show* reads the name and the version from a package file.
    """
    for file in files:
        try:
            found = _package_digest(file.path)
        except OSError as err:
            raise _refused(file, f"cannot be read ({err.strerror})") from err
        if found != file.sha256:
            raise _refused(file, f"has changed: SHA-256 {found}, recorded was {file.sha256}")
        try:
            name, version = show(file.path)
        except CommandError as err:
            raise _refused(file, f"is no package ({err.reason})") from err
        if (name, version) != (file.package, file.version):
            raise _refused(file, f"is {name} {version}, not {file.package} {file.version}")


def _refused(file: File, why: str) -> VerificationError:
    return VerificationError(f"{file.path} {why}. Nothing was installed; have it downloaded again")
