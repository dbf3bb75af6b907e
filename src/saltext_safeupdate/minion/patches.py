"""
What takes the place of functions of Salt in the minion: the table.

The parameters are those that Salt 3006, 3007 and 3008 have in common and that we rely on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import salt.minion
import salt.utils.event
import salt.utils.minion
import salt.utils.schedule
import salt.utils.state

from ..core.jobs.admission import Admission
from ..core.record.store import Store
from ..core.settings import Settings
from ..patches import Patch, unchanged
from . import acks, job_process, proc_files
from .complaints import Complaints
from .intake import Intake
from .job_process import MAIN_BUSY_TIMEOUT, JobProcess, Ticket
from .returns import Returns, without_payload
from .schedule import Scheduled

Replace = Callable[[Callable[..., Any]], Callable[..., Any]]


def patches(settings: Settings, redirect: Callable[[Mapping[str, str]], None]) -> list[Patch]:
    """
    Build what looks after the jobs of this process, and return the table.

    *redirect* has the process read the code below each root from its linked copy.
    """
    complaints = Complaints()
    tickets: dict[int, Ticket] = {}
    store = Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
    admission = Admission(settings, store, complain=complaints.tell)
    intake = Intake(settings, complaints, tickets, admission)
    process = JobProcess(settings, complaints, tickets, admission, redirect)
    returns = Returns(settings, complaints)
    scheduled = Scheduled(admission)
    minion, schedule = salt.minion.Minion, salt.utils.schedule.Schedule
    exact = functools.partial(Patch, exact=True)
    return [
        # The main process.
        exact(minion, "_handle_decoded_payload", ("self", "data"), _by(intake.mark)),
        exact(minion, "_invoke_execution", ("self", "data"), _by(intake.invoke)),
        exact(minion, "_queue_job", ("self", "data"), _by(intake.queue)),
        Patch(minion, "process_process_queue", ("self",), _by(intake.process_queue)),
        Patch(minion, "process_state_queue", ("self",), _by(intake.process_queue)),
        exact(minion, "_get_effective_process_count_max", ("self",), _by(intake.most)),
        exact(minion, "cleanup_subprocesses", ("self",), _by(job_process.tidy_up)),
        Patch(minion, "_return_pub_main", ("self", "ret"), unchanged),
        Patch(salt.utils.state, "job_queue_dir", ("opts",), unchanged),
        Patch(salt.utils.state, "state_queue_dir", ("opts",), unchanged),
        Patch(salt.utils.minion, "running", ("opts",), _by(proc_files.running)),
        # The process or thread of a job.
        Patch(minion, "_target", ("cls", "minion_instance", "opts", "data"), _by(process.target)),
        Patch(minion, "_execute_job_function", ("self",), _by(process.function)),
        exact(minion, "_prepare_return_pub", ("self", "ret", "ret_cmd"), _by(returns.prepare)),
        Patch(minion, "_return_pub", ("self", "ret"), _by(returns.publish)),
        exact(minion, "_send_req_sync", ("self", "load", "timeout"), _sending(returns)),
        Patch(schedule, "eval", ("self",), _by(scheduled.evaluate)),
        Patch(schedule, "_run_job", ("self", "func", "data"), _by(scheduled.run)),
        Patch(
            salt.utils.event.SaltEvent,
            "fire_event_async",
            ("self", "data", "tag"),
            acks.waiting_for_what_it_sends,
        ),
    ]


def _by(handle: Callable[..., Any]) -> Replace:
    """Have *handle* called in the place of a function, with that function before its arguments."""

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return handle(original, *args, **kwargs)

        return replacement

    return replace


def _sending(returns: Returns) -> Replace:
    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        logging.getLogger(salt.minion.__name__).addFilter(without_payload)
        return _by(returns.send)(original)

    return replace
