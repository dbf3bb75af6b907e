"""
Whether a job may start now, and its share of the jobs lock.

An administrator can have new jobs held (:mod:`..host.drained`), and the locks show that an update
holds them. If the locks cannot be used, this extension may neither keep a job from running nor
start one in a tree that is being replaced. Then the record decides: while an update changes the
minion, jobs are held; otherwise they run without a share.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import LockUnavailableError, SafeUpdateError
from ..host import drained, locks
from ..host.locks import Lock
from ..record.phase import PROVING, Phase
from ..record.store import Store
from ..settings import Settings

if TYPE_CHECKING:
    from ..record.update import Update

log = logging.getLogger(__name__)

# After this many seconds without a change, a record that has not ended holds no job back any more:
# a process that works on an update writes more often, and jobs must not wait.
BELIEVED = 3600.0
# The phases in which a supervisor or an installing job holds new jobs.
_HOLDING = (
    Phase.WAITING,
    Phase.INSTALLING,
    Phase.DELIVERING,
    Phase.REPAIRING,
    Phase.STEPPING,
    Phase.RESTARTING,
    Phase.ROLLING_BACK,
)


def _log(err: SafeUpdateError) -> None:
    log.warning("safeupdate: %s", err)


class Admission:
    """
    Asks the locks, and the record if they cannot be used.

    *complain* gets, each time, the reason why a lock cannot be used. *clock* returns epoch seconds.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        complain: Callable[[SafeUpdateError], None] = _log,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run_dir = settings.run_dir
        self._beside_jobs = settings.restart == "handover"
        self._store = store
        self._complain = complain
        self._clock = clock

    def holding(self) -> bool:
        """Tell whether new jobs are held."""
        return self.drained() or self.updating()

    def updating(self) -> bool:
        """Tell whether an update or a restart holds new jobs."""
        try:
            return locks.held(self._run_dir, "drain")
        except LockUnavailableError as err:
            self._complain(err)
        return self._by_record()

    def changing(self) -> bool:
        """Tell whether an update replaces the code that the minion reads."""
        last = self._last()
        return (
            last is not None
            and (last.is_changing and not last.beside_jobs)
            and self._is_believed(last)
        )

    def unproven(self) -> bool:
        """Tell whether the minion that an update has started has to show first that it works."""
        last = self._last()
        if last is None or last.kind != "update" or last.progress.returned is not None:
            return False
        return last.phase in PROVING and self._is_believed(last)

    def drained(self) -> bool:
        """Tell whether an administrator has new jobs held."""
        return drained.look(self._run_dir) is not None

    def share(self, *, awaited: bool = False) -> tuple[Lock | None, bool]:
        """
        Return this job's share of the jobs lock, and whether the job may start.

        It may start without a share if the locks cannot be used. If an update *awaited* it, it
        starts although an administrator has new jobs held.
        """
        if not awaited and self.drained():
            return None, False
        try:
            if locks.held(self._run_dir, "drain"):
                return None, False
            lock = locks.share(self._run_dir, "jobs")
        except LockUnavailableError as err:
            self._complain(err)
            return None, not self._by_record()
        return lock, lock is not None

    def share_of_packages(self) -> tuple[Lock | None, bool]:
        """
        Return a share of the packages lock, for a process that reads the code of the packages, and
        whether it may start.
        """
        try:
            lock = locks.adopt(self._run_dir, "packages") or self.packages()
        except LockUnavailableError:
            # The error of the jobs lock, in the same directory, is logged.
            return None, not self._by_record(beside_jobs=True)
        return lock, lock is not None

    def packages(self) -> Lock | None:
        """
        Return a share of the packages lock; None if the packages change while jobs run.

        Raise LockUnavailableError.
        """
        lock = locks.share(self._run_dir, "packages")
        if lock is not None and self._beside_jobs and self._packages_change():
            lock.close()
            return None
        return lock

    def awaits_packages(self) -> bool:
        """Tell whether an update during jobs waits for processes that read the code."""
        last = self._last()
        return last is not None and last.beside_jobs and last.phase is Phase.WAITING

    def _packages_change(self) -> bool:
        """
        Tell whether the packages change while jobs run although nobody holds the lock: the
        supervisor was killed, and the package manager continues until the next one comes.
        """
        last = self._last()
        return (
            last is not None and last.beside_jobs and last.is_changing and self._is_believed(last)
        )

    def _is_believed(self, last: Update) -> bool:
        # A clock that was set back does not hold jobs for longer.
        return abs(self._clock() - last.changed) < BELIEVED

    def _last(self) -> Update | None:
        try:
            return self._store.latest() if self._store.exists() else None
        except SafeUpdateError as err:
            self._complain(err)
            return None

    def _by_record(self, *, beside_jobs: bool = False) -> bool:
        last = self._last()
        if last is None or last.kind != "update" or last.phase not in _HOLDING:
            return False
        return last.beside_jobs == beside_jobs and self._is_believed(last)
