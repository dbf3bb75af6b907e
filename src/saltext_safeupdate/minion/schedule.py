"""Jobs of the minion's own schedule. No master published them, so they are not recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..core.jobs import current
from ..core.jobs.admission import Admission

log = logging.getLogger(__name__)


class Scheduled:
    """Gives a scheduled job its share of the jobs lock, and leaves it out while jobs are held."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def evaluate(
        self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Look what is due, unless that could not start now."""
        if self._admission.holding():
            return None
        return original(schedule, *args, **kwargs)

    def run(self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a job."""
        lock, may_start = self._admission.share()
        if not may_start:
            log.info("safeupdate: a scheduled job is left out while the minion is updated")
            return None
        previous = current.get()
        current.begin(current.Job(jid="", lock=lock))
        try:
            return original(schedule, *args, **kwargs)
        finally:
            current.end()
            if previous is not None:
                current.begin(previous)
