"""One job of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

# Rows that this process has already logged as unreadable.
_told: set[object] = set()


class State(Enum):
    """The state of a job."""

    HELD = "held"
    ACCEPTED = "accepted"
    RUNNING = "running"
    FINISHED = "finished"
    DELIVERED = "delivered"

    @property
    def ended(self) -> bool:
        return self in (State.FINISHED, State.DELIVERED)


class Job(NamedTuple):
    """
    A row. ``call`` is the published job, ``payload`` its return.

    ``owner`` is the identity of the minion process that accepted it, and ``runner`` the identity of
    the process that runs it. ``attempts`` counts starts, ``sends`` attempts to return.
    ``accepted`` and ``changed`` are epoch seconds. ``unbegun`` is 1 if the runner announces the
    start of the function and has not done so, and otherwise 0. ``awaits`` is the
    :class:`~.suspension.Suspension` of a job that continues after a restart; empty without one.
    """

    key: str
    jid: str
    fun: str
    master: str
    state: State
    owner: str
    runner: str
    accepted: float
    changed: float
    attempts: int
    sends: int
    unbegun: int
    awaits: str
    call: bytes | None
    payload: bytes | None

    @property
    def has_begun(self) -> bool:
        """Whether its function may have begun."""
        return not self.unbegun


def of_row(row: Sequence[Any]) -> Job | None:
    """Return a row of the ledger as a job; None if it has values that no version of us writes."""
    job = Job(*row)
    texts = (job.key, job.jid, job.fun, job.master, job.owner, job.runner, job.awaits)
    numbers = (job.accepted, job.changed, job.attempts, job.sends, job.unbegun)
    if (
        all(isinstance(each, str) for each in texts)
        and all(isinstance(each, int | float) for each in numbers)
        and row[4] in [state.value for state in State]
    ):
        return job._replace(state=State(row[4]))
    if job.key not in _told:
        _told.add(job.key)
        log.error(
            "safeupdate: the row %r of the ledger cannot be read and is left alone: its job is "
            "not reported. Check what happened to it, and delete the row from the table 'jobs'.",
            job.key,
        )
    return None
