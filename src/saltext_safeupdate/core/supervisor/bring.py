"""Carry the extensions, this one first, to the interpreter that the unit starts."""

from __future__ import annotations

import logging

from ..errors import SafeUpdateError
from ..extensions import interpreter, ourselves
from ..extensions.carry import carry_extensions
from ..host import copy_names
from ..record.update import Update
from .context import Context

log = logging.getLogger("salt-safeupdate")


def bring_along(context: Context, update: Update) -> str:
    """Install what is missing there; return why that failed, or an empty text."""
    if update.of_build:
        # They are part of the slot, which does not change any more.
        return ""
    program = context.services.program(context.unit)
    python = interpreter.named_by(program) if program else None
    if python is None:
        return ""
    if update.of_extension:
        loads = interpreter.loads(python, context.command, ourselves.PACKAGE)
        return "" if loads else f"{python} cannot load the extension."
    try:
        put = _carry(context, update, python)
    except (OSError, SafeUpdateError) as err:
        log.error("extensions could not be carried along: %s", err)
        return "" if context.settings.extensions == "report" else str(err)
    if put:
        log.info("carried along: %s", ", ".join(put))
    return ""


def _carry(context: Context, update: Update, python: str) -> list[str]:
    if update.staged.extensions:
        return carry_extensions(python, context.command, update.staged.extensions)
    trees = copy_names.of(update.code.roots, update.id)
    where = ourselves.carry(python, context.command, update.code.extension, trees)
    return [where] if where else []
