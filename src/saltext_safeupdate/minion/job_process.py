"""
The process or thread of a job: from its start to its end.

It takes over the job's share of the jobs lock and writes into the ledger that the job runs. It also
makes sure that a job which ends without a return does not look interrupted.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from salt.exceptions import CommandExecutionError, SaltException

from ..core.errors import RecordError, SafeUpdateError
from ..core.host import copy_names, processes
from ..core.host.locks import Lock
from ..core.jobs import current, functions
from ..core.jobs.admission import Admission
from ..core.jobs.ledger import Ledger
from ..core.jobs.suspension import Interrupted, Suspended
from ..core.record import kept
from ..core.record.database import MAIN_BUSY_TIMEOUT
from ..core.record.store import Store

# Now, and not when there is a record: then the code on the disk may be changing.
from ..core.record.update import Update
from ..core.settings import Settings
from ..patches import instead
from . import answers, calling_off, queue_lock, queues, unrecorded
from .complaints import Complaints
from .waiting_runs import LATER, GoesBack

log = logging.getLogger(__name__)

# Error numbers of a full file system.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LOST = (
    "Job {jid} was to continue after a restart, and {why}. The part that had run stays in effect; "
    "the rest was not run, and nothing was run twice. Check what is missing, then publish it again."
)
# Our executor, as 'module_executors' names it.
_EXECUTOR = "safeupdate"


class Ticket(NamedTuple):
    """
    The values that a job takes into its process: its share of the jobs lock, if any, and its key.

    *waited*: the job waits for an update, and has done so. *goes_on*: it has begun before, and must
    not begin again.
    """

    lock: Lock | None
    key: str
    waited: bool = False
    goes_on: bool = False


class JobProcess:
    """
    Runs a job in the process or thread that was made for it.

    *redirect* makes the process read the code below each root from its linked copy. *bus* returns
    the directory with the event sockets of this generation; empty: the minion's usual directory.
    """

    def __init__(
        self,
        settings: Settings,
        complaints: Complaints,
        tickets: dict[int, Ticket],
        admission: Admission,
        redirect: Callable[[Mapping[str, str]], None],
        bus: Callable[[], str] = str,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._admission = admission
        self._complaints = complaints
        self._tickets = tickets
        self._redirect = redirect
        self._store = Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
        self._started_after = self._copied()

    def target(
        self,
        original: Callable[..., Any],
        cls: Any,
        minion: Any,
        opts: Any,
        data: Any,
        *more: Any,
    ) -> Any:
        if self._bus() and opts.get("multiprocessing", True):
            from . import own_bus

            # Its events, and the answers to them, use the bus of its own minion.
            own_bus.use(opts, self._bus())
            queue_lock.may_vanish()
        ticket = self._tickets.pop(id(data), None)
        if ticket is None:
            return original(cls, minion, opts, data, *more)
        forked = opts.get("multiprocessing", True)
        if forked:
            queue_lock.keep_private()
            kept.begin()
            _leave_out_executor(minion, opts, data)
        if not isinstance(data.get("fun"), str):
            # Salt calls no executor for several functions.
            calling_off.call_off(self._settings, data)
        attempt, says, lost = self._begin(opts, ticket)
        job = current.Job(
            jid=str(data.get("jid", "")),
            lock=ticket.lock,
            key=ticket.key,
            attempt=attempt,
            says=says,
            blind=bool(ticket.key) and not says,
            waited=ticket.waited,
            lost=lost,
        )
        current.begin(job)
        try:
            if not attempt:
                instead(original)
                log.info("safeupdate: job %s is taken care of elsewhere", job.jid)
                return None
            if forked and self._admission.holding():
                self._keep_to_old_tree()
            if forked and minion is not None and not minion.connected and "pillar" in opts:
                # Without a connection Salt drops the return; with a record the return only waits. A
                # minion without pillar has no master, and Salt checks this if it had one.
                minion.connected = True
            try:
                value = original(cls, minion, opts, data, *more)
            except OSError as err:
                if err.errno in _NO_SPACE and not job.key and not job.returned:
                    _tell_of_full_disk(minion, data, job, err)
                raise
            if job.key and not job.returned:
                self._ended_without_return(opts, job)
            return value
        finally:
            if not forked:
                current.end()

    def _keep_to_old_tree(self) -> None:
        """Let a job that reads the state of an update import this minion's code from the copy."""
        update: Update | None
        try:
            update = self._store.latest() if self._store.exists() else None
            if update is None or update.phase.final or update.id == self._started_after:
                return
        except SafeUpdateError as err:
            self._complaints.log(
                "the linked copy of the old code cannot be looked up for job %s", "-", err
            )
            return
        self._redirect(copy_names.of(update.code.roots, update.id))

    def _copied(self) -> str:
        """
        Return the update under way that has already copied the code, or an empty text.

        A minion that starts then does not run the copied code.
        """
        try:
            update = self._store.latest() if self._store.exists() else None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return ""
        copied = update is not None and copy_names.of(update.code.roots, update.id)
        return update.id if update is not None and copied else ""

    def function(self, original: Callable[..., Any], minion: Any, *args: Any, **kwargs: Any) -> Any:
        """Record that the function of the job begins, and call it."""
        job = current.get()
        if job is not None and job.lost:
            raise CommandExecutionError(_LOST.format(jid=job.jid, why="its record is gone"))
        if job is not None:
            job.begun = True
        if job is not None and job.says:
            job.says = False
            try:
                Ledger(self._settings.database, busy_timeout=job.patience).begin_function(job.key)
            except SafeUpdateError as err:
                job.blind = True
                self._without_record(minion.opts, job.key, err)
        # The function may do anything, for any length of time.
        kept.end()
        if job is not None and args:
            job.may_go_back = _may_go_back(job, args[-1])
        try:
            value = original(minion, *args, **kwargs)
        except GoesBack:
            if job is not None:
                job.went_back = True
            log.info(
                "safeupdate: job %s waits for a state run, and an update waits for the job: it is "
                "held until the minion has restarted",
                job.jid if job is not None else "",
            )
            return LATER
        except Suspended:
            return _goes_on(job)
        except Interrupted as err:
            jid = job.jid if job is not None else ""
            raise CommandExecutionError(_LOST.format(jid=jid, why=err)) from err
        # The function may have caught the exception of the suspension.
        return _goes_on(job) if job is not None and job.suspended else value

    def _begin(self, opts: Any, ticket: Ticket) -> tuple[int, bool, bool]:
        """
        Return the number of the attempt, whether the ledger waits for the start of its function,
        and whether it was to continue and cannot.

        A job that was to continue is left to the engine while the ledger cannot be used.
        """
        key = ticket.key
        if not key:
            return 1, False, False
        try:
            ledger = Ledger(self._settings.database, busy_timeout=current.PATIENCE)
            attempt = ledger.begin(key, processes.this_thread(), says=True)
            if attempt or ledger.outcome(key.partition("/")[0]) is not None:
                return attempt, True, ticket.goes_on and attempt == 1
        except SafeUpdateError as err:
            if ticket.goes_on:
                self._complaints.log("job %s continues later", key, err)
                return 0, False, False
            self._without_record(opts, key, err)
        else:
            gone = RecordError("The database was replaced after the job had been accepted.")
            self._without_record(opts, key, gone)
        return 1, False, ticket.goes_on

    def _without_record(self, opts: Any, key: str, err: SafeUpdateError) -> None:
        self._complaints.log("job %s runs without a record", key, err)
        unrecorded.note(opts, key, processes.this_thread())

    def _ended_without_return(self, opts: Any, job: current.Job) -> None:
        """Record that the job has put itself into the queue of the states, or returns nothing."""
        ledger = Ledger(self._settings.database, busy_timeout=job.patience)
        try:
            # The minion may have taken it out of the queue already. It would drop it as known if
            # the ledger said meanwhile that nothing is left to do.
            if job.went_back or queues.is_in(opts, job.jid):
                ledger.put_back(job.key, processes.this_thread())
            else:
                for found in ledger.find(job.jid):
                    if found.key == job.key and found.runner == processes.this_thread():
                        ledger.delivered(job.key)
        except SafeUpdateError as err:
            self._complaints.log("the end of job %s is not recorded", job.jid, err)
            unrecorded.note(opts)


def _leave_out_executor(minion: Any, opts: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """
    Make Salt skip our executor, if it would only pass the job on to the others.

    It would in the process of each job that was taken in, unless the job ends others. Loading the
    executor takes longer than its work.
    """
    listed = opts.get("module_executors")
    if not isinstance(listed, list) or listed[-1:] == [_EXECUTOR] or _EXECUTOR not in listed:
        return
    if minion is None or getattr(minion, "module_executors", None):
        return
    if functions.ends(data.get("fun"), data.get("arg")) is None:
        minion.module_executors = [name for name in listed if name != _EXECUTOR]


def _goes_on(job: current.Job | None) -> dict[str, bool]:
    """Return the value that Salt takes for the return of a suspended job."""
    if job is not None:
        job.went_back = True
        log.info("safeupdate: job %s continues after a restart", job.jid)
    return LATER


def _may_go_back(job: current.Job, data: Any) -> bool:
    """
    Tell whether Salt leaves the return of the job for later, and the ledger knows the job.

    If it is not recorded whether a job begins again, it may already have done work before its state
    run.
    """
    if not job.key or job.key != job.jid or job.blind:
        return False
    return isinstance(data, dict) and functions.is_resumable(data.get("fun"))


def _tell_of_full_disk(
    minion: Any, data: Mapping[str, Any], job: current.Job, err: OSError
) -> None:
    """Return a job that Salt has given up and no ledger knows: nothing else would report it."""
    became = (
        "The part that had run stays in effect; check that before you send it again."
        if job.begun
        else "It was not run; send it again when there is space."
    )
    told = f"ERROR: The minion could not write a file that this job needs ({err}). {became}"
    log.error("safeupdate: job %s is not recorded: %s", job.jid, told)
    try:
        minion._return_pub(answers.as_return(data, told, retcode=1))
    except (SaltException, OSError) as failed:
        log.error("safeupdate: job %s cannot be answered either: %s", job.jid, failed)


def tidy_up(original: Callable[..., Any], minion: Any) -> None:
    """
    Let a minion clean up the processes of its jobs, unless it is being torn down.

    Salt tears it down in its handler of SIGTERM, which may interrupt this very function. Then the
    function continues with attributes that are gone.
    """
    try:
        original(minion)
    except AttributeError:
        if minion._running is not False:
            raise
