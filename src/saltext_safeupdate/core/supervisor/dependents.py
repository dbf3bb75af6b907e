"""
Units of others that end when an update stops a unit, such as units with ``Requires=`` on it.

A restart would leave them running, a stop and a start do not: systemd does not start the units that
depend on a unit that starts. So they are started when the unit runs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..record.update import Update
from . import other_units
from .context import Context


def note(context: Context, update: Update, units: Iterable[str]) -> Update:
    """Record the ones that run and would end with *units*; return the record. Idempotent."""
    ours = {context.unit, *(each.unit for each in update.code.servers)}
    found = dict.fromkeys(update.progress.dependents)
    for unit in units:
        named = (each.removesuffix(".service") for each in context.services.dependents(unit))
        found |= dict.fromkeys(each for each in named if each not in ours)
    if tuple(found) == update.progress.dependents:
        return update
    return context.note(update, progress=replace(update.progress, dependents=tuple(found)))


def start(context: Context, update: Update) -> None:
    """Start the ones that have ended. A failure is only logged: the unit is not ours."""
    other_units.start(context, update.progress.dependents)
