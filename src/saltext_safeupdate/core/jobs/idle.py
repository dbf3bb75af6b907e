"""
Whether a minion ended when no job ran any more, as a supervisor or the stop guard has noted.

The restart has waited for its jobs, and the engine recovers none meanwhile. So a job that had begun
and not ended was killed before, and must not run again.
"""

from __future__ import annotations

import os

from ..errors import UnreadableError
from ..generations.table import Generations
from ..host.files import text
from ..record.store import Store
from . import functions
from .job import Job


def was(store: Store, run_dir: str, job: Job) -> bool:
    """Tell whether the minion of a job ended like that, and the restart has waited for the job."""
    if not functions.needs_lock(job.fun):
        return False
    try:
        owner = Generations(store).of(job.owner)
        installed = None if owner is None else owner.idle
    except UnreadableError:
        installed = None
    if installed is not None:
        # The job that installed is resumed if it was killed.
        return job.jid != installed
    boot, _, rest = job.owner.partition(":")
    # The words are the boot, the PID of the minion, and the PIDs of its children.
    words = text(os.path.join(run_dir, "jobs.lock")).split()
    return words[:1] == [boot] and rest.partition(":")[0] in words[1:]
