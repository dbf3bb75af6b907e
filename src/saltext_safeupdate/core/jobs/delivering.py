"""What the engine has the minion do: it has the connections of the masters, and the queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Protocol

from ..generations.generation import Probe
from ..record.store import PhaseRow
from ..record.update import Update
from .ledger import Job


class Answer(Enum):
    """What a master said to a return."""

    TAKEN = "taken"
    # It is there and could not store it: its job cache may be broken.
    FAILED = "failed"
    NONE = "none"


class Delivery(Protocol):
    """What the minion does for the engine: it has the masters' connections and the queues."""

    def publish(self, row: PhaseRow, update: Update | None) -> bool:
        """Tell the master of a phase; say whether it took it."""

    def send(self, job: Job) -> Answer:
        """Send an undelivered return; return what its master says."""

    def call(self, job: Job) -> Mapping[str, Any]:
        """Return what was published."""

    def run(self, job: Job) -> None:
        """Put a job where the minion starts it under its JID. Raises OSError."""

    def probe(self, wanted: Probe) -> bool:
        """
        Put the probe of the supervisor where the minion starts it; say whether it can be yet.

        Raises OSError.
        """

    def queued(self) -> Collection[str]:
        """Return the JIDs that lie in a queue."""

    def kept(self) -> Collection[str]:
        """Return the keys of jobs whose return is kept beside the ledger."""

    def describe(self, job: Job, text: str) -> bytes:
        """Return the failed return of a job, with *text* as what it says."""

    def hand_over(self, job: Job, payload: bytes) -> None:
        """Give such a return to whom the job returns beside its master."""
