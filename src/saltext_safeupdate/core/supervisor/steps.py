"""
Upgrade steps: programs of the administrator between the old version and the new one.

The step ``3008-rename-grains`` runs when an update reaches 3008 or newer from an older version. The
packages are in place then, the minion has not restarted, and no job runs. All steps between the two
versions run, in their order; the record lists the ones that have run. The minion stores the version
of the last committed update, so a host that was updated by hand since then catches up.

``3008-rename-grains.before`` runs while nothing has changed and jobs run.
``3008-rename-grains.revert`` runs if the update is taken back: by the watch, by a request, or
because its installation did not begin. A program is noted before it begins, so a program that was
killed while it ran is taken back as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..prepare.upgrade_steps import BEFORE, Step, Steps
from ..record.facts import STEPS_BEGUN, Begun
from ..record.phase import Phase
from ..record.update import Update
from .context import Context

log = logging.getLogger("salt-safeupdate")


def run(context: Context, update: Update) -> tuple[Update, str]:
    """Run the steps of this update that have not run; return the record, and a failure if any."""
    steps, done = _steps(context), update.progress.steps
    versions = steps.versions(update.versions_from, update.versions_to)
    try:
        steps.verify()
    except VerificationError as err:
        return update, f"No upgrade step has run: {err}"
    for step in steps.due(update.versions_from, update.versions_to):
        if step.name in done:
            continue
        try:
            _begin(context, update, step, versions)
        except CommandError as err:
            return update, f"The upgrade step failed: {err}."
        update = _note(context, update, step.name)
    return update, ""


def before(context: Context, update: Update, targets: Mapping[str, str]) -> tuple[Update, bool]:
    """
    Run the programs that come before an update to these versions.

    Return the record, and whether any has run. No lock is held, so the update may be cancelled
    meanwhile. Raise SafeUpdateError if a program fails.
    """
    steps, ran = _steps(context), False
    versions = steps.versions(update.versions_from, targets)
    for step in steps.before(update.versions_from, targets):
        if step.name in update.progress.steps:
            continue
        steps.verify()
        update, ran = context.reread(update), True
        if update.phase.final:
            break
        try:
            _begin(context, update, step, versions)
        except CommandError as err:
            raise SafeUpdateError(
                f"The upgrade step failed: {err}. Nothing was changed on the minion, and the "
                "programs that ran before the update are taken back."
            ) from err
        context.locks.update.exclusive()
        try:
            update = context.reread(update)
            update = update if update.phase.final else _note(context, update, step.name)
        finally:
            context.locks.update.release()
    return update, ran


def left_out(context: Context, update: Update) -> str:
    """Name the steps that should have run before a job installed the packages, and have not."""
    if update.request is not None:
        return ""
    due = _steps(context).before(update.versions_from, update.versions_to)
    names = ", ".join(step.name for step in due)
    if not names:
        return ""
    return (
        f"Steps that run before an update have not run, because a job installed the packages: "
        f"{names}. Use 'safeupdate.update' next time."
    )


def overtake(context: Context, update: Update) -> bool:
    """Tell whether a minion already runs while steps that ran after the packages are taken back."""
    begun = _begun(context, update)
    if begun is None or all(name.endswith(BEFORE) for name in begun.programs):
        return False
    return bool(_steps(context).taking_back(begun.programs))


def take_back(context: Context, update: Update) -> Update:
    """
    Take back the steps that this update has begun; return the record, which is not written.

    A failure does not stop the rest: the record names it.
    """
    begun, steps = _begun(context, update), _steps(context)
    if begun is None:
        return update
    try:
        steps.verify()
        found: Sequence[Step] = steps.taking_back(begun.programs)
    except VerificationError as err:
        found, begun = (), replace(begun, failed=(f"The upgrade steps are not taken back: {err}",))
        log.error("update %s: %s", update.id, err)
    for step in found:
        if step.name not in begun.undone:
            begun = _undo(context, begun, step)
    new = [name for name in begun.undone if name not in update.progress.steps]
    progress = replace(update.progress, steps=(*update.progress.steps, *new))
    problems = [text for text in begun.failed if text not in update.reason]
    return replace(update, progress=progress, reason=" ".join([update.reason, *problems]).strip())


def settle(context: Context, update: Update) -> Update:
    """Leave no steps half done by an update that has ended; return its record. Idempotent."""
    begun = _begun(context, update)
    if begun is None:
        return update
    if update.phase is not Phase.ROLLED_BACK:
        if _changed(context, update):
            _steps(context).ended(begun.programs)
        else:
            back = take_back(context, update)
            update = back if back == update else context.store.save(back)
    context.store.drop_fact(STEPS_BEGUN)
    return update


def _steps(context: Context) -> Steps:
    return Steps(context.settings.steps_dir, context.store)


def _begun(context: Context, update: Update) -> Begun | None:
    """Return the steps that this update has begun, or None."""
    begun = context.store.fact(STEPS_BEGUN)
    return begun if begun is not None and begun.update == update.id else None


def _begin(context: Context, update: Update, step: Step, versions: tuple[str, str]) -> None:
    """Note that the step begins, and run it. Raise CommandError if it fails."""
    begun = _begun(context, update) or Begun(update=update.id, versions=versions)
    if step.name not in begun.programs:
        programs = (*begun.programs, step.name)
        context.store.set_fact(STEPS_BEGUN, replace(begun, programs=programs, versions=versions))
    context.command((step.path, *versions), timeout=context.settings.step_timeout)


def _note(context: Context, update: Update, name: str) -> Update:
    """Note that the step has run."""
    log.info("upgrade step %s has run", name)
    return context.note_progress(update, steps=(*update.progress.steps, name))


def _undo(context: Context, begun: Begun, step: Step) -> Begun:
    """Run a program that takes another one back, once; return the new note."""
    failed = begun.failed
    try:
        context.command(
            (step.path, *reversed(begun.versions)), timeout=context.settings.step_timeout
        )
        log.info("upgrade step %s has run", step.name)
    except CommandError as err:
        problem = f"The upgrade step failed on the way back: {err}. Check what it has left behind."
        log.error("%s", problem)
        failed = (*failed, problem)
    begun = replace(begun, undone=(*begun.undone, step.name), failed=failed)
    context.store.set_fact(STEPS_BEGUN, begun)
    return begun


def _changed(context: Context, update: Update) -> bool:
    """Tell whether other packages are installed than before the update; true if unknown."""
    installer, old = context.installer, update.versions_from
    try:
        return installer is not None and installer.installed(list(old)) != old
    except SafeUpdateError as err:
        # Leave the effects of the steps, rather than undo them while a new version is installed.
        log.error("update %s: its upgrade steps are left as they are: %s", update.id, err)
        return True
