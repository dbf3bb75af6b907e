"""
Back to the state before: the packages, the files that they may have spoilt, and the service.

Every step may be repeated. Until the old version is in place, the new one is kept down.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host import backup, backup_paths
from ..host.backup import Manifest
from ..host.files import remove, write_atomic
from ..packages.manager import Installer
from ..prepare import revisions
from ..record.facts import RESTART
from ..record.parts import Owed
from ..record.phase import Phase
from ..record.update import Update
from . import beside_jobs, dependents, neighbours, probe, reboot, servers, steps, watch
from .bring import bring_along
from .context import Context
from .ending import end, sentences
from .verdict import Verdict
from .watch import Watch

log = logging.getLogger("salt-safeupdate")

# Seconds in which the jobs of a minion that is rolled back may end.
_JOBS_TIMEOUT = 10.0
# A directory next to the backup.
_PRESENT = "present"
# How many files the reason names at most.
_MOST_NAMED = 10


def quarantine(context: Context, update: Update, reason: str) -> None:
    """Keep the version that the update installed from being installed again."""
    context.store.quarantine(update.brought, update.id, reason)


def begin(
    context: Context, update: Update, reason: str, *, proven: bool = True, to_blame: bool = True
) -> Update:
    """
    Decide for it. The abandoned versions must not be installed again automatically.

    Unless it is *proven* that the new minion is at fault, the old one first has to reach its
    master. *to_blame* is False if no version is at fault, such as for a full disk.
    """
    # The rollback gets as many supervisors as the update did.
    progress = replace(update.progress, supervisors=0, silent=not proven)
    decided = update.advance(Phase.ROLLING_BACK, reason=reason, progress=progress)
    # Write both or neither: with only one, a later supervisor may judge the minion again and keep
    # it.
    blamed = update.brought if proven and to_blame else None
    return context.store.save(decided, quarantined=blamed)


def carry_on(context: Context, update: Update) -> Update:
    """
    Do the rest of the rollback; if a boot is missing, the record says so and nothing else is done.

    Raise CommandError or VerificationError if the packages cannot be put back.
    """
    if not update.has_way_back:
        return end(context, update, Phase.FAILED, by_hand(update, "Nothing is secured."))
    back = _through_boot if update.by_boot else _through_packages
    update, problem = back(context, update)
    if problem:
        return end(context, update, Phase.FAILED, by_hand(update, problem))
    if update.awaits_boot:
        return update
    reason = update.reason
    if update.progress.silent:
        reason += _quarantine_if_heard(context, update)
    return end(context, update, Phase.ROLLED_BACK, reason)


def _quarantine_if_heard(context: Context, update: Update) -> str:
    """Quarantine a silent version if its master hears the old minion; otherwise say why not."""
    if update.ran_before and probe.reaches_master(context, context.settings.restart_timeout):
        quarantine(context, update, update.reason)
        return ""
    return (
        " The master does not hear the old minion either, so this version may be installed again: "
        "check the master, and the network between."
    )


def _through_packages(context: Context, update: Update) -> tuple[Update, str]:
    """Return the record, and why the old minion did not come up, or an empty text."""
    unit = context.unit
    if update.beside_jobs:
        beside_jobs.take_over(context)
    if beside_jobs.is_kept(context, update):
        return _below_the_old_one(context, update)
    if update.progress.returned is None:
        update = dependents.note(context, update, [unit])
        _stop(context, update)
        update = servers.stop(context, neighbours.stop(context, update), at_once=True)
        # No scriptlet starts it before everything is in place.
        _inhibit(context, update)
        newer = _put_back(context, update)
        update = servers.note_again(context, update)
        bring_along(context, update)
        update = steps.take_back(context, update)
        former, _ = watch.former(context)
        update = replace(
            update,
            reason=sentences(update.reason, newer),
            progress=replace(update.progress, returned=context.clock()),
            former=replace(former, took=update.former.took),
        )
        watched = watch.until(context, watch.timeout(context, update))
        update = context.note(update, watched=watched)
    judge = Watch(context, update)
    context.inhibitor.release(unit)
    stuck = [servers.start(context, update), neighbours.start(context, update)]
    problem = ""
    if update.ran_before:
        state = context.services.state(unit)
        if state.enabled.startswith("masked"):
            context.services.set_enabled(unit, "disabled")
        if state.running and not judge.is_new(state):
            # Something started it before everything was in place.
            context.services.begin_restart(unit)
        elif not state.running:
            context.services.start(unit)
        update, problem = _came_up(update, judge)
    context.services.set_enabled(unit, update.unit.get("enabled", ""))
    _try_again(*stuck)
    problem = problem or servers.come_up(context, update)
    return update, problem or neighbours.comes_up(context, update)


def _below_the_old_one(context: Context, update: Update) -> tuple[Update, str]:
    """
    Go back while the old minion runs from its own tree: the change does not affect it.

    Return the record, and what else did not come up, or an empty text.
    """
    if update.code.servers:
        # They may have been started already.
        context.inhibitor.release(context.unit)
        update = servers.stop(context, update, at_once=True)
    _inhibit(context, update)
    newer = _put_back(context, update)
    update = servers.note_again(context, update)
    bring_along(context, update)
    update = steps.take_back(context, update)
    context.inhibitor.release(context.unit)
    context.services.set_enabled(context.unit, update.unit.get("enabled", ""))
    _try_again(servers.start(context, update))
    progress = replace(update.progress, returned=context.clock())
    update = replace(update, reason=sentences(update.reason, newer), progress=progress)
    return update, servers.come_up(context, update)


def _try_again(*failed: CommandError | None) -> None:
    """Raise the first error, after everything that could be started was started."""
    for err in failed:
        if err is not None:
            raise err


def _came_up(update: Update, judge: Watch) -> tuple[Update, str]:
    """Wait for the old minion; return the record, and why it did not come up, or an empty text."""
    verdict, said, _ = judge.comes_up()
    if verdict is Verdict.STOPPED:
        return replace(update, reason=sentences(update.reason, said)), ""
    return update, "" if verdict.good else said


def _through_boot(context: Context, update: Update) -> tuple[Update, str]:
    """Let the next boot start the former snapshot, and watch the minion that it starts."""
    snapshots, former = context.activation.snapshots, update.way_back.snapshot
    assert former is not None  # noqa: S101 - that the way back leads through a boot says so
    if update.progress.returned is None:
        context.let_manager_end()
        snapshots.go_back(former)
        left = snapshots.pending and not _old_runs(context, update)
        # The files that both snapshots share; each has its own /etc.
        newer = _restore(update, _present(update)) if left else ""
        update = context.note(
            update,
            reason=sentences(update.reason, newer),
            progress=replace(update.progress, returned=context.clock()),
            boot=replace(update.boot, left=left),
        )
    if snapshots.default() != former:
        raise VerificationError("Another snapshot has become the default since then.")
    if snapshots.pending and update.boot.left is not False:
        return reboot.wait(context, update, back=True), ""
    if steps.overtake(context, update):
        # They run although the boot has already started the minion.
        context.store.set_fact(RESTART, Owed(reason="upgrade steps were taken back"))
    update, problem = steps.take_back(context, update), ""
    if update.boot.left or update.boot.booted is not None:
        context.services.set_enabled(context.unit, update.unit.get("enabled", ""))
        if update.ran_before:
            update, problem = _came_up(update, Watch(context, update))
    return update, problem


def _old_runs(context: Context, update: Update) -> bool:
    """Tell whether the new version was never booted: then only changes of others wait."""
    own = sorted({*update.versions_from, *update.versions_to})
    return context.manager is not None and context.manager.running(own) == update.versions_from


def _stop(context: Context, update: Update) -> None:
    """Stop the new minion. The one before it is left alone if it still serves."""
    unit = context.unit
    bypass = os.path.join(context.settings.run_dir, "bypass")
    jobs = context.locks.jobs
    if beside_jobs.outside(context):
        with contextlib.suppress(OSError):
            write_atomic(bypass, "unit\n")
    elif not jobs.wait_exclusive(_JOBS_TIMEOUT, clock=context.monotonic, sleep=context.sleep):
        # They do not end: the old minion recovers them from the ledger.
        with contextlib.suppress(OSError):
            # The jobs of earlier minions are not affected.
            write_atomic(bypass, "unit\n" if update.beside_jobs else "")
    if not beside_jobs.outside(context):
        context.locks.drain.exclusive()
    context.inhibitor.release(unit)
    if context.services.state(unit).running:
        try:
            context.services.end(unit)
        except CommandError as err:
            # Its packages are put back nevertheless: it is restarted at the end.
            log.error("%s could not be stopped: %s", unit, err)
    remove(bypass)


def _inhibit(context: Context, update: Update) -> None:
    if update.of_build:
        # A slot has no scriptlets, and changes what the unit starts.
        return
    try:
        context.inhibitor.inhibit(context.unit)
    except (CommandError, OSError) as err:
        # A minion that a scriptlet starts too early is restarted at the end.
        log.error("%s", err)


def _put_back(context: Context, update: Update) -> str:
    """Put back the packages and the files; name the files that others have changed since."""
    installer, old = context.installer, update.versions_from
    if installer is None:
        raise SafeUpdateError("The package manager is gone.")
    present = _present(update)
    context.let_manager_end()
    if not _in_place(context, installer, old) or context.mixed(update):
        installer.install(revisions.files(update.way_back.files))
    now, left = context.repair(list(old))
    if now != old or left:
        raise VerificationError(
            f"The previous packages are not in place (installed: {now or 'none'}; half done: "
            f"{', '.join(left) or 'none'})."
        )
    return _restore(update, present)


def _in_place(context: Context, installer: Installer, old: Mapping[str, str]) -> bool:
    """Tell whether the previous versions are installed; false if that is unknown."""
    try:
        return installer.installed(list(old)) == old and not context.unfinished(list(old))
    except SafeUpdateError as err:
        # This may become readable when the files of the update are gone.
        log.error("cannot tell what is installed: %s", err)
        return False


def _present(update: Update) -> Manifest | None:
    """Copy the files as they are when the rollback begins: packages may change them."""
    if not update.way_back.backup:
        return None
    directory = os.path.join(os.path.dirname(update.way_back.backup), _PRESENT)
    try:
        return backup.save(update.way_back.paths, directory)
    except SafeUpdateError as err:
        # The rollback must not fail because of this.
        log.error("update %s: changes by others could not be copied: %s", update.id, err)
        return None


def _restore(update: Update, present: Manifest | None) -> str:
    """Put back the files; name the ones that others have changed after the update did."""
    if not update.way_back.backup:
        return ""
    before = backup.load(update.way_back.backup)
    lost = servers.bereft(update, before, present)
    kept = [path for path in update.way_back.kept if path not in lost]
    done = backup.restore(
        before,
        present=present,
        keep=(*backup_paths.configuration(update.way_back.paths), *backup_paths.followed(kept)),
        grows=backup_paths.followed(servers.grows(update)),
        gone=servers.taken_away(update, before, present),
        suffix=f".safeupdate-{update.id}",
    )
    said = ""
    if done.newer:
        said += f" Changed by others since, and left as they are: {_named(done.newer)}."
    if done.aside:
        said += f" Changed by others, put back, and kept as: {_named(done.aside)}."
    return said


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_hand(update: Update, reason: str) -> str:
    """Say what to do by hand after a failed rollback."""
    if update.way_back.snapshot is not None:
        number = update.way_back.snapshot["number"]
        return (
            f"{update.reason} And the rollback failed: {reason} By hand: run 'transactional-update "
            f"rollback {number}' and reboot. Nothing else is done automatically."
        )
    if update.of_build:
        return (
            f"{update.reason} And the rollback failed: {reason} By hand: {_to_the_slot(update)}, "
            "then run 'systemctl daemon-reload', if there is systemd, and start the service. "
            "Nothing else is done automatically."
        )
    old = revisions.files(update.way_back.files)
    what = " ".join(file.path for file in old) or "the previous version"
    how = "Salt's pip" if update.of_extension else "the package manager"
    return (
        f"{update.reason} And the rollback failed: {reason} By hand: install {what} with {how}, "
        "then start the service. Nothing else is done automatically."
    )


def _to_the_slot(update: Update) -> str:
    """Say how to get back to the previous slot, or to what the unit starts without a slot."""
    old = [file for file in revisions.files(update.way_back.files) if file.sha256]
    if not old:
        return (
            "remove the drop-in '40-safeupdate-slot.conf' of the minion's unit, or its link "
            "'active' without systemd"
        )
    return f"point the minion's link 'active' to {os.path.join(old[0].path, 'tree')}"
