"""
A copy of the supervisor's code, and an interpreter for it, that no package transaction changes.

An update may remove the directory that this package was imported from, and the Python that
runs it. A supervisor that systemd starts again after a crash still needs both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping

from ..errors import CommandError
from ..host.command import Run
from .ourselves import home

_SYSTEM_PYTHON = "/usr/bin/python3"
_FITS = "import json, sqlite3, sys; sys.exit(sys.version_info < (3, 10))"
_TIMEOUT = 30.0
_PREFIX = "supervisor-"
_PACKAGE = home()


def make(state_dir: str, named: str = "") -> str:
    """
    Copy the core below *state_dir*; return the path of its launcher. Idempotent.

    Other copies are removed, except copies that *named*, the definition of a watchdog, names.
    """
    files = {name: _read(os.path.join(_PACKAGE, name)) for name in sorted(_names())}
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    home = os.path.join(state_dir, f"{_PREFIX}{digest.hexdigest()[:16]}")
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    if not os.path.isdir(home):
        part = f"{home}.part"
        shutil.rmtree(part, ignore_errors=True)
        for name, content in files.items():
            path = os.path.join(part, os.path.basename(_PACKAGE), name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)
        os.rename(part, home)
    for name in os.listdir(state_dir):
        path = os.path.join(state_dir, name)
        if name.startswith(_PREFIX) and path != home and name not in named:
            # No process runs from it: a supervisor starts only if none is alive.
            shutil.rmtree(path, ignore_errors=True)
    return os.path.join(home, os.path.basename(_PACKAGE), "core", "launch.py")


def interpreter(run: Run, copies: Mapping[str, str]) -> str:
    """
    Return a Python that stays: the system's, or ours in the linked copy of its tree.

    *copies* maps directories to their linked copies. If none fits, it is the running Python.
    """
    try:
        run((_SYSTEM_PYTHON, "-I", "-S", "-c", _FITS), timeout=_TIMEOUT)
    except CommandError:
        directory, name = os.path.split(sys.executable)
        ours = os.path.join(os.path.realpath(directory), name)
        for root, copy in copies.items():
            if ours.startswith(root + os.sep):
                return copy + ours[len(root) :]
        return sys.executable
    return _SYSTEM_PYTHON


def _names() -> set[str]:
    """Return the files of the core, relative to the package."""
    names = {"__init__.py"}
    for directory, _, files in os.walk(os.path.join(_PACKAGE, "core")):
        for name in files:
            if name.endswith(".py"):
                names.add(os.path.relpath(os.path.join(directory, name), _PACKAGE))
    return names


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
