"""The Python distributions that pip installed into Salt's interpreter, and no package owns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..host.command import Run
from . import interpreter

_OURS = __name__.partition(".")[0].replace("_", "-")
# Every interpreter with a pip has its own of these.
_TOOLS = ("pip", "setuptools", "wheel")
_SALT = "salt"

Unowned = Callable[[Iterable[str]], set[str]]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """
    A distribution in the minion's interpreter that belongs to no package.

    *files* are relative to the directory *place*, *info* is the directory of its metadata.
    *modules* are its modules that can be imported now, in the minor version *python*.
    """

    name: str
    version: str
    place: str
    info: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    python: int
    requires: str = ""

    @property
    def fits_any(self) -> bool:
        """Whether its files work in every newer minor version."""
        return all(
            not name.endswith(".so") or name.endswith(".abi3.so")
            for name in map(os.path.basename, self.files)
        )

    @property
    def ours(self) -> bool:
        return normal_name(self.name) == _OURS


class Problem(NamedTuple):
    """Why an extension would be missing after the update, and how to fix that."""

    extension: str
    reason: str
    fix: str


def inventory(
    python: str, run: Run, unowned: Unowned, build: Collection[str] | None = None
) -> list[Extension]:
    """
    Return the extensions in the interpreter of Salt, this one first.

    *unowned* returns the given files that no package owns. If Salt itself is one of them, no
    package manager replaces that Salt, and there are no extensions. The exception is a *build*,
    which has distributions of these names. Then the extensions are the distributions that
    neither Salt needs nor the build has.
    """
    found = []
    for each, points in _found(python, run, unowned, build):
        good, _ = interpreter.importable(python, run, _modules(each.files) + points)
        found.append(replace(each, modules=tuple(good)))
    return found


def listed(python: str, run: Run, unowned: Unowned) -> list[Extension]:
    """Return the same without ``modules``. Quick, because nothing is imported."""
    return [each for each, _ in _found(python, run, unowned, None)]


def normal_name(name: str) -> str:
    """Return the name of a distribution as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _found(
    python: str, run: Run, unowned: Unowned, build: Collection[str] | None
) -> list[tuple[Extension, list[str]]]:
    """Return the extensions, each with the modules that Salt's loader is pointed to."""
    told = interpreter.distributions(python, run)
    metadata = {_metadata_file(each): each for each in told["distributions"]}
    free = unowned(metadata)
    if any(normal_name(metadata[path]["name"]) == _SALT for path in free):
        if build is None:
            return []
        known = _needed_by_salt(told["distributions"]) | {normal_name(name) for name in build}
        free = {path for path in free if normal_name(metadata[path]["name"]) not in known}
    found = [
        (
            Extension(
                name=each["name"],
                version=each["version"],
                place=each["place"],
                info=each["info"],
                files=tuple(name for name in each["files"] if _inside(name)),
                modules=(),
                python=told["python"][1],
                requires=each["requires"],
            ),
            each["points"],
        )
        for path, each in metadata.items()
        if path in free and normal_name(each["name"]) not in _TOOLS
    ]
    return sorted(found, key=lambda pair: (not pair[0].ours, pair[0].name))


def _needed_by_salt(distributions: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of Salt and of all that it needs."""
    needs = {normal_name(each["name"]): each["needs"] for each in distributions}
    found, waiting = set(), [_SALT]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += map(normal_name, needs.get(name, ()))
    return found


def _metadata_file(each: dict[str, Any]) -> str:
    """Return the file whose owner counts as the owner of the distribution."""
    info = os.path.join(each["place"], each["info"])
    inside = [os.path.join(info, name) for name in ("METADATA", "PKG-INFO")]
    return next((path for path in inside if os.path.isfile(path)), info)


def _modules(files: Iterable[str]) -> list[str]:
    """Return what to import of a distribution: its topmost packages, and its modules."""
    packages = {os.path.dirname(name) for name in files if name.endswith("/__init__.py")}
    top = {path for path in packages if not any(path.startswith(other + "/") for other in packages)}
    top |= {
        name.partition(".")[0]
        for name in files
        if "/" not in name and name.endswith((".py", ".so"))
    }
    # Files whose paths are no names are data that look like code.
    parts = (path.split("/") for path in sorted(top))
    return [".".join(names) for names in parts if all(map(str.isidentifier, names))]


def _inside(name: str) -> bool:
    """Tell whether to copy a file: no script outside the place, and no byte code."""
    return not name.startswith(("..", "/")) and "__pycache__" not in name
