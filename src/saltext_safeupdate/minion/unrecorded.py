"""
What ran although the ledger could not be written.

The ledger must not say later that these jobs were missed. So whoever cannot write into it leaves
a note below 'cachedir', where Salt has to be able to write to run any job. The engine brings what
is noted into the ledger when that works again. A ledger that was blind knows nothing of the time
before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from ..core.errors import RecordError
from ..core.host.files import remove
from ..core.jobs.ledger import Ledger

_NAME = "safeupdate-unrecorded"
# Its name while the engine brings it into the ledger.
_TAKEN = f"{_NAME}.taken"


def note(opts: Mapping[str, Any], key: str = "", runner: str = "") -> None:
    """
    Note that a job runs without a record.

    If the ledger has its *key*, its *runner* has begun it, or it has been delivered (empty).
    """
    # If nothing can be written there either, Salt runs no job.
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(os.path.join(opts["cachedir"], _NAME), flags, 0o600)
        try:
            if key:
                os.write(fd, f"{key}\t{runner}\n".encode())
        finally:
            os.close(fd)


def paths(opts: Mapping[str, Any]) -> list[str]:
    """Return where such notes are."""
    return [os.path.join(opts["cachedir"], name) for name in (_NAME, _TAKEN)]


def pending(opts: Mapping[str, Any]) -> bool:
    """Tell whether something is noted that the ledger does not have yet."""
    return any(map(os.path.exists, paths(opts)))


def bring_in(opts: Mapping[str, Any], ledger: Ledger) -> None:
    """Have the ledger know what is noted. Raises RecordError if it still cannot be written."""
    if not pending(opts):
        return
    taken = os.path.join(opts["cachedir"], _TAKEN)
    try:
        if not os.path.exists(taken):
            os.rename(os.path.join(opts["cachedir"], _NAME), taken)
        with open(taken, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        # Another engine has just done it.
        return
    except OSError as err:
        raise RecordError(
            f"{taken} cannot be read: {err.strerror}. Jobs of which it tells are not published "
            "again; fix the permissions below 'cachedir'."
        ) from err
    for line in lines:
        key, _, runner = line.partition("\t")
        if runner:
            ledger.begin(key, runner)
        else:
            ledger.delivered(key)
    ledger.record_from_now(anew=True)
    remove(taken)
