"""The objects for the jobs of a minion, built together for its table of patches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import salt.minion

from ..core.host import processes
from ..core.jobs.admission import Admission
from ..core.record.database import MAIN_BUSY_TIMEOUT
from ..core.record.store import Store
from ..core.settings import Settings
from . import job_process, proc_files
from .complaints import Complaints
from .intake import Intake
from .job_process import JobProcess, Ticket
from .returns import Returns, without_payload
from .schedule import Scheduled
from .single import Single
from .state_runs import StateRuns
from .waiting_runs import WaitingRuns

if TYPE_CHECKING:
    from .succession import Succession


class Built:
    """
    The functions that replace Salt's.

    *redirect* makes the process read the code below each root from its linked copy. *follows* tells
    whether this minion may be handed over, or follows one that was handed over.
    """

    def __init__(
        self, settings: Settings, redirect: Callable[[Mapping[str, str]], None], *, follows: bool
    ) -> None:
        complaints = Complaints()
        tickets: dict[int, Ticket] = {}
        store = Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
        admission = Admission(settings, store, complain=complaints.tell)
        succession = Single() if not follows else _succession(settings, store, complaints)
        runs = StateRuns(processes.me() if follows else "", settings.stop_timeout)
        intake = Intake(settings, complaints, tickets, admission, succession, runs)
        process = JobProcess(
            settings, complaints, tickets, admission, redirect, lambda: succession.bus
        )
        returns = Returns(settings, complaints)
        scheduled = Scheduled(admission, succession, runs, store, complaints)
        logging.getLogger(salt.minion.__name__).addFilter(without_payload)
        # The main process.
        self.mark = intake.mark
        self.invoke = intake.invoke
        self.queue = intake.queue
        self.process_queue = intake.process_queue
        self.process_state_queue = runs.in_turn(intake.process_queue)
        self.most = intake.most
        self.tidy_up = job_process.tidy_up
        self.told = succession.told
        self.prior = WaitingRuns(settings, complaints, admission, runs).prior
        self.running = proc_files.running
        self.evaluate = scheduled.evaluate
        self.run_scheduled = scheduled.run
        # The process or thread of a job.
        self.target = process.target
        self.function = process.function
        self.prepare = returns.prepare
        self.publish = returns.publish
        self.send = returns.send


def _succession(settings: Settings, store: Store, complaints: Complaints) -> Succession:
    # A minion that does not need it does not import it: it takes memory.
    from .succession import Succession

    return Succession(settings, store, complaints)
