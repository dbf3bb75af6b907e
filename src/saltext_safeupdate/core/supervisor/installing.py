"""The installation, by the supervisor itself or by a job that may have died."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from ..errors import CommandError
from ..host.background import in_background
from ..packages.manager import Installer
from ..prepare import resolution, revisions
from ..record.phase import Phase
from ..record.update import Update
from . import rollback, servers
from .context import Context
from .ending import end


def carry_on(context: Context, update: Update) -> Update:
    """Install the request, or take over from the job that installed."""
    if update.request is None:
        return _after_crash(context, update)
    return _install(context, update)


def is_untouched(context: Context, update: Update) -> bool:
    """Tell whether nothing has changed since before the installation."""
    own, installer = list(update.versions_from), context.installer
    return (
        installer is not None
        and installer.installed(own) == update.versions_from
        and not context.unfinished(own)
        and not context.mixed(update)
    )


def _install(context: Context, update: Update) -> Update:
    """Install the staged packages. Raise CommandError or VerificationError."""
    installer = context.installer
    if installer is None:
        raise CommandError(("package manager",), "this host has no supported package manager")
    update = servers.stop(context, update)
    # A slot has no scriptlets, and changes what the unit starts. Scriptlets in a snapshot that does
    # not run reach no service.
    if not (update.of_build or context.activation.by_boot):
        context.inhibitor.inhibit(context.unit)
    own, targets = list(update.code.own), update.versions_to
    context.let_manager_end()
    if not resolution.reached(installer.installed(own), targets) or context.unfinished(own):
        # Otherwise jobs wait for it.
        with in_background() if update.beside_jobs else nullcontext():
            _put_in_place(context, installer, update)
    # An earlier supervisor of it was killed, perhaps together with its package manager.
    now, left = context.repair(own, killed=(update.progress.supervisors or 0) > 1)
    if not resolution.reached(now, targets) or left:
        raise CommandError(
            (installer.name,),
            f"the packages are not in place (installed: {now}; half done: "
            f"{', '.join(left) or 'none'})",
        )
    return context.store.save(update.advance(Phase.DELIVERING, versions_to=now))


def _put_in_place(context: Context, installer: Installer, update: Update) -> None:
    staged = update.staged
    new = revisions.files(staged.files)
    installer.verify(new)
    activation = context.activation
    if staged.snapshot is not None:
        activation.snapshots.go_back(staged.snapshot)
    else:
        activation.install(
            new,
            extensions=staged.extensions,
            program=context.services.program(context.unit) or "",
            strict=context.settings.extensions == "stop",
        )


def _after_crash(context: Context, update: Update) -> Update:
    """Wait for the package manager of the job that died while it installed, then take over."""
    left: list[str] = []
    now = update.versions_from
    if update.progress.again:
        # Whatever is in place by now, the configuration may not be: and no version is to blame.
        what = "The run was ended while it removed packages and installed them again."
        return rollback.begin(context, replace(update, versions_to=now), what)
    if context.installer is not None:
        now, left = context.repair(list(update.versions_from), killed=True)
        if now == update.versions_from and not left:
            left = context.mixed(update)
            if not left or not update.has_way_back:
                what = f"left half done: {', '.join(left)}" if left else "changed nothing"
                problem = f"The run was ended while it installed; the package manager {what}."
                return end(context, update, Phase.FAILED, problem)
    if left and update.has_way_back:
        return rollback.begin(
            context, replace(update, versions_to=now), f"half done: {', '.join(left)}."
        )
    reason = "The run was ended while it installed; the installation was completed."
    if left:
        reason = f"half done: {', '.join(left)}"
    return context.store.save(update.advance(Phase.DELIVERING, reason=reason, versions_to=now))
