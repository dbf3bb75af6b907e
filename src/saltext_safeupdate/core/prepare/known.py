"""
Whether this extension knows the Salt that is about to be installed.

The engine has written down the table of the functions that the hooks replace. Here it is compared
with the sources of the packages, which are read and not run. On a Salt that differs the hooks
would stand down: jobs would be lost in restarts, and no update could be proven.
"""

from __future__ import annotations

import ast
import glob
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..extensions import ourselves
from ..generations.replaced import Row
from ..host.command import Run
from ..packages import payload

log = logging.getLogger(__name__)

# The releases on which every change of the extension is tested: there is nothing to be compared.
TESTED = ("3006.28", "3007.15", "3008.3")
_RELEASE = re.compile(r"(?:\d+:)?(\d{4}(?:\.\d+)*)")
_PLACES = ("site-packages", "dist-packages")
# Where a slot that was made of wheels has it.
_OF_SLOTS = (*_PLACES, "lib")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Read = Callable[[str], str | None]


def unknown(
    rows: Sequence[Row], targets: Mapping[str, str], files: Sequence[str], place: str, run: Run
) -> list[str]:
    """
    Return what differs in the Salt of these package files; *place* is a directory to work in.

    A directory among them is a tree, which is read as it is. Nothing if they are of a tested
    release, or if Salt is in none of them. Raises OSError.
    """
    told = (_RELEASE.match(version) for version in targets.values())
    releases = {found[1] for found in told if found}
    if not rows or not releases or releases <= set(TESTED):
        return []
    trees = [file for file in files if os.path.isdir(file)]
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=place) as directory:
        if not trees:
            payload.unpack(files, patterns(rows), directory, run)
        roots = _roots(trees or [directory], _OF_SLOTS if trees else _PLACES)
        if not roots:
            log.warning("the sources of Salt %s could not be read", ", ".join(sorted(releases)))
            return []
        return differences(rows, lambda module: _source(roots[0], module))


def _roots(trees: Iterable[str], places: Iterable[str]) -> list[str]:
    """Return the directories below the trees that Salt is in."""
    return [
        os.path.dirname(os.path.dirname(found))
        for tree in trees
        for each in places
        for found in glob.glob(f"{glob.escape(tree)}/**/{each}/salt/__init__.py", recursive=True)
    ]


def refusal(different: Sequence[str], targets: Mapping[str, str]) -> tuple[str, str]:
    """Say what is wrong, and what to do about it."""
    version = ", ".join(sorted(set(targets.values())))
    return (
        f"This extension ({ourselves.running_version()}) does not know Salt {version}, and would "
        f"leave it without its hooks: {'; '.join(different)}.",
        f"Install a version of saltext-safeupdate newer than {ourselves.running_version()} that "
        "knows this Salt, then update Salt.",
    )


def patterns(rows: Iterable[Row]) -> list[str]:
    """Return the names of the files that are needed, as a package has them."""
    modules = sorted({"salt", *(row.module for row in rows)})
    names = [name for module in modules for name in _names(module)]
    return [f"*/{each}/{name}" for each in _PLACES for name in names]


def differences(rows: Iterable[Row], read: Read) -> list[str]:
    """Return what Salt lacks, and what is not as the table says. *read* returns a source."""
    found, trees = [], dict[str, ast.Module | None]()
    for row in rows:
        if row.module not in trees:
            trees[row.module] = _parsed(read(row.module))
        tree = trees[row.module]
        if tree is None:
            # It is gone, or written in a Python that this one does not read.
            if read(row.module) is None:
                found.append(f"{row.module} is not there")
            continue
        found += _different(row, tree)
    return list(dict.fromkeys(found))


def _parsed(source: str | None) -> ast.Module | None:
    try:
        return None if source is None else ast.parse(source)
    except SyntaxError as err:
        log.warning("a source of Salt cannot be parsed: %s", err)
        return None


def _different(row: Row, tree: ast.Module) -> Iterator[str]:
    owner: Any = tree
    if row.owner:
        classes = [
            each
            for each in _statements(tree)
            if isinstance(each, ast.ClassDef) and each.name == row.owner
        ]
        if not classes:
            yield f"{row.module}.{row.owner} is not there"
            return
        owner = classes[-1]
    functions, assigned = [], False
    for each in _statements(owner):
        if isinstance(each, Function) and each.name == row.name:
            functions.append(each)
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
            assigned = assigned or row.name in _named(each)
    if not functions:
        if not assigned:
            yield f"{row.place} is not there"
        return
    function = functions[-1]
    names, needed = _parameters(function)
    most = len(row.parameters)
    if tuple(names[:most]) != row.parameters or needed & set(names[most:]):
        yield f"{row.place} takes ({', '.join(names)})"
    if isinstance(function, ast.AsyncFunctionDef) and not row.may_wait:
        yield f"{row.place} is a coroutine function"


def _parameters(function: Function) -> tuple[list[str], set[str]]:
    """Return all of them, and those without which the function cannot be called."""
    given = function.args
    plain = [each.arg for each in (*given.posonlyargs, *given.args)]
    needed = set(plain[: len(plain) - len(given.defaults)])
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    needed |= {each.arg for each, default in pairs if default is None}
    variable = [each.arg for each in (given.vararg,) if each]
    rest = [each.arg for each in given.kwonlyargs]
    more = [each.arg for each in (given.kwarg,) if each]
    return [*plain, *variable, *rest, *more], needed


def _statements(node: Any) -> Iterator[Any]:
    """Return what is in the body of a module or class, also below conditions."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt | ast.ExceptHandler):
            yield each
            if not isinstance(each, Function | ast.ClassDef):
                yield from _statements(each)


def _named(node: Any) -> set[str]:
    """Return the names that a statement gives to something."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {each.asname or each.name for each in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
    }


def _names(module: str) -> list[str]:
    path = module.replace(".", "/")
    return [f"{path}/__init__.py"] if module == "salt" else [f"{path}.py", f"{path}/__init__.py"]


def _source(root: str, module: str) -> str | None:
    for name in _names(module):
        path = os.path.join(root, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
    return None
