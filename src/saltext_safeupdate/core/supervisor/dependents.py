"""
Units of others that end with what an update stops, such as those with ``Requires=`` on it.

A restart would leave them running, and a stop and a start do not: systemd starts nothing that
depends on what starts. So they are started when what they depend on runs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..record.update import Update
from . import other_units
from .context import Context


def note(context: Context, update: Update, units: Iterable[str]) -> Update:
    """Write down those that run and would end with *units*; return the record. Idempotent."""
    ours = {context.unit, *(each.unit for each in update.code.servers)}
    found = dict.fromkeys(update.progress.dependents)
    for unit in units:
        named = (each.removesuffix(".service") for each in context.services.dependents(unit))
        found |= dict.fromkeys(each for each in named if each not in ours)
    if tuple(found) == update.progress.dependents:
        return update
    return context.note(update, progress=replace(update.progress, dependents=tuple(found)))


def start(context: Context, update: Update) -> None:
    """Start those that have ended. What cannot be started is logged, as it is its owner's."""
    other_units.start(context, update.progress.dependents)
