"""
Upgrade steps: programs of the administrator between the old version and the new one.

The step ``3008-rename-grains`` runs when an update comes to 3008 or beyond from before it. The
packages are in place then, the minion has not restarted, and no job runs. However far an update
goes, all the steps on its way run, in their order; those that have run are in its record.
"""

from __future__ import annotations

import logging
import os

from ..errors import CommandError
from ..prepare import upgrade_steps
from ..record.update import Update
from .context import Context

log = logging.getLogger("salt-safeupdate")


def run(context: Context, update: Update) -> tuple[Update, str]:
    """Run what has not run in this update; return the record, and why one failed, or nothing."""
    directory, done = context.settings.steps_dir, list(update.progress.steps)
    versions = upgrade_steps.of_salt(update.versions_from, update.versions_to)
    for name in upgrade_steps.due(directory, update.versions_from, update.versions_to):
        if name in done:
            continue
        try:
            argv = (os.path.join(directory, name), *versions)
            context.command(argv, timeout=context.settings.step_timeout)
        except CommandError as err:
            return update, f"The upgrade step failed: {err}."
        log.info("upgrade step %s has run", name)
        done.append(name)
        update = context.note_progress(update, steps=tuple(done))
    return update, ""
