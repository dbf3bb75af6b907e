"""
Put this extension, and what else lives beside Salt, into the tree of a slot while it is made.

A slot does not change any more when it is complete, so nothing is carried into it later.
"""

from __future__ import annotations

import glob
import os
import shutil

from ..errors import SafeUpdateError
from ..extensions import interpreter, ourselves
from ..extensions.beside_salt import load_staged
from ..extensions.carry import carry_extensions
from ..host.command import Run
from . import wheels
from .store import PROGRAM, is_below


def furnish(tree: str, home: str, staged: str, run: Run) -> None:
    """
    Put them there: *home* is where this extension is, *staged* where the others are staged.

    The interpreter of a onedir is asked whether it can load them. Wheels have to be of all but this
    extension: the interpreter is the host's, and nothing is put beside it. Raise SafeUpdateError if
    something cannot come along, and OSError.
    """
    python = interpreter.named_by(os.path.join(tree, PROGRAM))
    if python is not None and is_below(tree, python):
        carry_extensions(python, run, staged)
        ourselves.carry(python, run, home, {})
        return
    library = os.path.join(tree, wheels.LIBRARY)
    others = [each for each in load_staged(staged) if not each.ours]
    missing = sorted(each.name for each in others if not _is_in(library, each.modules))
    if missing:
        raise SafeUpdateError(
            f"The build does not have {', '.join(missing)}, which pip has installed beside Salt on "
            "this host. Nothing was changed; add wheels of that to the build."
        )
    if not _is_in(library, (ourselves.PACKAGE,)):
        _copy(home, library)


def _is_in(library: str, modules: tuple[str, ...]) -> bool:
    """Tell whether modules can be found in a directory by their names."""
    places = [os.path.join(library, *module.split(".")) for module in modules]
    return all(os.path.isdir(each) or glob.glob(f"{glob.escape(each)}.*") for each in places)


def _copy(home: str, library: str) -> None:
    """Copy this extension, with the metadata that Salt's loader finds it by."""
    for source in (home, *ourselves.metadata(os.path.dirname(home))):
        target = os.path.join(library, os.path.basename(source))
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
