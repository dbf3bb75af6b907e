"""
Carry this extension into the interpreter that the updated minion runs with.

A package that brings another Python minor version brings another, empty place for what
was installed beside Salt. This extension is pure Python: it is copied there, with the
metadata that Salt's loader finds it by, before the minion starts.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Mapping

from ..errors import CommandError, VerificationError
from ..host.command import Run

_TIMEOUT = 60.0
_PACKAGE = __name__.partition(".")[0]
_FIND = (
    "import importlib.metadata as m; "
    f"assert any(e.name == '{_PACKAGE}' and e.load() for e in m.entry_points(group='salt.loader'))"
)
_WHERE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


def interpreter(program: str) -> str | None:
    """Return the interpreter that the first line of a Python script names, or None."""
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    return words[0] if words and os.path.isabs(words[0]) else None


def home() -> str:
    """Return the directory of this package, as it was imported."""
    return os.path.dirname(os.path.abspath(str(sys.modules[_PACKAGE].__file__)))


def carry(python: str, run: Run, extension: str, copies: Mapping[str, str]) -> str | None:
    """
    Make the extension loadable with *python*; return where it was put, None if it was there.

    *extension* is the :func:`home` in the old tree. *copies* maps directories of that tree
    to their copies, which are read first: the old place may be gone. Idempotent. Raises
    VerificationError where it still cannot be loaded.
    """
    if _loads(python, run):
        return None
    where = run((python, "-I", "-c", _WHERE), timeout=_TIMEOUT).stdout.strip()
    source = _source(extension, copies)
    for path in (source, *glob.glob(os.path.join(os.path.dirname(source), f"{_PACKAGE}-*-info"))):
        target = os.path.join(where, os.path.basename(path))
        part = f"{target}.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(path, part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(part, target)
    if not _loads(python, run):
        raise VerificationError(
            f"The extension was copied to {where}, but {python} cannot load it. The minion is "
            f"restarted without it; install it there with '{python} -m pip install "
            "saltext-safeupdate'."
        )
    return where


def _loads(python: str, run: Run) -> bool:
    try:
        run((python, "-I", "-c", _FIND), timeout=_TIMEOUT)
    except CommandError as err:
        if err.returncode is None:
            raise
        return False
    return True


def _source(extension: str, copies: Mapping[str, str]) -> str:
    """Return the directory of the extension, in the copy of the old tree or where it was."""
    for root, copy in copies.items():
        if extension.startswith(root + os.sep):
            moved = copy + extension[len(root) :]
            if os.path.isdir(moved):
                return moved
    return extension
