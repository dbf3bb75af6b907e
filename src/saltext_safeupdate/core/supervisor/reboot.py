"""
Where the next boot activates what was installed.

An update that carries a ``snapshot``, the one to go back to, is such a one. When it has
nothing more to do before the boot it says so in its record, and the supervisor ends; that of
the next boot goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import SafeUpdateError
from ..record.update import Update
from . import watchdog

if TYPE_CHECKING:
    from .context import Means

log = logging.getLogger("salt-safeupdate")


def pending(means: Means) -> bool:
    """Tell whether the next boot starts another snapshot than the running one."""
    return means.snapshots is not None and means.snapshots.pending


def lost(means: Means, update: Update) -> str:
    """Return why the next boot would not start what was installed, or nothing."""
    packages, snapshots = means.packages, means.snapshots
    if packages is None or snapshots is None:
        return "This is no transactional system any more."
    own = sorted({*update.versions_from, *update.versions_to})
    if packages.installed(own) == update.versions_to:
        return ""
    default, running = snapshots.default(), snapshots.running()
    if default == running:
        return (
            f"Snapshot {default['number']} runs and is the default, and the update is not in it: "
            "the host went back, or was made to. Nothing of the update is in effect."
        )
    return (
        f"Snapshot {default['number']} is the default now, and the update is not in it: a later "
        "transaction did not start from it ('snapshot=continue' does). Nothing of the update is "
        "in effect."
    )


def wait(means: Means, update: Update, *, back: bool = False) -> Update:
    """
    Leave the rest to the supervisor of the next boot; idempotent.

    The reboot is asked for where the settings say so.
    """
    again = update.awaits_boot
    # The next supervisors have their own attempts.
    update = means.note(update, awaits=update.this_boot, supervisors=0)
    means.services.rest(watchdog.UNIT)
    if not again and asks(means, back=back):
        update = means.note(update, reboot=_reboot(means))
    return update


def asks(means: Means, *, back: bool = False) -> bool:
    """Tell whether the reboot is asked for by us."""
    return means.settings.transactional_reboot in ("always", "rollback" if back else "always")


def _reboot(means: Means) -> str:
    try:
        return means.snapshots.reboot() if means.snapshots is not None else ""
    except SafeUpdateError as err:
        log.error("the reboot could not be asked for: %s", err)
        return f"the reboot could not be asked for: {err}"
