"""Which Python the new Salt brings, and which extensions say that they do not go with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..host.command import Run
from .distributions import Extension, Problem

_LISTING_TIMEOUT = 120.0
_PYTHON_PATH = re.compile(
    r"/python3\.(\d+)/(?:site|dist)-packages/salt/__init__\.py$", re.MULTILINE
)
_SPECIFIER = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?$")


def python_of(files: Iterable[str], run: Run) -> int | None:
    """Return the Python minor version of Salt in these package files; None if unknown."""
    for path in files:
        if path.endswith(".deb"):
            found = _in_checksums(path, run) or _in(("dpkg-deb", "--contents", path), run)
        else:
            found = _in(("rpm", "-qpl", path), run)
        if found is not None:
            return found
    return None


def _in_checksums(path: str, run: Run) -> int | None:
    """Look at the checksums, which few packages lack: to list a package, all of it is unpacked."""
    return _in(("dpkg-deb", "--info", path, "md5sums"), run, ok=None)


def _in(argv: Sequence[str], run: Run, ok: Sequence[int] | None = (0,)) -> int | None:
    told = run(argv, timeout=_LISTING_TIMEOUT, ok=ok, keep=_PYTHON_PATH.search)
    found = _PYTHON_PATH.search(told.stdout)
    return int(found[1]) if found else None


def unfit(extensions: Iterable[Extension], python: int | None) -> list[Problem]:
    """Return a problem for each extension that excludes Python 3.*python* by its metadata."""
    if python is None:
        return []
    return [
        Problem(
            each.name,
            f"{each.name} {each.version} does not go with Python 3.{python}: it requires "
            f"{each.requires}.",
            f"Install a version of {each.name} that does, or remove it.",
        )
        for each in extensions
        if not allows(each.requires, python)
    ]


def allows(requires: str, python: int) -> bool:
    """Tell whether a ``Requires-Python`` allows Python 3.*python*; an unreadable one does."""
    newest = (3, python, 999)  # its patch release is not known: the newest counts
    for part in filter(None, (part.strip() for part in requires.split(","))):
        match = _SPECIFIER.match(part)
        if match is None:
            continue
        operator, text, star = match.groups()
        wanted = tuple(int(number) for number in text.split("."))
        same = newest[: len(wanted)] == wanted
        if not {
            "==": same,
            "!=": not (star and same),
            "~=": newest >= wanted and newest[: len(wanted) - 1] == wanted[:-1],
            ">=": newest >= wanted,
            ">": newest > wanted,
            "<": (3, python) < wanted,
            "<=": newest <= wanted,
        }[operator]:
            return False
    return True
