"""
Jobs of a minion that started without this extension, which has become available since then.

Its main process neither records nor holds jobs, so the job's own process does, until the minion
has restarted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import salt.payload

from ..core.errors import RecordError, SafeUpdateError
from ..core.host import locks, processes
from ..core.jobs import current
from ..core.jobs.admission import Admission
from ..core.jobs.ledger import Ledger, State
from ..core.record.store import Store
from ..core.settings import Settings
from . import publication, queues
from .waiting_runs import LATER

log = logging.getLogger(__name__)


def begin(
    opts: Mapping[str, Any], data: Mapping[str, Any], settings: Settings
) -> Mapping[str, Any] | None:
    """
    Begin the job of this process with a share of the jobs lock, or hold it.

    If it cannot be held, it runs as with plain Salt. Return the value that Salt has to take for its
    return, or None if it runs. Raise RecordError if it was to continue and cannot.
    """
    data = _whole(data)
    lock, may_start = Admission(settings, Store(settings.database)).share()
    job = current.Job(jid=str(data.get("jid", "")), lock=lock)
    key = publication.key(data)
    # Salt returns each of several functions, whatever value it gets.
    can_hold = bool(key) and isinstance(data.get("fun"), str)
    ledger = Ledger(settings.database)
    try:
        if may_start and not _take_up(ledger, job, key):
            return LATER
        if not may_start and can_hold and locks.held(settings.run_dir, "engine"):
            # The engine brings it back when this process is gone and jobs may start.
            ledger.hold(
                key,
                jid=job.jid,
                fun=publication.function(data),
                master=str(opts.get("master", "")),
                call=salt.payload.dumps(dict(data)),
                owner=processes.me(),
            )
            log.info("safeupdate: job %s is held until the minion has restarted", job.jid)
            return LATER
    except SafeUpdateError as err:
        log.warning("safeupdate: job %s runs as with plain Salt: %s", job.jid, err)
    if data.get(publication.GOES_ON) and not job.key:
        if lock is not None:
            lock.close()
        raise RecordError(
            f"Job {job.jid} was to continue after a restart, and its record is not available here. "
            "The part that had run stays in effect; the rest was not run, and nothing was run "
            "twice. Check what is missing, then publish it again."
        )
    if not may_start:
        log.warning(
            "safeupdate: job %s runs although new jobs are held: the minion was started without "
            "saltext-safeupdate, and no process could run the job later",
            job.jid,
        )
    current.begin(job)
    return None


def settle(data: Mapping[str, Any], settings: Settings) -> None:
    """Remove a job from the ledger that was held and runs now as with plain Salt."""
    key = publication.key(_whole(data))
    try:
        ledger = Ledger(settings.database)
        known = ledger.full(key) if key and ledger.exists() else None
        if known is not None and known.state is State.HELD:
            ledger.forget(key)
    except SafeUpdateError as err:
        log.warning("safeupdate: job %s runs as with plain Salt: %s", data.get("jid", ""), err)


def _whole(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published job with its whole JID: Salt shortens the JID of a queued job."""
    kept = data.get(queues.OF_JOBS)
    return {**data, "jid": kept} if isinstance(kept, str) else dict(data)


def _take_up(ledger: Ledger, job: current.Job, key: str) -> bool:
    """Record that a held job runs now; tell whether it may: not if it is suspended."""
    known = ledger.full(key) if key and ledger.exists() else None
    if known is None or known.state is not State.HELD:
        return True
    refused = ledger.accept(
        key,
        jid=known.jid,
        fun=known.fun,
        master=known.master,
        call=known.call or b"",
        owner=processes.identity(os.getppid()),
        over=(State.HELD,),
    )
    if refused is not None:
        return False
    job.key, job.attempt = key, ledger.begin(key, processes.me())
    return True
