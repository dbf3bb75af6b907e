"""
State runs that wait for other state runs, as with ``queue=2``, while an update holds new jobs.

Such a run checks again and again in its own process. It has its share of the jobs lock all the
time, and may wait for the very run that updates the minion: each would wait for the other. It has
done nothing yet, so it is held as if it had just arrived.
"""

from __future__ import annotations

from typing import Any

import salt.payload
from salt.exceptions import CommandExecutionError

from ..core.errors import SafeUpdateError
from ..core.jobs import current
from ..core.jobs.admission import Admission
from ..core.jobs.ledger import Ledger
from ..core.settings import Settings
from . import queues
from .complaints import Complaints
from .state_runs import StateRuns

# The value by which Salt knows that a job returns later.
LATER = {"__no_return__": True}


class GoesBack(BaseException):
    """
    This job is in the queue again.

    It is not an Exception, because code on its way turns exceptions into results.
    """


class WaitingRuns:
    """Checks what a state run waits for, each time that Salt does."""

    def __init__(
        self, settings: Settings, complaints: Complaints, admission: Admission, runs: StateRuns
    ) -> None:
        self._runs = runs
        self._settings = settings
        self._complaints = complaints
        self._admission = admission

    def prior(self, original: Any, opts: Any, jid: Any, active_jobs: Any) -> Any:
        """Return the runs to wait for, unless two runs may wait for each other."""
        found = original(opts, jid, active_jobs)
        found = [each for each in found if not self._runs.is_overdue(each)]
        job = current.get()
        if not found or job is None:
            return found
        if not (self._admission.updating() or self._keeps_packages(job)):
            return found
        if job.may_go_back and str(jid) == job.jid:
            if self._is_queued(opts, job):
                raise GoesBack
        elif not job.jid and str(opts.get("fun", "")).startswith("state."):
            raise CommandExecutionError(
                "An update of the minion is under way and waits for this state run, which waits "
                "for another one. Nothing was done; 'salt-call --local safeupdate.status' shows "
                "when the update has ended. Then run this again."
            )
        return found

    def _keeps_packages(self, job: current.Job) -> bool:
        """Tell whether an update during jobs waits for this process, which reads the code."""
        return job.packages is not None and self._admission.awaits_packages()

    def _is_queued(self, opts: Any, job: current.Job) -> bool:
        """Put the published job into the queue; tell whether that worked."""
        try:
            known = Ledger(self._settings.database, busy_timeout=job.patience).full(job.key)
            if known is None or known.call is None:
                return False
            queues.put(opts, salt.payload.loads(known.call))
        except SafeUpdateError as err:
            self._complaints.log("job %s cannot be held and still waits", job.jid, err)
            return False
        except OSError as err:
            told = SafeUpdateError(f"{err.strerror or err}: free space below 'cachedir'.")
            self._complaints.log("job %s cannot be held and still waits", job.jid, told)
            return False
        return True
