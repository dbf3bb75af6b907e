"""
Upgrade steps: programs of the administrator between the old version and the new one.

The step ``3008-rename-grains`` runs when an update comes to 3008 or beyond from before it. The
packages are in place then, the minion has not restarted, and no job runs. However far an update
goes, all the steps on its way run, in their order; those that have run are in its record.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from ..errors import CommandError
from ..prepare import resolution
from ..record.update import Update
from .context import Means

log = logging.getLogger("salt-safeupdate")

# A version and, if there is one, a name. What editors and package managers leave is none.
_NAME = re.compile(r"(\d+(?:\.\d+)*)(?:-[\w-]+)?")


def due(directory: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names of the steps between two sets of packages, in their order."""
    before, after = _versions(old, new)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match and os.access(os.path.join(directory, name), os.X_OK):
            version = _parts(match[1])
            if _parts(before) < version <= _parts(after):
                found.append((version, name))
    return [name for _, name in sorted(found)]


def run(means: Means, update: Update) -> tuple[Update, str]:
    """Run what has not run in this update; return the record, and why one failed, or nothing."""
    directory, done = means.settings.steps_dir, list(update.extra.get("steps", ()))
    versions = _versions(update.versions_from, update.versions_to)
    for name in due(directory, update.versions_from, update.versions_to):
        if name in done:
            continue
        try:
            argv = (os.path.join(directory, name), *versions)
            means.command(argv, timeout=means.settings.step_timeout)
        except CommandError as err:
            return update, f"The upgrade step failed: {err}."
        log.info("upgrade step %s has run", name)
        done.append(name)
        update = means.note(update, steps=list(done))
    return update, ""


def _versions(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    """Return what Salt was and what it is; of the own packages, those of Salt are named so."""
    names = [name for name in sorted(new) if "salt" in name and name in old]
    return (old[names[0]], new[names[0]]) if names else ("", "")


def _parts(version: str) -> list[tuple[bool, int, str]]:
    """Return what versions are sorted by, without the epoch: the name of a step has none."""
    return resolution.key(version)[1]
