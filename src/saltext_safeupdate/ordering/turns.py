"""The package manager works for a job, or for an update while jobs run: not for both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..core.errors import LockUnavailableError
from ..core.host.locks import Lock
from ..core.jobs import current
from ..core.jobs.admission import Admission
from ..core.record.store import Store
from ..core.settings import Settings

log = logging.getLogger(__name__)

_INTERVAL = 0.2
# Seconds for which a job waits at most; then it fares as with plain Salt.
_LONGEST = 900.0


@contextmanager
def of_job(
    settings: Settings,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """
    Keep an update from changing packages meanwhile; wait for one that does.

    Tell whether that was waited for: then what a job has asked about packages may not be so now.
    """
    job = current.get()
    # salt-call keeps it away all the time, and who installs the own packages has done so alone.
    if settings.restart != "handover" or job is None or job.packages is not None:
        yield False
        return
    admission = Admission(settings, Store(settings.database))
    lock, waited = _share(admission, monotonic, sleep)
    try:
        yield waited
    finally:
        if lock is not None:
            lock.close()


def _share(
    admission: Admission, monotonic: Callable[[], float], sleep: Callable[[float], None]
) -> tuple[Lock | None, bool]:
    """Return the share, None if it cannot be had, and whether that took a wait."""
    deadline, waited = monotonic() + _LONGEST, False
    while True:
        try:
            lock = admission.packages()
        except LockUnavailableError as err:
            log.warning("safeupdate: %s", err)
            return None, waited
        if lock is not None:
            return lock, waited
        if monotonic() >= deadline:
            log.warning(
                "safeupdate: an update of the minion has used the package manager for %g s; this "
                "job does not wait for it any longer",
                _LONGEST,
            )
            return None, waited
        waited = True
        sleep(_INTERVAL)
