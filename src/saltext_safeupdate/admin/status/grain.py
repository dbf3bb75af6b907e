"""
The values of the grains.


Salt loads grains in each minion and each ``salt-call``, also if this extension is not set up. So
modules are imported only when they are needed, and the record only if there was an update.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import salt
import salt.version

from ...core.errors import InputError, SafeUpdateError
from ...core.host import hidden
from ...core.settings import of_minion

if TYPE_CHECKING:
    from ...core.record.update import Update


def grain(opts: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the running version, the result of the newest update, and if it waits for a reboot.

    A minion makes its grains when it starts, and the engine lets it make them again after each of
    these steps. The phases in between would soon be out of date. The phase is ``unknown`` if the
    record cannot be read.
    """
    found = {"version": str(salt.version.__version__), "phase": "idle", "pending": False}
    try:
        updates = _updates(opts)
    except SafeUpdateError as err:
        return {**found, "phase": "unknown", "reason": str(err)}
    last = next((each for each in updates if each.phase.final or each.awaits_boot), None)
    if last is not None:
        found |= {"phase": last.phase.value, "pending": not last.phase.final}
        if last.reason and last.phase.final:
            found["reason"] = last.reason
    return found


def paths() -> dict[str, Any]:
    """Return the grains of Salt's paths as without copies; empty if this process reads no copy."""
    from ...core.host import copy_names

    path = [copy_names.original(entry) for entry in sys.path]
    code = os.path.dirname(str(salt.__file__))
    if path == sys.path and code in salt.__path__:
        return {}
    return {"pythonpath": list(dict.fromkeys(path)), "saltpath": code}


def _updates(opts: Mapping[str, Any]) -> list[Update]:
    """Return the updates, newest first. Writes nothing. Raises SafeUpdateError."""
    hidden.refuse()
    settings, problems = of_minion(opts)
    if problems:
        raise InputError(problems[0])
    if not os.path.exists(settings.database):
        return []
    from ...core.record.database import Database

    with Database(settings.database).connection(durable=False) as db:
        if db.execute("SELECT 1 FROM updates LIMIT 1").fetchone() is None:
            return []
    from ...core.record.store import Store

    return Store(settings.database).updates()
