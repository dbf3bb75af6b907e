"""
Put this extension and all others into the tree of a slot while it is made.

A complete slot never changes, so nothing is carried into it later.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import tempfile

from ..errors import CommandError, SafeUpdateError
from ..extensions import interpreter, ourselves
from ..extensions.beside_salt import load_staged, stage_for_build
from ..extensions.carry import carry_extensions
from ..extensions.distributions import Unowned
from ..host.command import Run
from . import wheels
from .layout import PROGRAM, is_below

log = logging.getLogger(__name__)

_INFO = re.compile(r"([A-Za-z0-9._]+)-[^-]+\.(?:dist|egg)-info")
_MINOR = re.compile(r"python3\.(\d+)")


def furnish_from(
    tree: str,
    home: str,
    program: str | None,
    *,
    unowned: Unowned,
    run: Run,
    look: Run,
    strict: bool,
) -> None:
    """
    Put in the extensions of the Salt that *program* runs: *home* is where this extension is.

    *unowned* returns the given files that no package owns. *run* runs programs of this host, *look*
    runs programs of the build. Raise SafeUpdateError if an extension
    cannot come along; if not *strict*, only if this one cannot. Raise OSError.
    """
    with tempfile.TemporaryDirectory(dir=os.path.dirname(tree)) as directory:
        if program is not None and _same_interpreter(program, os.path.join(tree, PROGRAM)):
            # The extensions of that interpreter also serve the Salt of this tree.
            furnish(tree, home, os.path.join(directory, "none"), look)
            return
        try:
            staged, problems = stage_for_build(
                program,
                directory,
                names=_names(tree),
                minor=_minor(tree),
                unowned=unowned,
                run=run,
            )
            if problems:
                raise SafeUpdateError(
                    f"{' '.join(problems)} Nothing was changed. Or set 'safeupdate:extensions' to "
                    "'report'."
                )
            furnish(tree, home, staged or directory, look)
        except SafeUpdateError as err:
            if strict:
                raise
            log.error("a slot is made without the extensions of this host: %s", err)
            furnish(tree, home, os.path.join(directory, "none"), look)


def _same_interpreter(one: str, other: str) -> bool:
    # A virtual environment has its own modules: the target of its interpreter does not count.
    found = interpreter.named_by(one)
    return found is not None and found == interpreter.named_by(other)


def _names(tree: str) -> list[str]:
    """Return the names of the distributions in a tree, by their metadata."""
    places = ("lib", "lib/python3*/site-packages", "extras-*")
    found = [each for place in places for each in glob.glob(f"{glob.escape(tree)}/{place}/*-info")]
    matches = [_INFO.fullmatch(os.path.basename(path)) for path in found]
    return [match[1] for match in matches if match]


def _minor(tree: str) -> int | None:
    """Return the minor version of Python of a tree that has its own."""
    found = [_MINOR.fullmatch(name) for name in glob.glob("python3*", root_dir=f"{tree}/lib")]
    return next((int(match[1]) for match in found if match), None)


def furnish(tree: str, home: str, staged: str, look: Run) -> None:
    """
    Put in the extensions: *home* is where this extension is, *staged* where the others are staged.

    The interpreter of a onedir has to load them. A build of wheels must contain all except this
    extension, because the interpreter belongs to the host, and nothing is installed for it. Raise
    SafeUpdateError if an extension cannot come along, and OSError.
    """
    python = interpreter.named_by(os.path.join(tree, PROGRAM))
    if python is not None and is_below(tree, python):
        try:
            carry_extensions(python, look, staged, tree)
            ourselves.carry(python, look, home, {}, tree)
        except CommandError as err:
            raise SafeUpdateError(
                f"The interpreter of the build does not work here: {err}. Nothing was changed; "
                "use a build for this machine."
            ) from err
        return
    library = os.path.join(tree, wheels.LIBRARY)
    others = [each for each in load_staged(staged) if not each.ours]
    missing = sorted(each.name for each in others if not _is_in(library, each.modules))
    if missing:
        raise SafeUpdateError(
            f"The build does not have {', '.join(missing)}, which pip has installed for Salt on "
            "this host. Nothing was changed; add wheels of that to the build."
        )
    if not _is_in(library, (ourselves.PACKAGE,)):
        _copy(home, library)


def _is_in(library: str, modules: tuple[str, ...]) -> bool:
    """Tell whether modules can be found in a directory by their names."""
    places = [os.path.join(library, *module.split(".")) for module in modules]
    return all(os.path.isdir(each) or glob.glob(f"{glob.escape(each)}.*") for each in places)


def _copy(home: str, library: str) -> None:
    """Copy this extension, with the metadata by which Salt's loader finds it."""
    for source in (home, *ourselves.metadata(os.path.dirname(home))):
        target = os.path.join(library, os.path.basename(source))
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
