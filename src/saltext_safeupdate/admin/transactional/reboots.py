"""Reboots of a transactional system: whether one is due, and rebootmgr, which plans them."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from ...core.errors import SafeUpdateError
from ...core.host import command
from ...core.transactional import detect, roots
from ...core.transactional.rebootmgr import PROGRAM, RebootManager

__all__ = ["PROGRAM", "TOOL", "manager", "snapshot_events"]

log = logging.getLogger(__name__)

TOOL = detect.TOOL
_LAST_EVENT = "transactional_update.beacon"


def manager() -> RebootManager:
    """Return rebootmgr's commands."""
    return RebootManager(command.run)


def snapshot_events(context: MutableMapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return an event if another snapshot than at the last look waits for a reboot, or none does.

    The last look is in *context*.
    """
    try:
        found = roots.read_roots(command.run)
    except SafeUpdateError as err:
        log.warning("safeupdate: whether a snapshot waits for a reboot is not known: %s", err)
        return []
    last, now = context.get(_LAST_EVENT), found.default if found.pending else None
    context[_LAST_EVENT] = now
    if now == last:
        return []
    running = found.running.number if found.running else None
    tag = "pending" if found.pending else "activated"
    return [{"tag": tag, "running": running, "default": found.default.number}]
