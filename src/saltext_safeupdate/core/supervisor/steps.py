"""
Upgrade steps: programs of the administrator between the old version and the new one.

The step ``3008-rename-grains`` runs when an update comes to 3008 or beyond from before it. The
packages are in place then, the minion has not restarted, and no job runs. However far an update
goes, all the steps on its way run, in their order; those that have run are in its record. The
minion keeps the version of the last committed update: a host that was moved by hand since catches
up.
"""

from __future__ import annotations

import logging

from ..errors import CommandError, VerificationError
from ..prepare.upgrade_steps import Steps
from ..record.update import Update
from .context import Context

log = logging.getLogger("salt-safeupdate")


def run(context: Context, update: Update) -> tuple[Update, str]:
    """Run what has not run in this update; return the record, and why one failed, or nothing."""
    steps, done = Steps(context.settings.steps_dir, context.store), list(update.progress.steps)
    versions = steps.versions(update.versions_from, update.versions_to)
    try:
        steps.verify()
    except VerificationError as err:
        return update, f"No upgrade step has run: {err}"
    for step in steps.due(update.versions_from, update.versions_to):
        if step.name in done:
            continue
        try:
            context.command((step.path, *versions), timeout=context.settings.step_timeout)
        except CommandError as err:
            return update, f"The upgrade step failed: {err}."
        log.info("upgrade step %s has run", step.name)
        done.append(step.name)
        update = context.note_progress(update, steps=tuple(done))
    return update, ""
