"""
Stage the extensions for the interpreter of the updated minion.

A new package may bring another prefix or another Python minor version, and so an empty
directory for the packages that ``salt-pip`` or ``pip`` had installed. Therefore all extensions
are staged in advance, while there is a network. Each is copied if its files also work with the new
Python; otherwise pip fetches a build for that Python.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from ..errors import CommandError, SafeUpdateError
from ..host import room
from ..host.command import Run
from ..host.files import write_atomic
from . import interpreter
from .distributions import Extension, Problem, Unowned, inventory, normal_name
from .requires import python_of, unfit

log = logging.getLogger("salt-safeupdate")

_FETCH_TIMEOUT = 600.0
_LIST = "extensions.json"


def stage_beside_salt(
    program: str | None,
    directory: str,
    *,
    files: Iterable[str] = (),
    unowned: Unowned,
    run: Run,
) -> tuple[str, list[str]]:
    """
    Stage the extensions of the Salt that *program* runs.

    Return the directory that they are in, empty if they cannot be staged at all; and for each that
    cannot be staged, why and what to do. *files* are the new packages of Salt; without them, its
    Python is taken to stay the same.
    """
    python = interpreter.named_by(program) if program else None
    if python is None:
        return "", []
    try:
        found, minor = inventory(python, run, unowned), python_of(files, run)
        return _staged(found, directory, program=python, minor=minor, run=run)
    except (OSError, SafeUpdateError) as err:
        log.error("the extensions of Salt's Python cannot be staged: %s", err)
        return "", []


def stage_for_build(
    program: str | None,
    directory: str,
    *,
    names: Collection[str],
    minor: int | None,
    unowned: Unowned,
    run: Run,
) -> tuple[str, list[str]]:
    """
    Do the same for a build that has distributions of these *names*, and Python 3.*minor*.

    None for *minor* means that the Python does not change. Raises SafeUpdateError and OSError.
    """
    python = interpreter.named_by(program) if program else None
    if python is None:
        return "", []
    found = inventory(python, run, unowned, names)
    return _staged(found, directory, program=python, minor=minor, run=run)


def _staged(
    found: Sequence[Extension], directory: str, *, program: str, minor: int | None, run: Run
) -> tuple[str, list[str]]:
    target = os.path.join(directory, "extensions")
    short = room.shortage(directory, _needed(found, minor), having=target)
    if short:
        reason = f"There is no room to stage the extensions of Salt's Python: {short}."
        log.error("%s", reason)
        return "", [reason]
    problems = unfit(found, minor)
    problems += stage(found, target, program=program, python=minor, run=run)
    return target, [f"{each.reason} {each.fix}" for each in problems]


def stage(
    extensions: Sequence[Extension],
    directory: str,
    *,
    program: str,
    python: int | None,
    run: Run,
) -> list[Problem]:
    """
    Stage the extensions in *directory* for Python 3.*python*; return those that cannot be.

    *program* is the running interpreter. Its pip fetches builds for another minor version.
    None for *python* means that it does not change. The present files are copied in any case,
    for a rollback. Idempotent; the list of the extensions is written last.
    """
    problems = []
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for each in extensions:
            _copy_files(each.place, staged_path(directory, each, each.python), each.files)
            if not each.fits_any and python not in (None, each.python):
                target = staged_path(directory, each, python)
                problems += _fetch(each, python, target, program, run)
        os.sync()
        listed = [asdict(each) for each in extensions]
        write_atomic(os.path.join(directory, _LIST), json.dumps(listed, indent=1))
    except OSError as err:
        raise SafeUpdateError(
            f"The extensions of Salt's Python could not be staged in {directory}: {err}. Nothing "
            "was changed; check the free space there."
        ) from err
    return problems


def load_staged(directory: str) -> list[Extension]:
    """Return the extensions that are staged in *directory*; none if nothing was staged."""
    try:
        with open(os.path.join(directory, _LIST), encoding="utf-8") as file:
            listed = json.load(file)
    except FileNotFoundError:
        return []
    return [
        Extension(**{**each, "files": tuple(each["files"]), "modules": tuple(each["modules"])})
        for each in listed
    ]


def staged_path(directory: str, each: Extension, python: int) -> str:
    """Return where the files of an extension for Python 3.*python* are staged."""
    return os.path.join(directory, f"3.{python}", normal_name(each.name))


def _needed(extensions: Iterable[Extension], python: int | None) -> int:
    """Return how many bytes staging them takes at most; a fetched build is as large as its copy."""
    total = 0
    for each in extensions:
        copies = 1 if each.fits_any or python in (None, each.python) else 2
        for name in each.files:
            with contextlib.suppress(FileNotFoundError):
                total += copies * os.path.getsize(os.path.join(each.place, name))
    return total


def _copy_files(source: str, target: str, files: Iterable[str]) -> None:
    for name in files:
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(os.path.join(source, name), path)


def _fetch(each: Extension, python: int, target: str, program: str, run: Run) -> list[Problem]:
    """Have pip unpack a build for Python 3.*python* at *target*; return what is wrong."""
    if os.path.isdir(target):
        return []
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-compile")
    where = ("--only-binary=:all:", f"--python-version=3.{python}", f"--target={part}")
    argv = (program, "-m", "pip", "install", *options, *where, f"{each.name}=={each.version}")
    try:
        run(argv, timeout=_FETCH_TIMEOUT)
    except CommandError as err:
        said = [line for line in err.stderr.splitlines() if line.startswith("ERROR")]
        return [
            Problem(
                each.name,
                f"{each.name} {each.version} is compiled for Python 3.{each.python}, and no build "
                f"of it for Python 3.{python} could be fetched: "
                f"{said[-1] if said else err.reason}.",
                f"Install a version of {each.name} that exists for both, or remove it.",
            )
        ]
    os.rename(part, target)
    return []
