"""
The watchdog of an update: a service and a timer that start a supervisor again.

They are on disk before anything changes, and removed when the update has ended. They start a
supervisor at every boot and every minute, whatever has happened to Salt, to its Python and to the
process that began the update.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import SafeUpdateError
from ..extensions import supervisor_copy
from ..host.command import Run
from ..host.files import remove, write_atomic
from ..settings import Settings, as_json, from_mapping

if TYPE_CHECKING:
    from ..host.service import Watchdogs

_UNIT = "salt-safeupdate-recover"
_SUPERVISOR_UNIT = "salt-safeupdate"
_PREFIX, _SUFFIX = "settings-", ".json"


def unit(settings: Settings) -> str:
    """Return the name of the watchdog of this minion."""
    return _of_instance(_UNIT, settings)


def supervisor_unit(settings: Settings) -> str:
    """Return the unit of the supervisor that is started with an update of this minion."""
    return _of_instance(_SUPERVISOR_UNIT, settings)


def _of_instance(name: str, settings: Settings) -> str:
    return f"{name}-{settings.instance}" if settings.instance else name


def argv(settings: Settings, watchdogs: Watchdogs, python: str) -> list[str]:
    """
    Return the command that runs the supervisor, from the supervisor copy, with *python*.

    The settings are in a file that only root can read. Everybody can read a unit and the arguments
    of a process, and the arguments of a health check may contain a secret. Raise SafeUpdateError.
    """
    named = watchdogs.watchdog(unit(settings))
    launcher = supervisor_copy.make(settings.state_dir, named)
    return [python, "-I", "-B", launcher, _write(settings, named)]


def read_settings(path: str) -> Settings:
    """Return the settings that a supervisor was started with. Raise SafeUpdateError."""
    try:
        with open(path, encoding="utf-8") as file:
            return from_mapping(json.load(file))
    except (OSError, ValueError) as err:
        raise SafeUpdateError(
            f"The supervisor has no settings: {err}. Nothing was done; the minion starts another "
            "supervisor when it runs."
        ) from err


def _write(settings: Settings, named: str) -> str:
    """Write the settings to disk; return the path. Remove files that nothing names any more."""
    text = as_json(settings)
    # A supervisor keeps the settings that it was started with, whatever is configured meanwhile.
    name = f"{_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}{_SUFFIX}"
    path = os.path.join(settings.state_dir, name)
    try:
        write_atomic(path, text)
        for other in os.listdir(settings.state_dir):
            is_one = other.startswith(_PREFIX) and other.endswith(_SUFFIX)
            if is_one and other != name and other not in named:
                remove(os.path.join(settings.state_dir, other))
    except OSError as err:
        raise SafeUpdateError(
            f"{path} cannot be written: {err.strerror or err}. Nothing was changed; check the "
            "free space and the permissions there."
        ) from err
    return path


def arm(settings: Settings, watchdogs: Watchdogs, run: Run, copies: Mapping[str, str]) -> None:
    """
    Make sure that a supervisor continues the update. Idempotent.

    *copies* maps the directories of the minion's code to their linked copies.
    """
    python = supervisor_copy.interpreter(run, copies)
    watchdogs.arm(unit(settings), argv(settings, watchdogs, python))


def disarm(settings: Settings, watchdogs: Watchdogs) -> None:
    """Remove the watchdog. Idempotent."""
    watchdogs.disarm(unit(settings))
