"""After the installation: put the staged extensions in place for the new Salt, and import them."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..errors import VerificationError
from ..host.command import Run
from ..host.files import sync_directory
from . import interpreter
from .beside_salt import load_staged, staged_path
from .distributions import Extension, normal_name

_EXTRAS = "extras-"


def carry_extensions(python: str, run: Run, directory: str, tree: str = "/") -> list[str]:
    """
    Make the extensions that are staged in *directory* importable with *python*.

    Return the names of those that were put there. An extension that is there already and can be
    imported is left alone. Nothing is put outside of *tree*. Needs no network. Idempotent. If some
    cannot be imported, it raises VerificationError after it has tried all.
    """
    put, failed = [], []
    listed = load_staged(directory)
    where = interpreter.places(python, run, tree) if listed else {"names": []}
    there = {normal_name(name) for name in where["names"]}
    for each in listed:
        # Metadata are copied last. Without them, importable files may be only half of it.
        if (
            normal_name(each.name) in there
            and not interpreter.importable(python, run, each.modules)[1]
        ):
            continue
        source = staged_path(directory, each, each.python if each.fits_any else where["python"][1])
        if not os.path.isdir(source):
            failed.append(f"{each.name} {each.version} (no build for this Python was staged)")
            continue
        _put(source, _place(each, where))
        put.append(each.name)
        bad = interpreter.importable(python, run, each.modules)[1]
        if bad:
            failed.append(f"{each.name} {each.version} ({'; '.join(bad)})")
    if failed:
        raise VerificationError(
            f"{python} cannot import these extensions: {', '.join(failed)}. "
            f"Install a version that fits with '{python} -m pip install'."
        )
    return put


def _place(each: Extension, where: dict[str, Any]) -> str:
    """Return the directory for *each*: salt-pip's, if it was there and there is one now."""
    if os.path.basename(each.place).startswith(_EXTRAS):
        for path in where["paths"]:
            if os.path.basename(path).startswith(_EXTRAS):
                return str(path)
    return str(where["purelib"])


def _put(source: str, place: str) -> None:
    """Copy the staged files. Metadata come last, so a copy that was cut off looks incomplete."""
    names = [
        os.path.relpath(os.path.join(directory, name), source)
        for directory, _, files in os.walk(source)
        for name in files
    ]
    for name in sorted(names, key=lambda name: ("-info" + os.sep in name, name)):
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.part"
        shutil.copy2(os.path.join(source, name), part)
        os.replace(part, path)
    sync_directory(place)
