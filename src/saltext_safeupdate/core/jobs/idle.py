"""
Whether a minion was restarted when no job ran any more, as the supervisor has noted it.

The restart has waited for its jobs, and the engine looks after none meanwhile. So what it has begun
and not ended was killed before, and nobody wants it to come back.
"""

from __future__ import annotations

from ..record.store import Store
from . import functions
from .ledger import Job


def was(store: Store, job: Job) -> bool:
    """Tell whether that is noted of the minion of a job, and the restart has waited for the job."""
    noted = store.replaceable("idle")
    if not isinstance(noted, dict) or job.jid == noted.get("jid"):
        return False
    return noted.get("process") == job.owner and functions.needs_lock(job.fun)
