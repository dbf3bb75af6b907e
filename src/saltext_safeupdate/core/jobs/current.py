"""The job that this process or thread runs, and its share of the jobs lock."""

from __future__ import annotations

import threading

from ..errors import LockHeldError, LockUnavailableError
from ..frozen import changeable
from ..generations import own_tree
from ..host import locks
from ..host.locks import Lock
from ..record.store import Store
from ..settings import Settings
from .admission import Admission

# Seconds that a job waits for the database if another process writes. After one wait without
# success it runs without a record, and waits only the second time, so that it does not stall at
# each step.
PATIENCE = 10.0
_BLIND_PATIENCE = 0.5
_UNDER_WAY = (
    "An update of the minion is under way and no new job may start. Nothing was done; "
    "'salt-call --local safeupdate.status' shows when it has ended. Then run this again."
)


@changeable
class Job:
    """
    A running job: its JID (empty for salt-call) and its share of the jobs lock.

    ``lock`` is None if the locks could not be used when it began, or if it began although jobs are
    held. ``unshared`` says why, if the job that started it has a share. ``packages`` is its share
    of the ``packages`` lock, or all of it; None: it reads its own tree. ``key`` names it in the
    ledger (empty: it is not recorded). ``attempt`` is 2 or more if it is resumed. ``says``: the
    ledger waits for the start of its function. ``begun``: the function has begun. ``waited``: it
    was held until an update had ended. ``returned``: it has given its return to Salt. ``stored``:
    the ledger has that return. ``blind``: it has waited for the database without success.
    ``may_go_back``: it may return to the queue while its function only waits. ``went_back``: it has
    done so. ``suspended``: it continues after a restart. ``lost``: it was to continue, and its
    results are not recorded any more.
    """

    jid: str
    lock: Lock | None
    unshared: str = ""
    packages: Lock | None = None
    key: str = ""
    attempt: int = 1
    says: bool = False
    begun: bool = False
    waited: bool = False
    returned: bool = False
    stored: bool = False
    blind: bool = False
    may_go_back: bool = False
    went_back: bool = False
    suspended: bool = False
    lost: bool = False

    @property
    def patience(self) -> float:
        """How many seconds each of its waits for the database may take."""
        return _BLIND_PATIENCE if self.blind else PATIENCE

    def share(self) -> Lock:
        """Return its share of the jobs lock. Raise LockUnavailableError if it has none."""
        if self.lock is None:
            raise LockUnavailableError(
                self.unshared
                or "This job began without a share of the jobs lock, so it cannot change the "
                "minion while no other job runs. Nothing was changed; 'safeupdate.check' says "
                "whether the locks work now. Then run it again."
            )
        return self.lock


_local = threading.local()


def get() -> Job | None:
    """Return the job of this thread, or None."""
    job: Job | None = getattr(_local, "job", None)
    return job


def recorded() -> Job | None:
    """Return the job of this thread, if the ledger records it."""
    job = get()
    return job if job is not None and job.key else None


def begin(job: Job) -> None:
    _local.job = job


def end() -> None:
    """Release the shares of the locks. A process that is a job never calls it, but just ends."""
    job = get()
    _local.job = None
    for lock in (job.lock, job.packages) if job is not None else ():
        if lock is not None:
            lock.close()


def ensure(settings: Settings, jid: str = "") -> Job:
    """
    Return the job of this thread; begin one if it has none, as under salt-call.

    If a job started this process, its share of the lock also counts for this one. If the kernel
    does not allow that, this one only cannot change the minion itself. Raise LockHeldError if an
    update keeps new jobs from starting. If the locks cannot be used, the job has no share.
    """
    job = get()
    if job is not None:
        return job
    packages = None if own_tree.is_read() else _packages(settings)
    try:
        lock = locks.adopt(settings.run_dir, "jobs") or _take(settings)
        job = Job(jid=jid, lock=lock, packages=packages)
    except LockUnavailableError as err:
        job = Job(jid=jid, lock=None, unshared=str(err), packages=packages)
    begin(job)
    return job


def _take(settings: Settings) -> Lock | None:
    admission = Admission(settings, Store(settings.database))
    lock, may_start = admission.share()
    if not may_start and admission.drained():
        raise LockHeldError(
            "An administrator has this minion take no new jobs ('safeupdate.drain'). Nothing was "
            "done; 'salt-call --local safeupdate.status' shows until when, and "
            "'safeupdate.undrain' ends it."
        )
    if not may_start:
        raise LockHeldError(_UNDER_WAY)
    return lock


def _packages(settings: Settings) -> Lock | None:
    lock, may_start = Admission(settings, Store(settings.database)).share_of_packages()
    if not may_start:
        raise LockHeldError(_UNDER_WAY)
    return lock
