"""
Build the objects that act, in one place, for this host.

Modules that only an update needs are imported when it begins: the engine of a minion has
this one in its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from .core import wiring
from .core.errors import SafeUpdateError
from .core.extensions import ourselves, supervisor_copy
from .core.host import inherited
from .core.host.command import run as run_command
from .core.supervisor import watchdog
from .this_host import Host

if TYPE_CHECKING:
    from .core.packages.manager import Installer
    from .core.prepare.own_extension import OwnExtension
    from .core.prepare.resolution import Resolver
    from .core.prepare.revisions import Revisions
    from .core.prepare.staging import Staging
    from .core.slots.installer import SlotInstaller
    from .core.slots.store import Slot, Slots
    from .core.slots.unit import Unit
    from .core.supervisor.initiator import Initiator
    from .core.supervisor.quiet_transaction import QuietTransaction


def revisions(host: Host) -> Revisions:
    from .core.prepare.revisions import Revisions

    return Revisions(host.settings.state_dir, host.store, host.activation)


def staging(host: Host, installer: Installer | None = None) -> Staging:
    """Return the packages that are downloaded in advance; *installer* is the extension's."""
    from .core.prepare.staging import Staging

    installer = installer or host.known_manager()
    return Staging(host.settings.state_dir, host.store, installer)


def resolver(host: Host) -> Resolver:
    """Return what resolves requests. Raise SafeUpdateError without a package manager."""
    from .core.prepare.resolution import Resolver

    return Resolver(
        installer=host.known_manager(),
        own=sorted(host.own().names),
        store=host.store,
        revisions=revisions(host),
        staged=staging(host).staged(),
        steps_dir=host.settings.steps_dir,
    )


def extension(host: Host, source: str = "") -> OwnExtension:
    """Return what updates this extension, from *source* or from where the settings say."""
    home = ourselves.home()
    return wiring.own_extension(host.settings, host.services, home, source)


def slots(host: Host) -> Slots:
    """Return the slots of this host."""
    return wiring.slots(host.settings)


def slot_installer(host: Host) -> SlotInstaller:
    """Return what installs slots for this minion."""
    return wiring.slot_installer(host.settings, host.store, host.services)


def active_slot(host: Host) -> Slot | None:
    """
    Return the slot that the minion starts from, or None.

    It is quick without slots. Raise SafeUpdateError if that is not known.
    """
    if not slots(host).has(host.settings.unit_name):
        return None
    return slot_installer(host).active


def slot_unit(host: Host) -> Unit:
    """Return what has this minion be started from its active slot."""
    return wiring.slot_unit(host.settings, host.services)


def stage_extensions(host: Host, directory: str) -> str:
    """Stage the extensions for an update; return their directory."""
    from .core.extensions.beside_salt import stage_beside_salt

    if host.manager is None:
        return ""
    program = host.services.program(host.settings.service)
    unowned = host.manager.unowned
    return stage_beside_salt(program, directory, unowned=unowned, run=run_command)[0]


def launch(host: Host) -> None:
    """Start the supervisor."""
    inherited.save(host.settings.state_dir)
    python = supervisor_copy.interpreter(run_command, {})
    argv = watchdog.argv(host.settings, host.services, python)
    host.services.spawn(watchdog.supervisor_unit(host.settings), argv)


def arm(host: Host, copies: Mapping[str, str]) -> None:
    """Have the update that is about to change something looked after."""
    watchdog.arm(host.settings, host.services, run_command, copies)


def initiator(host: Host, jid: str = "") -> Initiator:
    """Return what begins an update in the process of the job *jid*."""
    from .core.supervisor.initiator import Initiator, Installation, Master, RunningJobs
    from .core.supervisor.neighbours import with_units

    foreign = host.why_not_ours() or host.kept_for_another()
    if foreign:
        raise SafeUpdateError(f"{foreign} Nothing was changed.")

    def master() -> Master:
        servers, paths = host.masters()
        return Master(servers=servers, backup_paths=paths)

    others = host.others()
    return Initiator(
        settings=host.settings,
        store=host.store,
        services=host.services,
        inhibitor=with_units(host.services, [each.unit for each in others]),
        others=others,
        unaware=host.unaware,
        master=master,
        launch=partial(launch, host),
        manager=host.manager,
        installation=Installation(
            own=tuple(sorted(host.own().names)),
            roots=host.roots(),
            backup_paths=(
                *host.backup_paths(),
                *(path for each in others for path in each.backup),
            ),
        ),
        jobs=RunningJobs(names=lambda: host.awaited_jobs(jid), pids=lambda: host.job_pids(jid)),
        arm=partial(arm, host),
        stage_extensions=partial(stage_extensions, host),
        obstacle_to_handover=partial(_obstacle_to_handover, host),
    )


def _obstacle_to_handover(host: Host) -> str:
    """Return why the stop guard would not hand this host's minion over now; empty if it would."""
    guard = host.stop_guard
    return f"the minion is a service of {host.services.name}" if guard is None else guard.obstacle()


def transaction(
    host: Host, redirect: Callable[[Mapping[str, str]], None], jid: str = ""
) -> QuietTransaction:
    """Return what changes the own packages in the process of the job *jid*."""
    from .core.supervisor.quiet_transaction import QuietTransaction

    return QuietTransaction(by=initiator(host, jid), redirect=redirect)
