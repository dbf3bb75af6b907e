"""Builds of Salt that a master keeps for its minions: each with its manifest."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from ...core.errors import InputError, version_text
from ...core.slots import describe


def described(
    directory: str,
    version: object,
    files: object,
    *,
    python: str = "",
    machine: str = "",
    test: bool = False,
) -> dict[str, Any]:
    """
    Make sure that files of a directory have the manifest of a build.

    Return ``result``, ``changes`` and ``comment`` of a state. Raise SafeUpdateError if a minion
    would refuse the build.
    """
    paths = _paths(directory, files)
    wanted = {"version": version_text("version", version), "python": python, "machine": machine}
    path = describe.path_of(paths, **wanted)
    ret: dict[str, Any] = {"result": True, "changes": {}, "comment": f"{path} describes it."}
    if describe.is_described(paths, **wanted):
        return ret
    old = "another one" if os.path.exists(path) else ""
    ret["changes"] = {path: {"old": old, "new": "manifest"}}
    if test:
        return {**ret, "result": None, "comment": f"{path} would be written."}
    describe.describe(paths, **wanted)
    return {**ret, "comment": f"{path} was written."}


def _paths(directory: str, files: object) -> Sequence[str]:
    """Return the files that are meant, in order. Raise InputError if one is not there."""
    listed = [files] if isinstance(files, str) else files
    if not os.path.isabs(directory) or not isinstance(listed, Sequence) or not listed:
        raise InputError(
            "A build needs the absolute path of a directory, and 'files' in it. Nothing was done."
        )
    found: set[str] = set()
    for each in map(str, listed):
        here = glob.glob(each, root_dir=directory)
        if not here or os.path.basename(each) != each:
            raise InputError(
                f"There is no file {each} in {directory}. Nothing was done; put it there first."
            )
        found.update(here)
    return sorted(os.path.join(directory, name) for name in found)
