"""The end of an update: remove what only the change needed, and keep the way back."""

from __future__ import annotations

import logging
from dataclasses import replace

from ..errors import SafeUpdateError
from ..host import copy_names, linked_copy
from ..prepare import revisions
from ..prepare.staging import Staging
from ..prepare.upgrade_steps import Steps, of_salt
from ..record.phase import CHANGING, Phase
from ..record.update import Update
from . import servers, steps, watchdog
from .context import Context

log = logging.getLogger("salt-safeupdate")


def end(context: Context, update: Update, phase: Phase, reason: str) -> Update:
    """Give the record its final phase, when nothing else has to be done."""
    clean(context, update)
    if phase is Phase.FAILED:
        update, completed = complete(context, update)
        reason = sentences(reason, completed)
        servers.start_again(context, update)
    log.info("update %s: %s (%s)", update.id, phase.value, reason or "-")
    update = context.store.save(update.advance(phase, reason=reason))
    tidy(context, update)
    return update


def complete(context: Context, update: Update) -> tuple[Update, str]:
    """
    After a failure, let the package manager finish, and have the service run as before. Idempotent.

    The host is then as it would be without this extension. Return the record, and what was done.
    """
    if update.kind != "update" or update.of_extension or update.of_build or update.by_boot:
        return update, ""
    said, changing = [], {phase.value for phase in CHANGING}
    try:
        rows = context.store.history(update.id)
        been = [row.phase for row in rows if row.phase != Phase.FAILED.value]
        if changing.intersection(been):
            said.append(_finish_packages(context, update))
        # A watch has started it often enough.
        if been[-1:] and been[-1] in changing:
            said.append(_start(context, update))
    except SafeUpdateError as err:
        log.error("update %s: the host may be left half done: %s", update.id, err)
    done = replace(update, progress=replace(update.progress, completed=True))
    return done, " ".join(filter(None, said))


def _finish_packages(context: Context, update: Update) -> str:
    own = sorted({*update.versions_from, *update.versions_to})
    context.let_manager_end()
    broken = context.unfinished(own)
    if not broken:
        return ""
    now, left = context.repair(own)
    names = ", ".join(broken)
    if left:
        return f"The package manager cannot complete {', '.join(left)} either."
    versions = ", ".join(f"{name} {version}" for name, version in sorted(now.items()))
    return f"The package manager has completed {names} since (installed: {versions})."


def _start(context: Context, update: Update) -> str:
    """Start the service if it ran before and has been stopped since."""
    if not update.ran_before or context.services.state(context.unit).running:
        return ""
    context.services.start(context.unit)
    return f"{context.unit} was started."


def sentences(reason: str, more: str) -> str:
    """Return the text with more sentences, if there are any."""
    return f"{reason.removesuffix('.')}. {more.lstrip()}" if more else reason


def clean(context: Context, update: Update) -> None:
    """Remove what only the change needed. Idempotent."""
    for remove in (_release, _lock_versions, _remove_copies):
        # A failure of one must not prevent the others.
        try:
            remove(context, update)
        except (SafeUpdateError, OSError) as err:
            log.error("update %s left something behind: %s", update.id, err)


def _release(context: Context, update: Update) -> None:
    unit = context.unit
    if update.phase is Phase.INSTALLING or context.inhibitor.inhibited(unit):
        context.inhibitor.release(unit)


def _lock_versions(context: Context, update: Update) -> None:
    locked = list(update.staged.version_locked)
    if locked and context.manager is not None:
        context.manager.lock_versions(locked, True)


def _remove_copies(context: Context, update: Update) -> None:
    linked_copy.remove(copy_names.path(root, update.id) for root in update.code.roots)


def tidy(context: Context, update: Update) -> None:
    """Keep the way back from here, and nothing else. Idempotent."""
    try:
        if update.kind == "update":
            update = steps.settle(context, update)
        replaced = update.phase is Phase.COMMITTED and not update.of_extension
        if replaced and update.kind == "update":
            version = of_salt(update.versions_from, update.versions_to)[1]
            Steps(context.settings.steps_dir, context.store).been_through(version)
        # The way back from a slot is a slot.
        if replaced and not update.of_build and update.versions_to != update.versions_from:
            context.revisions.keep(update)
        ended = update.phase in (Phase.COMMITTED, Phase.ROLLED_BACK)
        if update.kind == "update" and ended and context.installer is not None:
            Staging(context.settings.state_dir, context.store, context.installer).drop()
        if update.of_build and ended and context.slots is not None:
            forward = replaced and update.request is not None and not update.request.back
            left = revisions.files(update.way_back.files) if forward else ()
            context.slots(update).tidy(left)
        # A repair by hand needs them.
        by_hand = update.phase is Phase.FAILED and update.progress.supervisors is not None
        other = context.store.latest()
        waits = other is not None and not other.phase.final
        needed = {update.id if by_hand else "", other.id if other and waits else ""}
        context.revisions.prune(needed - {""})
        if not waits:
            watchdog.disarm(context.settings, context.watchdogs)
    except (SafeUpdateError, OSError) as err:
        log.error("update %s left something behind: %s", update.id, err)
