"""
The table of the functions of Salt that the minion replaces.

The parameters are the ones that Salt 3006, 3007 and 3008 have in common and that we rely on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt.crypt
import salt.minion
import salt.utils.event
import salt.utils.minion
import salt.utils.network
import salt.utils.process
import salt.utils.schedule
import salt.utils.state
from salt.exceptions import CommandExecutionError, SaltReqTimeoutError

from ..core.errors import SafeUpdateError
from ..core.host import processes
from ..core.record.database import MAIN_BUSY_TIMEOUT
from ..core.record.store import Store
from ..core.settings import Settings
from ..patches import Later, Patch, replaced, unchanged
from . import acks
from .masters import Keys
from .ready import Ready, engine_later, or_wait_on, start_engines
from .rest import restarting


def patches(
    settings: Settings,
    redirect: Callable[[Mapping[str, str]], None],
    *,
    hands_over: bool = False,
    serves: bool = True,
    threads: bool = False,
    before_jobs: Iterable[Callable[[], None]] = (),
    when_ready: Iterable[Callable[[], None]] = (),
) -> list[Patch]:
    """
    Return the table. The objects for the jobs of this process are built when it is ready.

    *hands_over* tells whether this minion may be handed over. *serves* tells whether this is a
    minion, and not a program such as ``salt-call``. *threads* tells whether its jobs are threads: a
    process that is forked during one would inherit its locks, of files and of Python. *redirect*
    makes the process read the code below each root from its linked copy. *before_jobs* are
    functions that :class:`.Ready` calls before the first job, and *when_ready* those that the jobs
    do not need.
    """
    follows = serves and (hands_over or _follows(settings))

    def build() -> Any:
        from .built import Built

        return Built(settings, redirect, follows=follows)

    later = Later(build)
    shares = (lambda: _follows(settings)) if follows else (lambda: False)
    ready = Ready([*before_jobs, later.build], [*when_ready, start_engines], shares)
    before_job = ready.before if threads else ready.before_job
    minion, schedule = salt.minion.Minion, salt.utils.schedule.Schedule
    return [
        # The main process.
        _by(minion, "_handle_decoded_payload", ("self", "data"), later.by("mark"), may_wait=True),
        _by(minion, "_invoke_execution", ("self", "data"), before_job(later.by("invoke"))),
        Patch(minion, "_fire_master_minion_start", ("self",), ready.after, may_wait=True),
        _by(
            salt.utils.process.ProcessManager,
            "add_process",
            ("self", "tgt", "args", "kwargs", "name"),
            engine_later,
        ),
        _by(
            salt.utils.process.ProcessManager,
            "restart_process",
            ("self", "pid"),
            restarting(settings),
        ),
        Patch(
            salt.crypt.AsyncAuth,
            "handle_signin_response",
            _ANSWER,
            replaced(_ANSWER, Keys(settings.database).answered) if serves else unchanged,
        ),
        Patch(salt.utils.network, "dns_check", ("addr", "port"), or_wait_on),
        _by(minion, "_queue_job", ("self", "data"), later.by("queue")),
        _by(minion, "process_process_queue", ("self",), later.by("process_queue")),
        _by(minion, "process_state_queue", ("self",), later.by("process_state_queue")),
        _by(minion, "_get_effective_process_count_max", ("self",), later.by("most")),
        _by(minion, "cleanup_subprocesses", ("self",), later.by("tidy_up")),
        # There are many events, and a minion that is never handed over need not pass them on.
        Patch(
            minion,
            "handle_event",
            _EVENT,
            replaced(_EVENT, later.by("told")) if follows else unchanged,
            may_wait=True,
        ),
        Patch(minion, "_return_pub_main", ("self", "ret"), unchanged, may_wait=True),
        Patch(
            salt.utils.state,
            "check_prior_running_states",
            _PRIOR,
            replaced(_PRIOR, _prior(later), (CommandExecutionError,)),
        ),
        Patch(salt.utils.state, "job_queue_dir", ("opts",), unchanged),
        Patch(salt.utils.state, "state_queue_dir", ("opts",), unchanged),
        _by(salt.utils.minion, "running", ("opts",), _running),
        _by(salt.utils.schedule, "clean_proc_dir", ("opts",), _cleaned),
        # The process or thread of a job.
        _by(
            minion,
            "_target",
            ("cls", "minion_instance", "opts", "data", "connected", "creds_map"),
            later.by("target"),
        ),
        Patch(
            minion,
            "_execute_job_function",
            _FUNCTION,
            # A run that was to continue and cannot.
            replaced(_FUNCTION, later.by("function"), (CommandExecutionError,)),
        ),
        _by(minion, "_prepare_return_pub", ("self", "ret", "ret_cmd"), later.by("prepare")),
        _by(minion, "_return_pub", ("self", "ret"), later.by("publish")),
        # A return that gets no turn is not sent; the engine sends it later.
        Patch(
            minion,
            "_send_req_sync",
            _SENT,
            replaced(_SENT, later.by("send"), (SaltReqTimeoutError,)),
        ),
        _by(schedule, "eval", ("self", "now"), ready.before(later.by("evaluate"))),
        Patch(schedule, "_get_schedule", ("self",), unchanged),
        _by(schedule, "_run_job", ("self", "func", "data"), later.by("run_scheduled")),
        Patch(
            salt.utils.event.SaltEvent,
            "fire_event_async",
            ("self", "data", "tag"),
            acks.waiting_for_what_it_sends,
            may_wait=True,
        ),
    ]


def _running(original: Callable[..., Any], opts: Any) -> Any:
    # A salt-call asks this of each state run, and needs nothing else of what is built.
    from . import proc_files

    return proc_files.running(original, opts)


def _cleaned(original: Callable[..., Any], opts: Any) -> Any:
    from . import proc_files

    return proc_files.cleaned(original, opts)


def _prior(later: Later) -> Callable[..., Any]:
    def prior(original: Callable[..., Any], opts: Any, jid: Any, active_jobs: Any) -> Any:
        found = original(opts, jid, active_jobs)
        # Nearly every run waits for no other.
        return found and later.parts().prior(lambda *_: found, opts, jid, active_jobs)

    return prior


def _follows(settings: Settings) -> bool:
    """Tell whether an earlier minion still takes jobs, or a later one has come after this one."""
    from ..core.generations.table import Generations

    with contextlib.suppress(SafeUpdateError):
        generations = Generations(Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT))
        return bool(generations.overlapping()) or processes.me() in generations.leaving()
    return False


_EVENT = ("self", "package")
_ANSWER = ("self", "sign_in_payload", "payload")
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
    """Return the row that calls *handle* instead of a function."""
    return Patch(owner, name, parameters, replaced(parameters, handle), may_wait)
