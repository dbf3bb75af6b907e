"""Package files on the disk: complete, durable, and the same as when they were recorded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host.files import sync_directory
from .request import File

Show = Callable[[str], tuple[str, str]]
_BLOCK = 1 << 20


def digest(path: str, algorithm: str = "sha256") -> str:
    """Return the digest of a file."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def store_file(source: str, directory: str, name: str, version: str) -> File:
    """Move a complete package file into *directory*, durably; return its record."""
    path = os.path.join(directory, os.path.basename(source))
    with open(source, "rb") as file:
        os.fchmod(file.fileno(), 0o600)
        os.fsync(file.fileno())
    os.replace(source, path)
    sync_directory(directory)
    return File(name, version, path, digest(path))


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
            found = digest(file.path)
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
