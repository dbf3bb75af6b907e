"""The interpreter that a minion runs with, asked by programs that need its own library only."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import CommandError
from ..host.command import Run

_TIMEOUT = 120.0
_COMPILE_TIMEOUT = 600.0
# Bytes of a program that are read to find its interpreter.
_HEAD = 2048
_SHELLS = ("sh", "bash", "dash")
# A shell may start the interpreter: one next to the program, as in the onedir packages of the Salt
# project, whose directory can be moved; or one whose path does not fit into the first line.
_BESIDE = re.compile(
    r'^"exec" "\$\(dirname "\$\(readlink -f "\$0"\)"\)(/[^"$`]+)" "\$0" "\$@"$', re.MULTILINE
)
_LONG = re.compile(r"""^'''exec' "?(/[^"$`]+?)"? "\$0" "\$@"$""", re.MULTILINE)


def _text(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "programs", f"{name}.py")
    with open(path, encoding="utf-8") as file:
        return file.read()


# Read now: an update may remove the directory that they are in.
_INVENTORY, _PLACES, _IMPORTING, _LOADING, _ENGINES, _COMPILING = map(
    _text, ("listing", "places", "importing", "loading", "engines", "compiling")
)


def named_by(program: str) -> str | None:
    """Return the interpreter that a Python script names in its first lines, or None."""
    try:
        with open(program, "rb") as file:
            head = file.read(_HEAD).decode(errors="replace")
    except OSError:
        return None
    if not head.startswith("#!"):
        return None
    words = head[2:].partition("\n")[0].split()
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    if words and os.path.basename(words[0]) in _SHELLS:
        return _started_by_shell(program, head)
    return words[0] if words and os.path.isabs(words[0]) else None


def _started_by_shell(program: str, head: str) -> str | None:
    if found := _BESIDE.search(head):
        return os.path.normpath(os.path.dirname(os.path.realpath(program)) + found[1])
    found = _LONG.search(head)
    return found[1] if found else None


def distributions(python: str, run: Run) -> dict[str, Any]:
    """Return its version, its paths, and all distributions with their files."""
    return _json(python, run, _INVENTORY)


def places(python: str, run: Run, tree: str = "/") -> dict[str, Any]:
    """
    Return its version, its paths, and only the names of its distributions. Quick.

    Only paths in *tree* count, whatever the interpreter says. Raise CommandError.
    """
    told = _json(python, run, _PLACES)
    try:
        where = os.path.normpath(str(told["purelib"]))
        found = {
            "python": [int(each) for each in told["python"]],
            "names": list(map(str, told["names"])),
            "paths": [str(each) for each in told["paths"] if _is_in(tree, str(each))],
            "purelib": where,
        }
    except (LookupError, TypeError, ValueError) as err:
        raise CommandError((python,), f"does not say what it has: {err!r}") from err
    if not _is_in(tree, where):
        raise CommandError((python,), f"wants its modules in {where}, outside of {tree}")
    return found


def _is_in(tree: str, path: str) -> bool:
    above = os.path.join(os.path.realpath(tree), "")
    return os.path.isabs(path) and os.path.realpath(path).startswith(above)


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


def compiled(
    python: str, run: Run, left_out: str, directories: Iterable[str], take: Callable[[str], object]
) -> None:
    """Have *take* called with each line of the byte code of the modules in *directories*."""
    argv = (python, "-I", "-c", _COMPILING, left_out, *directories)
    run(argv, timeout=_COMPILE_TIMEOUT, keep=take)


def loads(python: str, run: Run, package: str) -> bool:
    """Tell whether Salt's loader finds the package there, and can load it."""
    try:
        run((python, "-I", "-c", _LOADING, package), timeout=_TIMEOUT)
    except CommandError as err:
        if err.returncode is None:
            raise
        return False
    return True


def lacks_engine(python: str, run: Run, config: str, name: str) -> bool:
    """
    Tell whether the configuration of a minion does not name an engine.

    *config* is the path of its file. It is not so if Salt cannot tell. Raises CommandError.
    """
    answer = run((python, "-I", "-c", _ENGINES, config, name), timeout=_TIMEOUT, ok=None)
    return answer.stdout.splitlines()[-1:] == ["not listed"]


def _json(python: str, run: Run, text: str) -> dict[str, Any]:
    argv = (python, "-I", "-c", text)
    said = run(argv, timeout=_TIMEOUT).stdout
    try:
        return dict(json.loads(said))
    except (TypeError, ValueError, RecursionError) as err:
        raise CommandError(argv, f"says what cannot be read ({type(err).__name__})") from err
