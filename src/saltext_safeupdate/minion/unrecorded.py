"""
Jobs that ran although the ledger could not be written.

The ledger must not report these jobs as missed later. So a process that cannot write into it leaves
a note below 'cachedir', where Salt must be able to write to run any job. The engine brings the
notes into the ledger when that works again. Such a ledger does not know what happened until the
last of these jobs.

A note is on the disk before its job begins, like a row of the ledger: otherwise a power cut would
make the job run twice.

A line of a note has either the key of a job and the process that began it, or no key and a time:
the boot, and its age in seconds when a job ran.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import RecordError
from ..core.host import processes
from ..core.host.files import remove, sync_directory
from ..core.jobs.ledger import Ledger

_NAME = "safeupdate-unrecorded"
# Its name while the engine brings it into the ledger.
_TAKEN = f"{_NAME}.taken"
# Times are noted up to this many bytes: thousands of jobs. After that, the last time is unknown.
_MOST = 256 * 1024


def note(opts: Mapping[str, Any], key: str = "", runner: str = "") -> None:
    """
    Note that a job runs without a record.

    If the ledger has its *key*: its *runner* has begun it; an empty one: it has been delivered.
    """
    # If that directory cannot be written either, Salt runs no job.
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(os.path.join(opts["cachedir"], _NAME), flags, 0o600)
        try:
            lines = f"{key}\t{runner}\n" if key else ""
            size = os.fstat(fd).st_size
            if size < _MOST:
                lines += f"\t{processes.boot()} {processes.since_boot()}\n"
            if lines:
                _write(fd, lines.encode())
                os.fsync(fd)
            if not size:
                sync_directory(opts["cachedir"])
        finally:
            os.close(fd)


def _write(fd: int, lines: bytes) -> None:
    """Write all of it, or make the file so large that its times do not count; it stays sparse."""
    written = 0
    try:
        written = os.write(fd, lines)
    finally:
        if written < len(lines):
            os.ftruncate(fd, max(_MOST, os.fstat(fd).st_size))


def paths(opts: Mapping[str, Any]) -> list[str]:
    """Return the paths of such notes."""
    return [os.path.join(opts["cachedir"], name) for name in (_NAME, _TAKEN)]


def pending(opts: Mapping[str, Any]) -> bool:
    """Tell whether there are notes that are not in the ledger yet."""
    return any(map(os.path.exists, paths(opts)))


def bring_in(opts: Mapping[str, Any], ledger: Ledger) -> None:
    """Bring the notes into the ledger. Raise RecordError if it still cannot be written."""
    if not pending(opts):
        return
    taken = os.path.join(opts["cachedir"], _TAKEN)
    try:
        if not os.path.exists(taken):
            os.rename(os.path.join(opts["cachedir"], _NAME), taken)
        with open(taken, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        # Another engine has just done it.
        return
    except OSError as err:
        raise RecordError(
            f"{taken} cannot be read: {err.strerror}. Jobs that are noted in it are not published "
            "again; fix the permissions below 'cachedir'."
        ) from err
    times = []
    for line in text.splitlines():
        key, _, runner = line.partition("\t")
        if not key:
            times.append(runner)
        elif runner:
            ledger.begin(key, runner)
            ledger.begin_function(key)
        else:
            ledger.delivered(key)
    ledger.record_anew(_last(times) if len(text) < _MOST else None)
    remove(taken)


def _last(times: Sequence[str]) -> float | None:
    """Return the last of these times as an age of this boot; None if unknown."""
    boot, ages = processes.boot(), []
    if boot == processes.NO_BOOT:
        return None
    for time in times:
        at, _, age = time.partition(" ")
        try:
            # A time in an earlier boot was before this one.
            ages.append(float(age) if at == boot else 0.0)
        except ValueError:
            return None
    return max(ages, default=None)
