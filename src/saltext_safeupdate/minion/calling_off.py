"""
A job that somebody ends does not run later.

Salt ends a job by a signal to its process. A held or suspended job has no process. A job that is
about to be suspended would continue after its restart although its process was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.host import processes
from ..core.jobs import current, functions
from ..core.jobs.job import Job, State
from ..core.jobs.ledger import Ledger
from ..core.jobs.suspension import Suspensions
from ..core.settings import Settings

log = logging.getLogger(__name__)

_SUSPENDED = (
    "Job {jid} was suspended: it does not continue, and its master gets a failure. A restart or a "
    "reboot that it has requested happens nevertheless."
)
_HELD = "Job {jid} was held: it is not run, and its master gets a failure."


def call_off(settings: Settings, data: Mapping[str, Any]) -> str | None:
    """
    Keep the jobs that this call ends from running; return the answer, None if Salt answers.

    An error never stops Salt.
    """
    fun = data.get("fun")
    ended = functions.ended(fun, data.get("arg"))
    if not ended:
        return None
    patience = current.PATIENCE
    ledger = Ledger(settings.database, busy_timeout=patience)
    try:
        if not ledger.exists():
            return None
        known = ledger.open() if "" in ended else [j for jid in ended for j in ledger.find(jid)]
        ours = [job for job in known if _may_go_on(job)]
        if not ours:
            return None
        suspensions = Suspensions(settings.database, busy_timeout=patience)
        suspensions.call_off([job.key for job in ours], str(fun))
        waiting = [
            job
            for job in ours
            if (job.awaits or job.state is State.HELD) and not processes.alive(job.runner)
        ]
    except SafeUpdateError as err:
        log.error("safeupdate: a job that %s ends may run nevertheless: %s", fun, err)
        return None
    if not waiting or "" in ended:
        return None
    return (_SUSPENDED if waiting[0].awaits else _HELD).format(jid=waiting[0].jid)


def _may_go_on(job: Job) -> bool:
    resumable = functions.is_resumable(job.fun)
    return job.state is State.HELD or (job.state is State.RUNNING and resumable)
