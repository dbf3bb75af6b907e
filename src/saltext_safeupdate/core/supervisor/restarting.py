"""
From the installation to the new minion: one function for each phase on that way.

Each may be repeated, and returns the record in its next phase.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..errors import SafeUpdateError
from ..generations import own_tree
from ..host import backup, room
from ..host.service import ServiceState
from ..host.wait import Wait
from ..record.phase import Phase
from ..record.update import Update
from . import beside_jobs, leaving, neighbours, reboot, rollback, servers, steps, watch
from .bring import bring_along
from .context import Context
from .ending import end
from .verdict import Verdict
from .watch import Watch

log = logging.getLogger("salt-safeupdate")

_POLL_INTERVAL = 0.05


def deliver(context: Context, update: Update) -> Update:
    """Wait for the end of the job that requested or installed it, and for its return."""
    # On a transactional system the administrator decides when to reboot: nobody has to wait. And a
    # minion that is handed over keeps its jobs.
    if (update.kind == "restart" and context.hands_over) or servers.are_down(update):
        # A return that is not delivered yet is sent again when its master is there.
        pass
    elif not update.by_boot or reboot.is_asked_for(context):
        if not _is_delivered(context, update):
            log.warning("the return of job %s has not reached its master yet", update.jid)
        found = context.outcome(update.jid) if update.jid else None
        if update.kind == "update" and update.request is None and found is not None and found.ended:
            update = context.note_progress(update, master=found.answered)
    if update.by_boot:
        phase = Phase.WAITING_FOR_BOOT
    elif update.kind == "restart":
        phase = Phase.RESTARTING
    else:
        phase = Phase.REPAIRING if update.progress.unfinished else Phase.STEPPING
    return context.store.save(update.advance(phase))


def _is_delivered(context: Context, update: Update) -> bool:
    """
    Wait, within a time limit, until no job runs and the master has the return of this one.

    If jobs run during the update, only wait for the job that installed.
    """
    timeout = context.settings.return_timeout
    wait = Wait(timeout, context.monotonic)
    # The job that installed holds one of these locks until its end.
    lock = context.locks.packages if update.beside_jobs else context.locks.jobs
    while not lock.try_exclusive():
        if wait.over:
            return False
        context.sleep(_POLL_INTERVAL)
    while context.undelivered(update.jid):
        # The engine sends it again. If somebody has killed the minion, the next one does.
        if wait.over or not context.has_engine():
            return False
        context.sleep(_POLL_INTERVAL)
    return True


def repair(context: Context, update: Update) -> Update:
    """Let the package manager finish the packages that the job left half done."""
    now, left = context.repair(list(update.versions_from))
    if now == update.versions_from and not left:
        left = context.mixed(update)
    left += [name for name in update.progress.again if name not in now]
    left += _left_behind(update.versions_from, now)
    return context.store.save(
        update.advance(
            Phase.STEPPING,
            versions_to=now,
            reason=update.reason if left else f"{update.reason}; completed before the restart",
            progress=replace(update.progress, unfinished=tuple(left)),
        )
    )


def _left_behind(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the packages that were not changed although they had one version with the others."""
    if len(set(before.values())) != 1 or len(set(now.values())) == 1:
        return []
    return [name for name, version in now.items() if before.get(name) == version]


def step(context: Context, update: Update) -> Update:
    """Put everything that belongs to the new version in place, and run the upgrade steps."""
    if update.by_boot:
        return _step_after_boot(context, update)
    # All packages are in place: a daemon that started before that has old and new code in it.
    update = servers.note_again(context, update)
    problem = bring_along(context, update)
    if problem or update.progress.unfinished:
        problem = problem or update.reason
        if update.has_way_back and (update.progress.again or not stays_down(context, update)):
            return rollback.begin(context, update, problem, to_blame=not _lacked_room(update))
    update, problem = steps.run(context, update)
    if problem and update.has_way_back:
        return rollback.begin(context, update, problem)
    if problem:
        log.error("update %s continues without a way back: %s", update.id, problem)
    told = (problem or update.reason, steps.left_out(context, update))
    reason = ". ".join(filter(None, (told[0].removesuffix("."), told[1]))) if told[1] else told[0]
    return context.store.save(update.advance(Phase.RESTARTING, reason=reason))


def _lacked_room(update: Update) -> bool:
    """
    Tell whether packages are half done and the disk has no room for another copy of the code.

    A package manager needs that much, and has removed what it began. Its error may not name it.
    """
    roots = update.code.roots
    try:
        return bool(update.progress.unfinished) and any(
            room.free(root) < room.size(root) / 2 for root in roots
        )
    except OSError as err:
        log.warning("cannot tell how much room there is: %s", err)
        return False


def _step_after_boot(context: Context, update: Update) -> Update:
    """Run the steps while the minion of the boot already runs: it cannot wait for them."""
    update, problem = steps.run(context, update)
    if problem:
        return rollback.begin(context, update, problem)
    former = update.former
    if update.progress.steps:
        # The running minion started before the steps.
        now, _ = watch.former(context)
        # The report from before the boot still counts if the running minion has not reported yet.
        former = replace(now, took=former.took, report=now.report or former.report)
    return context.store.save(update.advance(Phase.RESTARTING, former=former))


def wait_for_boot(context: Context, update: Update) -> Update:
    """Wait for the boot that activates the update; end the update if that boot would not."""
    _mark(update)
    context.inhibitor.release(context.unit)
    update, _ = _note_former(context, update)
    problem = reboot.why_not_activated(context, update)
    if problem:
        if update.missed_boot:
            # It was booted, and something other than this supervisor went back from it.
            rollback.quarantine(context, update, problem)
        return end(context, update, Phase.FAILED, problem)
    if context.activation.pending:
        return reboot.wait(context, update)
    boot = replace(update.boot, booted=context.clock())
    return context.store.save(update.advance(Phase.STEPPING, boot=boot))


def restart(context: Context, update: Update) -> Update:
    """Restart the service, unless a new minion already runs."""
    unit = context.unit
    _mark(update)
    obstacle = context.services.obstacle(unit)
    if obstacle and update.kind == "update" and not stays_down(context, update):
        return end(context, update, Phase.FAILED, _by_hand(unit, obstacle))
    update, problem = servers.restart(context, update)
    if not (problem and update.has_way_back):
        update, other = neighbours.restart(context, update)
        problem = problem or other
    if problem and update.has_way_back:
        return rollback.begin(context, update, problem)
    _let_jobs_end(context, update)
    # Release it even if it does not look inhibited: systemd may not have been told.
    if update.kind == "update":
        context.inhibitor.release(unit)
    update, before = _note_former(context, update)
    if stays_down(context, update):
        if before.running:
            context.services.stop(unit)
    elif not Watch(context, update).is_new(before):
        if before.enabled.startswith("masked"):
            # It runs although it is masked: the mask is put back when it runs again.
            context.services.set_enabled(unit, "disabled")
        if before.running:
            idle = _prepare(context, update)
            try:
                context.services.begin_restart(unit)
            except SafeUpdateError:
                # That minion continues to run, and may get jobs.
                if idle:
                    context.generations.note_busy(idle)
                raise
        else:
            context.services.start(unit)
    return context.store.save(
        update.advance(Phase.WATCHING, watched=watch.until(context, watch.timeout(context, update)))
    )


def _let_jobs_end(context: Context, update: Update) -> None:
    """Wait for the jobs of a minion that is removed, as long as a stop waits for them."""
    if not _is_removed(context, update):
        return
    locks, settings = context.locks, context.settings
    locks.drain.exclusive()
    ended = locks.jobs.wait_exclusive(
        settings.stop_timeout, clock=context.monotonic, sleep=context.sleep
    )
    if not ended:
        log.warning("jobs did not end within %g s; the minion is removed", settings.stop_timeout)
    wait = Wait(settings.return_timeout, context.monotonic)
    while ended and context.owed() and context.has_engine() and not wait.over:
        context.sleep(_POLL_INTERVAL)


def _leave_nothing(context: Context, update: Update) -> None:
    """Remove what only a minion needs: the guard of its stop, and the copies of its code."""
    try:
        context.remove_guard()
        own_tree.sweep(update.code.roots, everything=True)
    except (SafeUpdateError, OSError) as err:
        log.error("update %s left something behind: %s", update.id, err)


def _prepare(context: Context, update: Update) -> str:
    """Prepare the restart; return the minion that is noted as idle, or an empty text."""
    if (update.kind == "restart" or update.beside_jobs) and context.hands_over:
        # The stop guard would take a holder of the exclusive lock for one that waited for jobs.
        context.let_jobs_start()
        return ""
    return _note_idle(context, update)


def _note_idle(context: Context, update: Update) -> str:
    """
    Note that the minion has no job any more, if so: its jobs that began and did not end are dead.

    The job of the update is resumed if it was killed while it installed. Return the minion's main
    process; empty if it may still have jobs.
    """
    running = context.generations.serving()
    if running is None or not context.locks.jobs.try_exclusive():
        return ""
    context.generations.note_idle(running.process, update.jid)
    return running.process


def _by_hand(unit: str, obstacle: str) -> str:
    return (
        f"The new version is installed, but {unit} cannot be restarted: {obstacle}. The old one "
        "still runs from memory: restart it by hand, or start its container again. Until then, "
        "code that it loads from the disk is new."
    )


def _mark(update: Update) -> None:
    """Note the backed-up files as the update has left them: others may write to them from now."""
    if update.way_back.backup:
        try:
            backup.mark(backup.load(update.way_back.backup))
        except SafeUpdateError as err:
            log.error("update %s: %s", update.id, err)


def _note_former(context: Context, update: Update) -> tuple[Update, ServiceState]:
    """
    Record once which minion has to end: it is the same one after a crash.

    Return the record, and the current state of the service.
    """
    former, state = watch.former(context)
    if update.progress.restarted is None:
        progress = replace(update.progress, restarted=context.clock())
        update = context.note(update, former=former, progress=progress)
    return update, state


def judge(context: Context, update: Update) -> Update:
    """Watch the new minion; commit, roll back, or fail."""
    unit = context.unit
    if stays_down(context, update):
        if _is_removed(context, update):
            _leave_nothing(context, update)
        else:
            context.services.set_enabled(unit, update.unit.get("enabled", ""))
        reason = update.reason or "The service does not run, as before."
        if not update.ran_before and context.has_engine():
            reason += (
                f" But a minion runs outside of {unit}, and continues with its old code: restart "
                "it in the way in which it was started."
            )
        return end(context, update, Phase.COMMITTED, reason)
    back = update.has_way_back
    silent = update.kind == "restart" and leaving.is_asked(context.store)
    watched = Watch(context, update, patient=not back, silent=silent)
    verdict, said, _ = watched.proves_healthy() if update.kind == "update" else watched.comes_up()
    context.services.set_enabled(unit, update.unit.get("enabled", ""))
    if verdict.good:
        problem = servers.come_up(context, update) or neighbours.comes_up(context, update)
        verdict, said = (Verdict.ILL, problem) if problem else (verdict, said)
    if verdict.good:
        _quarantine_what_was_left(context, update)
        update = beside_jobs.have_it_leave(context, update)
        return end(context, update, Phase.COMMITTED, " ".join(filter(None, (update.reason, said))))
    if back and verdict is not Verdict.REFUSED:
        return rollback.begin(context, update, said, proven=verdict is not Verdict.SILENT)
    if update.kind == "update" and not back:
        said += f" There is no way back: {update.way_back.missing or 'not known'}."
    return end(context, update, Phase.FAILED, said)


def _quarantine_what_was_left(context: Context, update: Update) -> None:
    """After a rollback by request, keep state runs from installing that version again."""
    if update.request is not None and update.request.back:
        left = dict(set(update.versions_from.items()) - set(update.versions_to.items()))
        context.store.quarantine(left, update.id, update.reason)


def stays_down(context: Context, update: Update) -> bool:
    """Tell whether the minion did not run before, or was removed."""
    return not update.ran_before or _is_removed(context, update)


def _is_removed(context: Context, update: Update) -> bool:
    """
    Tell whether its packages are gone, or the package with the unit.

    Nobody requests an update to have no minion: then the new version does not start.
    """
    if update.kind != "update" or update.request is not None or not update.versions_from:
        return False
    had_unit = bool(update.unit.get("file"))
    return not update.versions_to or (had_unit and context.services.unit_file(context.unit) is None)
