"""The objects that need more than one room of the core, built in one place."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .host.command import Run
from .host.command import run as run_command
from .packages.detect import detect
from .settings import Settings

if TYPE_CHECKING:
    from .host.service import Services
    from .packages.manager import PackageManager
    from .prepare.own_extension import OwnExtension


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
