"""Open snapshots: which one a call works in, and what is left of a call that was killed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ..errors import CommandError
from ..host.command import Run
from . import roots
from .roots import QUERY_TIMEOUT, Subvolume

BUS = Path("/run/dbus/system_bus_socket")
_NOTE = "snapshot"


def delete(run: Run, number: int, bus: Path = BUS) -> str | None:
    """
    Delete a snapshot; return why that failed, or ``None``.

    snapper's daemon keeps a list of the snapshots. If one of them is deleted behind its back, it
    fails to delete any other later, and so does the tool: so the daemon is asked, wherever there
    is a message bus that can start it.
    """
    direct = () if _is_socket(bus) else ("--no-dbus",)
    try:
        run(("snapper", *direct, "delete", str(number)), timeout=QUERY_TIMEOUT)
    except CommandError as err:
        return f"snapshot {number} could not be deleted, which has to be done by hand: {err}"
    return None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def of_processes(inside: Iterable[int], proc: Path = Path("/proc")) -> Subvolume | None:
    """Return the snapshot that is the root of one of the processes *inside*."""
    for pid in inside:
        try:
            found = roots.running_root((proc / str(pid) / "mountinfo").read_text(encoding="utf-8"))
        except OSError:
            continue  # it ended meanwhile
        if found:
            return found
    return None


def note(directory: Path, snapshot: Subvolume) -> None:
    """Write down, in the directory of a call, which snapshot the call works in."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(directory / _NOTE, flags, 0o600), "w", encoding="ascii") as sink:
        sink.write(f"{snapshot.number} {snapshot.ident}\n")


def noted(directory: Path) -> Subvolume | None:
    """Return the snapshot that was written down, or ``None``."""
    try:
        words = (directory / _NOTE).read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return None
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    return Subvolume(int(words[0]), int(words[1]))


def remove_noted(
    run: Run, directory: Path, *, place: Path = roots.PLACE, bus: Path = BUS
) -> str | None:
    """
    Delete the snapshot of a call that was killed, if it still is open.

    Return why that failed, or ``None``. It never is the default: the tool closes a snapshot first.
    """
    found = noted(directory)
    if found is None or not roots.exists(run, found, place):
        return None
    open_now = {snap.number for snap in roots.list_snapshots(run) if snap.in_progress}
    default = roots.read_roots(run).default
    if found.number not in open_now or found == default:
        return None
    return delete(run, found.number, bus)
