"""
Carry this extension into the interpreter that the updated minion runs with.

A package that brings another Python minor version brings an empty directory for extensions. This
extension is pure Python: it is copied there before the minion starts, with the metadata by which
Salt's loader finds it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import VerificationError

if TYPE_CHECKING:
    from ..host.command import Run

PACKAGE = __name__.partition(".")[0]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.M)


def home() -> str:
    """Return the directory that this package was imported from."""
    return os.path.dirname(os.path.abspath(str(sys.modules[PACKAGE].__file__)))


def running_version() -> str:
    """Return the version of this package in the memory of this process."""
    return str(vars(sys.modules[PACKAGE])["__version__"])


def version_in(directory: str) -> str:
    """Return the version of this package that is in the directory, or an empty text."""
    try:
        with open(os.path.join(directory, "__init__.py"), encoding="utf-8") as file:
            found = _VERSION.search(file.read())
    except FileNotFoundError:
        return ""
    return found[1] if found else ""


def metadata(place: str) -> list[str]:
    """Return the directories in *place* with the metadata of this package, of any version."""
    return glob.glob(os.path.join(glob.escape(place), f"{PACKAGE}-*.dist-info"))


def carry(
    python: str, run: Run, extension: str, copies: Mapping[str, str], tree: str = "/"
) -> str | None:
    """
    Make this extension loadable with *python*; return where it was put, None if it was there.

    *extension* is its :func:`home` in the old tree. *copies* maps directories of that tree to
    their linked copies, which are read first: the old place may be gone. Nothing is put outside
    of *tree*. Idempotent. Raises
    VerificationError if the extension still cannot be loaded.
    """
    # A minion that asks for its home does not need it: it takes memory.
    from . import interpreter

    if interpreter.loads(python, run, PACKAGE):
        return None
    where = str(interpreter.places(python, run, tree)["purelib"])
    source = _source(extension, copies)
    for path in (source, *glob.glob(os.path.join(os.path.dirname(source), f"{PACKAGE}-*-info"))):
        target = os.path.join(where, os.path.basename(path))
        part = f"{target}.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(path, part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(part, target)
    if not interpreter.loads(python, run, PACKAGE):
        raise VerificationError(
            f"The extension was copied to {where}, but {python} cannot load it. The minion is "
            f"restarted without it; install it there with '{python} -m pip install "
            "saltext-safeupdate'."
        )
    return where


def _source(extension: str, copies: Mapping[str, str]) -> str:
    """Return the directory of the extension: in the linked copy of its tree, or where it was."""
    for root, copy in copies.items():
        if extension.startswith(root + os.sep):
            moved = copy + extension[len(root) :]
            if os.path.isdir(moved):
                return moved
    return extension
