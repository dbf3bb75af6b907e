"""The status of a transactional system for its administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import CommandError
from ..host import hidden
from . import cli
from .reboot import REBOOT_NEEDED
from .roots import Snapshot
from .tool import Tool


def status(tool: Tool) -> dict[str, Any]:
    """Return what runs, what is the default, what is open, and who keeps the tool busy."""
    roots = tool.roots()
    holder = tool.lock_holder()
    unfinished = [snap for snap in tool.snapshots() if snap.in_progress]
    opened = _open(tool, unfinished) if holder else None
    try:
        level = REBOOT_NEEDED.read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        level = None
    return {
        "running": roots.running and roots.running.number,
        "default": roots.default.number,
        "pending": roots.pending,
        "open": [] if opened is None else [opened],
        "crashed": [snap.number for snap in unfinished if snap.number != opened],
        "tool_version": _version(tool),
        "lock_holder": holder,
        "in_transaction": hidden.in_transaction(tool.environ),
        "reboot_level": level,
    }


def _open(tool: Tool, unfinished: Sequence[Snapshot]) -> int | None:
    """
    Return the snapshot of the transaction that runs now.

    A transaction has one, made after it took the lock. The others belong to killed transactions.
    """
    numbers = [snap.number for snap in unfinished if _since_the_lock(tool, snap.number)]
    return max(numbers, default=None)


def _since_the_lock(tool: Tool, number: int) -> bool:
    try:
        taken = tool.host.pid_file.stat().st_mtime_ns
        return (tool.host.snapshots / str(number)).stat().st_ctime_ns >= taken
    except OSError:
        return True  # tukit alone holds its lock, and writes no such file


def _version(tool: Tool) -> str | None:
    try:
        return cli.dotted(cli.tool_version(tool.run))
    except CommandError:
        return None  # it is not installed any more
