"""
Back to what was there before: the packages, what they may have spoilt, and the service.

Every step may be done again. Until the old version is in place, the new one is kept down.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import replace

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host import backup
from ..host.files import remove, write_atomic
from ..prepare import revisions
from ..record.update import Phase, Update
from . import reboot
from .bring import bring_along
from .context import Means, torn
from .watch import Watch

log = logging.getLogger("salt-safeupdate")

# Seconds that the jobs of a minion which is to be rolled back get to end.
_JOBS_TIMEOUT = 10.0


def quarantine(means: Means, update: Update, reason: str) -> None:
    """Keep what the update brought from being installed again."""
    new = {
        name: version
        for name, version in update.versions_to.items()
        if version != update.versions_from.get(name)
    }
    means.store.quarantine(new, update.id, reason)


def begin(means: Means, update: Update, reason: str) -> Update:
    """Decide for it. The versions that are left are not to be installed again by themselves."""
    quarantine(means, update, reason)
    # It gets as many supervisors as the update did.
    extra = {**update.extra, "supervisors": 0}
    return means.store.save(update.advance(Phase.ROLLING_BACK, reason=reason, extra=extra))


def carry_out(means: Means, update: Update) -> tuple[Update, str]:
    """
    Do it; return the record, and why the old minion did not come up, or nothing.

    Where it takes a boot that has not been yet, the record says so and nothing else is done.
    Raises CommandError or VerificationError where the packages cannot be put back.
    """
    if update.by_boot:
        return _go_back(means, update)
    unit = means.settings.service
    runs = update.unit.get("active") not in ("inactive", "failed")
    if "returned" not in update.extra:
        _stop(means)
        # No scriptlet starts it before all is in place.
        means.services.inhibit(unit)
        _put_back(means, update)
        bring_along(means, update)
        state = means.services.state(unit)
        update = means.note(
            replace(update, deadline=means.clock() + means.settings.restart_timeout),
            returned=means.clock(),
            old_pid=state.pid,
            old_invocation=state.invocation,
            old_report=Watch(means, update).report(),
        )
    watch = Watch(means, update)
    means.services.release(unit)
    reason = ""
    if runs:
        state = means.services.state(unit)
        if state.enabled.startswith("masked"):
            means.services.set_enabled(unit, "disabled")
        if state.running and not watch.is_new(state):
            # Something has started it, before all was in place.
            means.services.begin_restart(unit)
        elif not state.running:
            means.services.start(unit)
        reason = watch.comes_up()
    means.services.set_enabled(unit, update.unit.get("enabled", ""))
    return update, reason


def _go_back(means: Means, update: Update) -> tuple[Update, str]:
    """Have the next boot start the former snapshot, and look at the minion that it starts."""
    snapshots, former = means.snapshots, update.extra["snapshot"]
    if snapshots is None:
        raise SafeUpdateError("This is no transactional system any more.")
    if "returned" not in update.extra:
        means.let_end()
        snapshots.go_back(former)
        left = snapshots.pending
        if left and update.extra.get("backup"):
            # What the two snapshots share; each has an /etc of its own.
            backup.restore(backup.load(update.extra["backup"]))
        update = means.note(update, returned=means.clock(), left=left)
    if snapshots.default() != former:
        raise VerificationError("Another snapshot was made the default since.")
    if snapshots.pending:
        return reboot.wait(means, update, back=True), ""
    reason = ""
    if update.extra["left"] or "booted" in update.extra:
        means.services.set_enabled(means.settings.service, update.unit.get("enabled", ""))
        if update.unit.get("active") not in ("inactive", "failed"):
            reason = Watch(means, update).comes_up()
    return update, reason


def _stop(means: Means) -> None:
    unit = means.settings.service
    bypass = os.path.join(means.settings.run_dir, "bypass")
    if not means.jobs.wait_exclusive(_JOBS_TIMEOUT, clock=means.clock, sleep=means.sleep):
        # They do not end: what is recorded of them is taken up again by the old minion.
        with contextlib.suppress(OSError):
            write_atomic(bypass, "")
    means.drain.exclusive()
    means.services.release(unit)
    if means.services.state(unit).running:
        try:
            means.services.end(unit)
        except CommandError as err:
            # Its packages are put back all the same: it is restarted in the end.
            log.error("%s could not be stopped: %s", unit, err)
    remove(bypass)


def _put_back(means: Means, update: Update) -> None:
    packages, old = means.packages, update.versions_from
    if packages is None:
        raise SafeUpdateError("No package manager is there any more.")
    means.let_end()
    in_place = packages.installed(list(old)) == old and not packages.unfinished(list(old))
    if not in_place or torn(packages, update):
        packages.install(revisions.files(update.extra["old_files"]))
    now, left = means.repair(list(old))
    if now != old or left:
        raise VerificationError(
            f"The packages of before are not in place (installed: {now or 'none'}; half done: "
            f"{', '.join(left) or 'none'})."
        )
    if update.extra.get("backup"):
        backup.restore(backup.load(update.extra["backup"]))


def by_hand(update: Update, reason: str) -> str:
    """Say what there is to do where the rollback failed."""
    if update.by_boot:
        number = update.extra["snapshot"]["number"]
        return (
            f"{update.reason} And the rollback failed: {reason} By hand: run 'transactional-update "
            f"rollback {number}' and reboot. Nothing else is done by itself."
        )
    old = revisions.files(update.extra.get("old_files", ()))
    what = " ".join(file.path for file in old) or "the version of before"
    return (
        f"{update.reason} And the rollback failed: {reason} By hand: install {what} with the "
        "package manager, then start the service. Nothing else is done by itself."
    )
