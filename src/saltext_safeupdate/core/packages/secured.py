"""Package files of the installed versions, copied so that a rollback needs no network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence

from ..errors import SafeUpdateError
from .files import store_file, writing_packages
from .request import File


def secure_installed(
    packages: Sequence[str],
    versions: dict[str, str],
    directory: str,
    copy: Callable[[str, str, str], File],
) -> list[File]:
    """
    Have *copy* put a file of each package into *directory*; return the files.

    *versions* are the installed ones. Raises SafeUpdateError if a package is not installed.
    """
    missing = sorted(set(packages) - set(versions))
    if missing:
        raise SafeUpdateError(f"{', '.join(missing)} is not installed, so it cannot be copied")
    with writing_packages(directory):
        return [copy(name, version, directory) for name, version in versions.items()]


def from_cache(
    paths: Iterable[str],
    name: str,
    version: str,
    directory: str,
    intact: Callable[[str, str, str], bool],
) -> File | None:
    """Copy the first of *paths* that is the package, and *intact*; return None if none is."""
    for path in paths:
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=directory) as scratch:
            copy = shutil.copy(path, scratch)
            if intact(copy, name, version):
                return store_file(copy, directory, name, version)
    return None
