"""What lives beside Salt, this extension first, in the interpreter that the unit starts."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from ..errors import SafeUpdateError
from ..extensions import distributions, ourselves
from ..host.command import Run
from ..host.service import ServiceManager
from ..packages.manager import PackageManager
from ..packages.request import File
from ..record.update import Update
from ..settings import Settings
from .context import Context

log = logging.getLogger("salt-safeupdate")


def stage(
    settings: Settings,
    services: ServiceManager,
    packages: PackageManager | None,
    run: Run,
    directory: str,
    files: Sequence[File] = (),
) -> dict[str, Any]:
    """
    Have it ready for the interpreter of these package files; return what a record carries.

    ``extensions`` is where it is, ``unstaged`` says what cannot come along. Without files the
    interpreter is taken to stay what it is.
    """
    program = services.program(settings.service)
    python = ourselves.interpreter(program) if program else None
    if python is None or packages is None:
        return {}
    target = os.path.join(directory, "extensions")
    try:
        found = distributions.inventory(python, run, packages.unowned)
        minor = distributions.python_of([file.path for file in files], run)
        problems = distributions.unfit(found, minor)
        problems += distributions.stage(found, target, program=python, python=minor, run=run)
    except (OSError, SafeUpdateError) as err:
        log.error("what is installed beside Salt cannot be made ready: %s", err)
        return {}
    return {"extensions": target, "unstaged": [f"{each.reason} {each.fix}" for each in problems]}


def bring_along(context: Context, update: Update) -> str:
    """Put it there where it is missing; return why that failed, or nothing."""
    program = context.services.program(context.unit)
    python = ourselves.interpreter(program) if program else None
    if python is None:
        return ""
    try:
        put = _carry(context, update, python)
    except (OSError, SafeUpdateError) as err:
        log.error("what is beside Salt could not be carried along: %s", err)
        return "" if context.settings.extensions == "report" else str(err)
    if put:
        log.info("carried along: %s", ", ".join(put))
    return ""


def _carry(context: Context, update: Update, python: str) -> list[str]:
    if update.staged.extensions:
        return distributions.carry(python, context.command, update.staged.extensions)
    where = ourselves.carry(python, context.command, update.code.extension, update.code.copies)
    return [where] if where else []
