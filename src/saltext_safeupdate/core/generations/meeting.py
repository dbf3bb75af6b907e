"""
The place where the stop guard and the minion that it stops meet: a directory that both rename.

Its name contains the PID of the unit's main process, and the step that they have reached. Only one
of two renames succeeds, so the minion does not act on a request that the guard has given up.
"""

from __future__ import annotations

import contextlib
import os
from enum import Enum

from ..errors import LockUnavailableError
from ..host import processes
from ..host.files import make_private, remove, write_atomic
from ..host.processes import start_time

_PREFIX = "handover."


class Step(Enum):
    """How far the two have come."""

    # The minion takes jobs, and can be handed over.
    OPEN = "open"
    # The guard asks whether the minion can be handed over.
    ASKED = "asked"
    # The minion prepares for it, and the guard waits a little longer.
    TAKING = "taking"
    TAKEN = "taken"
    REFUSED = "refused"
    # Its processes are outside of the unit: the next minion may start.
    MOVED = "moved"
    # They could not be moved: the minion serves as before.
    BACK = "back"


class Meeting:
    """The directory for the unit whose main process has this *pid*."""

    def __init__(self, run_dir: str, pid: int) -> None:
        self._run_dir = run_dir
        self._base = os.path.join(run_dir, f"{_PREFIX}{pid}")

    def open(self) -> None:
        """Announce that this minion can be asked; remove leftovers of minions that are gone."""
        try:
            make_private(self._run_dir)
            for name in os.listdir(self._run_dir):
                pid = name.removeprefix(_PREFIX).partition(".")[0]
                if name.startswith(_PREFIX) and pid.isdigit() and not start_time(int(pid)):
                    Meeting(self._run_dir, int(pid)).end()
            self.end()
            os.mkdir(self._at(Step.OPEN), mode=0o700)
        except OSError as err:
            raise LockUnavailableError(
                f"{self._at(Step.OPEN)} cannot be made: {err.strerror or err}. A restart of the "
                "minion waits for its jobs."
            ) from err

    def is_at(self, step: Step) -> bool:
        return os.path.isdir(self._at(step))

    def go(self, before: Step, after: Step) -> bool:
        """Proceed to the next step; tell whether the step before was *before*."""
        try:
            os.rename(self._at(before), self._at(after))
        except FileNotFoundError:
            return False
        return True

    def leave_word(self, text: str) -> None:
        """Leave a message of one line for the guard. Raise OSError."""
        write_atomic(f"{self._base}.word", f"{text}\n", mode=0o600)

    def end(self) -> None:
        """Remove everything. Idempotent."""
        remove(f"{self._base}.word")
        for step in Step:
            with contextlib.suppress(OSError):
                os.rmdir(self._at(step))

    def _at(self, step: Step) -> str:
        return f"{self._base}.{step.value}"


def main_of_unit(pid: int, parent: int) -> int:
    """Return the main process of a minion's unit: its *parent*, or itself if that is no Salt."""
    return parent if parent > 1 else pid


def can_be_asked(run_dir: str, process: str) -> bool:
    """
    Tell whether the minion with that main process can be handed over now, as far as it knows.

    The minion announces that itself after it has bound its event sockets: its settings may allow a
    handover that fails.
    """
    if not processes.alive(process):
        return False
    pid = processes.pid(process)
    return Meeting(run_dir, main_of_unit(pid, processes.parent(pid))).is_at(Step.OPEN)
