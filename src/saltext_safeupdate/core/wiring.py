"""The objects that need more than one room of the core, built in one place."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from .host.command import Run
from .host.command import run as run_command
from .packages.detect import detect
from .settings import Settings

if TYPE_CHECKING:
    from .host.service import Services
    from .packages.manager import PackageManager
    from .prepare.own_extension import OwnExtension
    from .record.store import Store
    from .slots.installer import SlotInstaller
    from .slots.store import Slots
    from .slots.unit import Unit


def package_manager(run: Run = run_command) -> PackageManager | None:
    """
    Return the package manager of this host, or None if it has none that we know.

    On a transactional system that is transactional-update, which installs through zypper.
    """
    found = detect(run)
    if found is not None and found.name == "zypper":
        from .transactional.detect import transactional

        if transactional(run):
            from .transactional.manager import TransactionalUpdate

            return TransactionalUpdate(run)
    return found


def own_extension(
    settings: Settings,
    services: Services,
    home: str,
    source: str = "",
    run: Run = run_command,
) -> OwnExtension:
    """Return what updates this extension; *home* is where the minion imports it from."""
    from .extensions import interpreter
    from .prepare.own_extension import OwnExtension

    program = services.program(settings.service)
    python = interpreter.named_by(program) if program else None
    place, where = os.path.dirname(home), source or settings.extension_source
    return OwnExtension(place, python or sys.executable, run, where)


def slots(settings: Settings) -> Slots:
    """Return the slots of this host."""
    from .slots.store import Slots

    return Slots(settings.slots_dir)


def slot_unit(settings: Settings, services: Services, run: Run = run_command) -> Unit:
    """Return what has the minion be started from its active slot."""
    from .host.direct import Direct
    from .slots.installer import program
    from .slots.kept import KeptUnit
    from .slots.unit import SlotUnit

    unit, path = settings.service, program(settings.slots_dir, settings.unit_name)
    if isinstance(services, Direct):
        return KeptUnit(unit, path, partial(services.kept, unit))
    return SlotUnit(unit, path, run=run)


def slot_installer(
    settings: Settings, store: Store, services: Services, run: Run = run_command
) -> SlotInstaller:
    """Return what installs slots for the minion with that database."""
    from .record.facts import UNSLOTTED
    from .slots.commands import Commands
    from .slots.installer import SlotInstaller, program

    name = settings.unit_name
    before = store.fact(UNSLOTTED) if store.exists() else None
    # A command without the name of a configuration is about the minion of /etc/salt.
    typed = not settings.instance
    return SlotInstaller(
        slots(settings),
        name,
        slot_unit(settings, services, run),
        before=before.version if before is not None else "",
        commands=Commands(os.path.dirname(program(settings.slots_dir, name))) if typed else None,
        keep=settings.slots_keep,
    )
