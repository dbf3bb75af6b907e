"""Work that the minion does for the engine: it has the masters' connections and the queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Protocol

from ..generations.generation import Probe
from ..record.store import PhaseRow
from ..record.update import Update
from .ledger import Job


class Answer(Enum):
    """The answer of a master to a return."""

    TAKEN = "taken"
    # It is there and could not store the return: its job cache may be broken.
    FAILED = "failed"
    NONE = "none"


class Delivery(Protocol):
    """Work that the minion does for the engine: it has the masters' connections and the queues."""

    def publish(self, row: PhaseRow, update: Update | None) -> bool:
        """Report a phase to the master; tell whether that worked."""

    def send(self, job: Job) -> Answer:
        """Send an undelivered return; return the master's answer."""

    def call(self, job: Job) -> Mapping[str, Any]:
        """Return the job as it was published."""

    def run(self, job: Job) -> None:
        """Put a job where the minion starts it under its JID. Raise OSError."""

    def probe(self, wanted: Probe) -> bool:
        """
        Put the probe of the supervisor where the minion starts it; tell whether that is possible.

        Raise OSError.
        """

    def queued(self) -> Collection[str]:
        """Return the JIDs of the jobs in the queues."""

    def kept(self) -> Collection[str]:
        """Return the keys of jobs whose return is stored outside of the ledger."""

    def describe(self, job: Job, text: str) -> bytes:
        """Return the failed return of a job, with *text* as its content."""

    def hand_over(self, job: Job, payload: bytes) -> None:
        """Give such a return to the returners of the job."""
