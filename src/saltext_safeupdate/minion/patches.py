"""
What takes the place of functions of Salt in the minion: the table.

The parameters are those that Salt 3006, 3007 and 3008 have in common and that we rely on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import salt.minion
import salt.utils.event
import salt.utils.minion
import salt.utils.schedule
import salt.utils.state
from salt.exceptions import CommandExecutionError, SaltReqTimeoutError

from ..core.errors import SafeUpdateError
from ..core.generations.table import Generations
from ..core.jobs.admission import Admission
from ..core.record.store import Store
from ..core.settings import Settings
from ..patches import Patch, Replace, replaced, unchanged
from . import acks, job_process, proc_files
from .complaints import Complaints
from .intake import Intake
from .job_process import MAIN_BUSY_TIMEOUT, JobProcess, Ticket
from .ready import Ready
from .returns import Returns, without_payload
from .schedule import Scheduled
from .single import Single
from .waiting_runs import WaitingRuns

if TYPE_CHECKING:
    from .succession import Succession


def patches(
    settings: Settings,
    redirect: Callable[[Mapping[str, str]], None],
    *,
    hands_over: bool = False,
    when_ready: Iterable[Callable[[], None]] = (),
) -> list[Patch]:
    """
    Build what looks after the jobs of this process, and return the table.

    *hands_over* tells whether this minion may be handed over. *redirect* has the process read the
    code below each root from its linked copy. *when_ready* is what :class:`.Ready` does.
    """
    complaints = Complaints()
    tickets: dict[int, Ticket] = {}
    store = Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
    admission = Admission(settings, store, complain=complaints.tell)
    succession = _succession(settings, store, complaints, follows=hands_over)
    intake = Intake(settings, complaints, tickets, admission, succession)
    process = JobProcess(settings, complaints, tickets, admission, redirect, lambda: succession.bus)
    returns = Returns(settings, complaints)
    scheduled = Scheduled(admission, succession)
    waiting = WaitingRuns(settings, complaints, admission)
    ready = Ready(when_ready)
    minion, schedule = salt.minion.Minion, salt.utils.schedule.Schedule
    return [
        # The main process.
        _by(minion, "_handle_decoded_payload", ("self", "data"), intake.mark, may_wait=True),
        _by(minion, "_invoke_execution", ("self", "data"), ready.before(intake.invoke)),
        _by(minion, "_queue_job", ("self", "data"), intake.queue),
        _by(minion, "process_process_queue", ("self",), intake.process_queue),
        _by(minion, "process_state_queue", ("self",), intake.process_queue),
        _by(minion, "_get_effective_process_count_max", ("self",), intake.most),
        _by(minion, "cleanup_subprocesses", ("self",), job_process.tidy_up),
        Patch(minion, "handle_event", _EVENT, _telling(succession), may_wait=True),
        Patch(minion, "_return_pub_main", ("self", "ret"), unchanged, may_wait=True),
        Patch(
            salt.utils.state,
            "check_prior_running_states",
            _PRIOR,
            replaced(_PRIOR, waiting.prior, (CommandExecutionError,)),
        ),
        Patch(salt.utils.state, "job_queue_dir", ("opts",), unchanged),
        Patch(salt.utils.state, "state_queue_dir", ("opts",), unchanged),
        _by(salt.utils.minion, "running", ("opts",), proc_files.running),
        # The process or thread of a job.
        _by(
            minion,
            "_target",
            ("cls", "minion_instance", "opts", "data", "connected", "creds_map"),
            process.target,
        ),
        Patch(
            minion,
            "_execute_job_function",
            _FUNCTION,
            # A run that was to go on and cannot.
            replaced(_FUNCTION, process.function, (CommandExecutionError,)),
        ),
        _by(minion, "_prepare_return_pub", ("self", "ret", "ret_cmd"), returns.prepare),
        _by(minion, "_return_pub", ("self", "ret"), returns.publish),
        Patch(minion, "_send_req_sync", _SENT, _sending(returns)),
        _by(schedule, "eval", ("self",), ready.before(scheduled.evaluate)),
        _by(schedule, "_run_job", ("self", "func", "data"), scheduled.run),
        Patch(
            salt.utils.event.SaltEvent,
            "fire_event_async",
            ("self", "data", "tag"),
            acks.waiting_for_what_it_sends,
            may_wait=True,
        ),
    ]


def _succession(
    settings: Settings, store: Store, complaints: Complaints, *, follows: bool
) -> Succession | Single:
    """Return what a main process does about others; one that waits may follow another one."""
    with contextlib.suppress(SafeUpdateError):
        follows = follows or bool(Generations(store).overlapping())
    if not follows:
        return Single()
    # Whoever does not use it does without it: it takes memory.
    from .succession import Succession

    return Succession(settings, store, complaints)


_EVENT = ("self", "package")
_SENT = ("self", "load", "timeout")
_PRIOR = ("opts", "jid", "active_jobs")
_FUNCTION = ("self", "function_name", "function_args", "executors", "opts", "data")


def _by(
    owner: Any,
    name: str,
    parameters: tuple[str, ...],
    handle: Callable[..., Any],
    *,
    may_wait: bool = False,
) -> Patch:
    """Return the row by which *handle* is called in the place of a function."""
    return Patch(owner, name, parameters, replaced(parameters, handle), may_wait)


def _telling(succession: Succession | Single) -> Replace:
    # There are many events, and one that is never handed over has nobody to tell of them.
    return unchanged if isinstance(succession, Single) else replaced(_EVENT, succession.told)


def _sending(returns: Returns) -> Replace:
    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        logging.getLogger(salt.minion.__name__).addFilter(without_payload)
        # A return that has no turn is not sent, and the engine sends it later.
        return replaced(_SENT, returns.send, (SaltReqTimeoutError,))(original)

    return replace
