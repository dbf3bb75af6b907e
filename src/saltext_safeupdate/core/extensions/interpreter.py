"""The interpreter that a minion runs with, asked by programs that need its own library only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from ..errors import CommandError
from ..host.command import Run

_TIMEOUT = 120.0


def _text(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "programs", f"{name}.py")
    with open(path, encoding="utf-8") as file:
        return file.read()


# Read now: an update may remove the directory that they are in.
_INVENTORY, _PLACES, _IMPORTING, _LOADING = map(
    _text, ("inventory", "places", "importing", "loading")
)


def named_by(program: str) -> str | None:
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


def distributions(python: str, run: Run) -> dict[str, Any]:
    """Return its version, its paths, and all distributions with their files."""
    return _json(python, run, _INVENTORY)


def places(python: str, run: Run) -> dict[str, Any]:
    """Return its version, its paths, and only the names of its distributions. Quick."""
    return _json(python, run, _PLACES)


def importable(python: str, run: Run, modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which modules can be imported, and for each other one the reason."""
    names = list(dict.fromkeys(modules))
    if not names:
        return [], []
    # This also compiles them, which saves the next minion the time.
    answer = run((python, "-I", "-c", _IMPORTING, *names), timeout=_TIMEOUT, ok=None)
    lines = [line.partition(" ") for line in answer.stdout.splitlines()]
    good = [name for word, _, name in lines if word == "good" and name in names]
    told = {said.partition(" ")[0]: said for word, _, said in lines if word == "bad"}
    lost = [name for name in names if name not in good]
    return good, [told.get(name, f"{name} ends the interpreter") for name in lost]


def loads(python: str, run: Run, package: str) -> bool:
    """Tell whether Salt's loader finds the package there, and can load it."""
    try:
        run((python, "-I", "-c", _LOADING, package), timeout=_TIMEOUT)
    except CommandError as err:
        if err.returncode is None:
            raise
        return False
    return True


def _json(python: str, run: Run, text: str) -> dict[str, Any]:
    return dict(json.loads(run((python, "-I", "-c", text), timeout=_TIMEOUT).stdout))
