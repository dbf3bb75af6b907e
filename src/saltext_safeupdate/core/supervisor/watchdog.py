"""
The watchdog of an update: a service and a timer that start a supervisor again.

They are on disk before anything changes, and gone when the update has ended. A supervisor is
started at every boot and every minute, whatever has happened to Salt, to its Python and to the
process that began the update.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..extensions import supervisor_copy
from ..host.command import Run
from ..host.service import ServiceManager
from ..settings import Settings, as_json

UNIT = "salt-safeupdate-recover"
# The unit of the supervisor that is started with an update.
SUPERVISOR_UNIT = "salt-safeupdate"


def argv(settings: Settings, python: str) -> list[str]:
    """Return what runs the supervisor, from the supervisor copy, with *python*."""
    return [python, "-I", "-B", supervisor_copy.make(settings.state_dir), as_json(settings)]


def arm(settings: Settings, services: ServiceManager, run: Run, copies: Mapping[str, str]) -> None:
    """
    Have the update looked after. Idempotent.

    *copies* maps the directories of the minion's code to their linked copies.
    """
    services.arm(UNIT, argv(settings, supervisor_copy.interpreter(run, copies)))


def disarm(services: ServiceManager) -> None:
    """Stop looking after it. Idempotent."""
    services.disarm(UNIT)
