"""
The dead man's switch of an update.

A service and a timer that are on disk before anything changes, and gone when the update
has ended. They start a supervisor at every boot and every minute, whatever has happened to
Salt, to its Python and to whoever began.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..extensions.kept_copy import interpreter, keep
from ..host.command import Run
from ..host.service import ServiceManager
from ..settings import Settings, as_json

UNIT = "salt-safeupdate-recover"
# The unit of the supervisor that whoever begins an update starts.
SUPERVISOR_UNIT = "salt-safeupdate"


def argv(settings: Settings, python: str) -> list[str]:
    """Return what runs the supervisor, from a kept copy, with *python*."""
    return [python, "-I", "-B", keep(settings.state_dir), as_json(settings)]


def arm(settings: Settings, services: ServiceManager, run: Run, copies: Mapping[str, str]) -> None:
    """
    Have the update looked after. Idempotent.

    *copies* maps the directories of the minion's code to their kept copies.
    """
    services.arm(UNIT, argv(settings, interpreter(run, copies)))


def disarm(services: ServiceManager) -> None:
    """Stop looking after it. Idempotent."""
    services.disarm(UNIT)
