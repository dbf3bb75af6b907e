"""
The first half of an update by request: everything until the installation.

Nothing of the minion changes before ``installing``. Until then the request may be cancelled
or superseded at any moment, so the record is only written with the ``update`` lock, and read
again before each write. Every step may be repeated.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import CommandError, RecordError, SafeUpdateError
from ..extensions.beside_salt import stage_beside_salt
from ..generations import replaced
from ..generations.activation import Activation
from ..host import room
from ..host.background import in_background
from ..packages.manager import Installer
from ..packages.request import File
from ..prepare import known, resolution, revisions
from ..prepare.resolution import Resolver
from ..prepare.revisions import Previous
from ..prepare.staging import Staging
from ..prepare.upgrade_steps import Steps
from ..record.phase import Phase
from ..record.update import Update
from . import beside_jobs, drain, no_return, probe, servers, steps, watchdog
from .context import Context

log = logging.getLogger("salt-safeupdate")

# Attempts of a download, and seconds between them.
_DOWNLOAD_ATTEMPTS = 3
_DOWNLOAD_INTERVAL = 5.0
# Seconds in which the master of the old minion has to answer a probe. Only then it has to answer
# the new minion, too.
_MASTER_TIMEOUT = 15.0


def prepare(context: Context, update: Update) -> Update:
    """Bring a request to the moment of its installation, with all locks held, or to its end."""
    try:
        with in_background():
            update = _stage_all(context, update)
        return _wait(context, update) if update.phase is Phase.WAITING else update
    except RecordError:
        raise
    except (SafeUpdateError, OSError) as err:
        return _to(context, update, Phase.FAILED, reason=unchanged(str(err)))


def unchanged(problem: str) -> str:
    """Return the problem as a sentence, and say that nothing was changed."""
    sentence = problem.rstrip().removesuffix(".") + "."
    return sentence if "othing was changed" in sentence else f"{sentence} Nothing was changed."


def _stage_all(context: Context, update: Update) -> Update:
    """Check the request, and put everything that it needs on disk, while jobs run."""
    if update.phase is Phase.REQUESTED:
        update = _to(context, update, Phase.CHECKING)
    if update.phase is Phase.CHECKING:
        update = _check(context, update)
    if update.phase is Phase.STAGING:
        update = _to(context, update, Phase.WAITING, **_stage(context, update))
    return update


def _check(context: Context, update: Update) -> Update:
    installer, waiting = _installer(context), context.activation.waiting
    obstacle = context.services.obstacle(context.unit)
    if obstacle:
        raise SafeUpdateError(
            f"{context.unit} could not be restarted on the new version: {obstacle}. Give it a "
            "service or a keeper, or update the image of the container"
        )
    if waiting:
        raise SafeUpdateError(
            f"{waiting} An update would not start from it: reboot first, or make the running "
            "snapshot the default again"
        )
    elsewhere = update.of_extension or update.of_build or context.activation.by_boot
    if not elsewhere and room.is_read_only(room.PROGRAMS):
        # A hook of apt may change that, but we install with dpkg alone.
        raise SafeUpdateError(
            f"The file system of {room.PROGRAMS} is read-only. Mount it with "
            "'mount -o remount,rw', and request the update again, or use 'pkg.latest' in a state"
        )
    update = _before(context, installer, update)
    if update.phase.final:
        return update
    targets = update.versions_to or _resolved(context, installer, update)
    if resolution.reached(installer.installed(update.code.own), targets):
        reason = "It is installed; nothing changed."
        return _to(context, update, Phase.COMMITTED, versions_to=targets, reason=reason)
    return _to(context, update, Phase.STAGING, versions_to=targets)


def _before(context: Context, installer: Installer, update: Update) -> Update:
    """Run the steps that come before the update; they may change which versions are available."""
    assert update.request is not None  # noqa: S101
    resolver, ran = _resolver(context, installer, update), not update.of_extension
    while ran and not update.phase.final:
        targets = update.versions_to or resolver.hoped(update.request)
        update, ran = steps.before(context, update, targets)
        if ran and context.manager is not None and not update.versions_to:
            try:
                context.manager.refresh()
            except CommandError as err:
                log.warning("the index of packages could not be refreshed: %s", err)
    return update


def _resolved(context: Context, installer: Installer, update: Update) -> dict[str, str]:
    """Find the versions for a request that left this to the supervisor."""
    assert update.request is not None  # noqa: S101
    resolver = _resolver(context, installer, update)
    resolved = resolver.resolve(update.request)
    resolver.refuse(resolved)
    return dict(resolved.targets)


def _resolver(context: Context, installer: Installer, update: Update) -> Resolver:
    return Resolver(
        installer=installer,
        own=update.code.own,
        store=context.store,
        revisions=context.revisions,
        staged=_staging(context, installer).staged(),
        steps_dir=context.settings.steps_dir,
    )


def _stage(context: Context, update: Update) -> dict[str, Any]:
    """Put the new packages and the old ones on disk; return the new values of the record."""
    installer, manager = _installer(context), context.manager
    snapshot, altered = None, ""
    previous = _previous(context, update)
    if update.staged.files:
        # The process that made the request has made the slot.
        new = revisions.files(update.staged.files)
        installer.verify(new)
        _refuse_unknown(context, update, new)
    elif previous is not None:
        new = revisions.files(previous.files)
        installer.verify(new)
        snapshot = _former_snapshot(context.activation, previous)
    else:
        new, altered = _download(context, installer, update.versions_to)
        _refuse_unknown(context, update, new)
    way_back = context.revisions.secure(
        update.id, sorted(update.versions_from), update.way_back.paths
    )
    # If a slot was changed after it was made, the administrator does not want to return to it.
    leaves = update.of_build and update.request is not None and update.request.back
    if way_back.missing and context.settings.rollback == "required" and not leaves:
        raise SafeUpdateError(
            f"There would be no way back: {way_back.missing}. Fix that, or set "
            "'safeupdate:rollback' to 'optional'."
        )
    # A slot contains its extensions.
    alone = update.of_extension or update.of_build
    extensions, unstaged = ("", []) if alone else _stage_beside(context, update, new)
    if unstaged and context.settings.extensions == "stop":
        raise SafeUpdateError(f"{' '.join(unstaged)} Or set 'safeupdate:extensions' to 'report'.")
    locked = manager.version_locked(update.code.own) if manager is not None else ()
    return {
        "reason": " ".join(filter(None, (update.reason, altered))),
        "way_back": replace(way_back, kept=update.way_back.kept),
        "staged": replace(
            update.staged,
            files=revisions.rows(new),
            snapshot=snapshot,
            extensions=extensions,
            version_locked=tuple(sorted(locked)),
        ),
        "progress": replace(update.progress, master=probe.reaches_master(context, _MASTER_TIMEOUT)),
    }


def _refuse_unknown(context: Context, update: Update, new: list[File]) -> None:
    """Raise SafeUpdateError if the extension does not know the Salt of these packages."""
    if update.of_extension:
        return
    files = [file.path for file in new]
    rows, place = replaced.noted(context.store), context.settings.state_dir
    different = known.unknown(rows, update.versions_to, files, place, context.command)
    if different:
        problem, fix = known.refusal(different, update.versions_to)
        raise SafeUpdateError(f"{problem} {fix}")


def _stage_beside(context: Context, update: Update, new: list[File]) -> tuple[str, list[str]]:
    """Stage the extensions for the new packages; return where, and the problems."""
    assert context.manager is not None  # noqa: S101
    return stage_beside_salt(
        context.services.program(context.unit),
        context.revisions.directory(update.id),
        files=[file.path for file in new],
        unowned=context.manager.unowned,
        run=context.command,
    )


def _previous(context: Context, update: Update) -> Previous | None:
    """Return the previous revision if the update goes back to it."""
    previous = context.revisions.previous()
    back = update.request is not None and update.request.back and not update.of_build
    if back and previous is not None and previous.versions == update.versions_to:
        return previous
    return None


def _former_snapshot(activation: Activation, previous: Previous) -> dict[str, int] | None:
    """Return the snapshot to go back to, if no other change would be undone with it."""
    if not activation.by_boot or previous.snapshot is None:
        return None
    running, number = activation.snapshots.running(), previous.snapshot["number"]
    if running != previous.active:
        raise SafeUpdateError(
            f"Snapshot {running['number']} was made after the update: going back to snapshot "
            f"{number} would undo more than the update. If you want that, run "
            f"'transactional_update.rollback {number}' and reboot; or request the version "
            "with 'safeupdate.update'"
        )
    return previous.snapshot


def _download(
    context: Context, installer: Installer, targets: dict[str, str]
) -> tuple[list[File], str]:
    """Return the new packages, and which staged files were altered, or an empty text."""
    staging = _staging(context, installer)
    altered = staging.drop_altered(targets)
    if altered:
        log.warning("staged packages were altered and are staged again: %s", altered)
        altered = f"Staged packages were altered and were staged again: {altered}"
    for _ in range(_DOWNLOAD_ATTEMPTS - 1):
        try:
            return staging.stage(targets), altered
        except CommandError as err:
            log.warning("%s; trying again", err)
            context.sleep(_DOWNLOAD_INTERVAL)
    try:
        return staging.stage(targets), altered
    except CommandError as err:
        if not altered:
            raise
        raise SafeUpdateError(f"{altered} That failed: {err}") from err


def _wait(context: Context, update: Update) -> Update:
    beside, found = _wait_beside(context, update)
    if not beside:
        found = _wait_alone(context, update)
    if found is None:
        context.locks.drain.release()
        reason = (
            f"Other jobs did not end within {context.settings.jobs_timeout:g} s. Nothing was "
            "changed. Request it again, or with when=idle."
        )
        return _to(context, update, Phase.POSTPONED, reason=reason)
    if found.phase.final:
        return found
    return _begin(context, replace(found, progress=replace(found.progress, beside=beside)))


def _wait_beside(context: Context, update: Update) -> tuple[tuple[str, ...], Update | None]:
    """Wait for what may not run during the update, if jobs may; return whose, and the record."""
    assert update.request is not None  # noqa: S101
    beside = _beside(context, update)
    if not beside:
        return (), None
    timeout = None if update.request.when == "idle" else context.settings.jobs_timeout
    found = beside_jobs.wait(context, update, timeout)
    if found is None or found.phase.final:
        return beside, found
    # Another minion may run by now, or a minion without its own tree.
    beside = _beside(context, update)
    if not beside:
        context.locks.update.release()
        context.locks.packages.release()
    return beside, found


def _wait_alone(context: Context, update: Update) -> Update | None:
    """Wait until no job runs."""
    assert update.request is not None  # noqa: S101
    if update.request.when == "idle":
        return drain.wait_until_idle(context, update)
    context.locks.drain.exclusive()
    return drain.wait_for_jobs(context, update)


def _beside(context: Context, update: Update) -> tuple[str, ...]:
    """Return the main processes whose jobs may run meanwhile; empty if none."""
    roots, home = update.code.roots, update.code.extension
    if update.of_extension and not any(home.startswith(os.path.join(root, "")) for root in roots):
        return ()
    return beside_jobs.whose(
        context,
        roots,
        context.neighbours,
        update.versions_from,
        update.versions_to,
        replaces=not update.of_build,
    )


def _begin(context: Context, update: Update) -> Update:
    """Begin the installation. All locks that it needs are held."""
    try:
        _installer(context).verify(revisions.files(update.staged.files))
        Steps(context.settings.steps_dir, context.store).verify()
        arm = partial(watchdog.arm, context.settings, context.watchdogs, context.command)
        update = servers.note(context, update)
        return no_return.passed(context.store, context.revisions, update, arm, context.manager)
    except (SafeUpdateError, OSError):
        context.locks.update.release()
        raise


def _to(context: Context, update: Update, phase: Phase, **changes: Any) -> Update:
    """Write the next phase, unless the record has ended meanwhile."""
    context.locks.update.exclusive()
    try:
        now = context.reread(update)
        return now if now.phase.final else context.store.save(now.advance(phase, **changes))
    finally:
        context.locks.update.release()


def _staging(context: Context, installer: Installer) -> Staging:
    return Staging(context.settings.state_dir, context.store, installer)


def _installer(context: Context) -> Installer:
    if context.installer is None:
        raise SafeUpdateError(
            "This host has no supported package manager (apt, dnf or zypper). To update to a slot "
            "instead, set 'safeupdate:slots_source'."
        )
    return context.installer
