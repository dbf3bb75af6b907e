"""Copies of the files of a build, hashed while they are copied: others may change a source."""

from __future__ import annotations

import hashlib
import os

from ..errors import VerificationError
from ..host.files import open_regular
from .manifest import Manifest
from .tree import write_all

_CHUNK = 1 << 20


def copied(manifest: Manifest, name: str, source: str, directory: str) -> str:
    """Copy a file of a build if it matches the manifest; return the path of the copy."""
    wanted, path = manifest.files[name], os.path.join(directory, name)
    digest, left = hashlib.sha256(), wanted.size
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        given = open_regular(source)
        if given is None:
            raise VerificationError(
                f"{name} is not a regular file. Nothing was changed; copy the file that the "
                f"manifest of {manifest.name} names to the source again."
            )
        with open(given, "rb") as file:
            while left >= 0 and (block := file.read(_CHUNK)):
                left -= len(block)
                digest.update(block)
                write_all(fd, block)
    finally:
        os.close(fd)
    if left or digest.hexdigest() != wanted.sha256:
        raise VerificationError(
            f"{name} is not the file that the manifest of {manifest.name} names. Nothing was "
            "changed; copy it to the source again, or write a new manifest."
        )
    return path
