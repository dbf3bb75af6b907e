"""What an administrator wants to know about a transactional system."""

from __future__ import annotations

from typing import Any

from ..errors import CommandError
from . import cli, detect
from .reboot import REBOOT_NEEDED
from .tool import Tool


def status(tool: Tool) -> dict[str, Any]:
    """Return what runs, what is the default, what is open, and who keeps the tool busy."""
    roots = tool.roots()
    holder = tool.lock_holder()
    unfinished = [snap.number for snap in tool.snapshots() if snap.in_progress]
    try:
        level = REBOOT_NEEDED.read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        level = None
    return {
        "running": roots.running and roots.running.number,
        "default": roots.default.number,
        "pending": roots.pending,
        "open": unfinished if holder else [],
        "crashed": [] if holder else unfinished,
        "tool_version": _version(tool),
        "lock_holder": holder,
        "in_transaction": detect.in_transaction(tool.environ),
        "reboot_level": level,
    }


def _version(tool: Tool) -> str | None:
    try:
        return cli.dotted(cli.tool_version(tool.run))
    except CommandError:
        return None  # it is not installed any more
