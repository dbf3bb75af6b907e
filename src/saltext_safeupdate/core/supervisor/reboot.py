"""
Updates that the next boot activates.

When such an update has nothing more to do before the boot, its record says so and the
supervisor ends. The supervisor of the next boot continues.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..errors import SafeUpdateError
from ..record.parts import ASKING
from ..record.update import Update
from . import watchdog
from .context import Context

log = logging.getLogger("salt-safeupdate")


def is_asked_for(context: Context, *, back: bool = False) -> bool:
    """Tell whether the settings let us request the reboot."""
    wanted = context.settings.transactional_reboot
    return wanted in ("always", "rollback" if back else "always")


def why_not_activated(context: Context, update: Update) -> str:
    """Return why the next boot would not start what was installed, or an empty text."""
    installer = context.installer
    try:
        snapshots = context.activation.snapshots
    except SafeUpdateError as err:
        return str(err)
    own = sorted({*update.versions_from, *update.versions_to})
    if installer is not None and installer.installed(own) == update.versions_to:
        return ""
    default, running = snapshots.default(), snapshots.running()
    if default == running:
        return (
            f"Snapshot {default['number']} runs and is the default, and the update is not in it: "
            "the host went back to it, by itself or by hand. Nothing of the update is in effect."
        )
    return (
        f"Snapshot {default['number']} is the default now, and the update is not in it: a later "
        "transaction did not start from it ('snapshot=continue' does). Nothing of the update is "
        "in effect."
    )


def wait(context: Context, update: Update, *, back: bool = False) -> Update:
    """
    Leave the rest to the supervisor of the next boot. Idempotent.

    It requests the reboot if the settings say so.
    """
    # A supervisor that was killed while it asked may not have got through.
    asked = update.awaits_boot and update.boot.reboot != ASKING
    asks = not asked and is_asked_for(context, back=back)
    # The later supervisors have their own attempts.
    update = context.note(
        update,
        boot=replace(
            update.boot,
            awaits=update.this_boot,
            reboot=ASKING if asks else update.boot.reboot,
        ),
        progress=replace(update.progress, supervisors=0),
    )
    context.watchdogs.rest(watchdog.unit(context.settings))
    if asks:
        update = context.note(update, boot=replace(update.boot, reboot=_ask(context)))
    return update


def _ask(context: Context) -> str:
    try:
        return context.activation.snapshots.reboot()
    except SafeUpdateError as err:
        log.error("the reboot could not be requested: %s", err)
        return f"the reboot could not be requested: {err}"
