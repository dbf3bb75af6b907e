"""
Incoming jobs, in the minion's main process.

Every job, new or from one of Salt's queues, passes ``Minion._invoke_execution``. There it is
recorded in the ledger and gets its share of the jobs lock, before the fork, so that every
published job is known. While an update keeps new jobs from starting, the job is put into Salt's
own queue on disk instead, and the next minion runs it under its JID. This needs no imports, so it
works while the tree on disk is being replaced.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import salt.payload
import salt.utils.files

from ..core.errors import DamagedError, SafeUpdateError
from ..core.generations.table import Generations
from ..core.host import processes
from ..core.host.locks import Lock
from ..core.jobs import functions, update_wait
from ..core.jobs.admission import Admission
from ..core.jobs.ledger import Ledger, State
from ..core.jobs.suspension import Suspensions
from ..core.record.database import MAIN_BUSY_TIMEOUT
from ..core.record.store import Store
from ..core.settings import Settings
from ..patches import instead
from . import answers, publication, queues, steady, unrecorded
from .answers import Answers
from .complaints import Complaints
from .job_process import Ticket
from .masters import Noting
from .single import Single
from .startup import Startup
from .state_runs import StateRuns

if TYPE_CHECKING:
    from .succession import Succession

log = logging.getLogger(__name__)

# Held jobs that start together, each time that Salt checks its queue (several times a second): all
# at once are too many for a host that has just restarted its minion.
TOGETHER = max(2, os.cpu_count() or 1)


class Intake:
    """
    Records jobs, counts them, and holds them.

    *tickets* holds what each job takes along, for the job's process or thread.
    """

    def __init__(
        self,
        settings: Settings,
        complaints: Complaints,
        tickets: dict[int, Ticket],
        admission: Admission,
        succession: Succession | Single,
        runs: StateRuns,
    ) -> None:
        self._complaints = complaints
        self._succession = succession
        self._tickets = tickets
        self._admission = admission
        self._runs = runs
        self._startup = Startup(runs, lambda: succession.is_on_trial or admission.unproven())
        self._ledger = Ledger(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
        self._suspensions = Suspensions(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
        self._store = Store(settings.database, busy_timeout=MAIN_BUSY_TIMEOUT)
        self._generations = Generations(self._store)
        self._answers = Answers(self._ledger, complaints)
        self._main = (0, "")
        self._waits = update_wait.Waits(self._store)
        self._masters = Noting(self._store, complaints, self._has_begun)

    def mark(self, original: Callable[..., Any], minion: Any, data: Any) -> Any:
        """Mark jobs from one of Salt's queues, and give them their whole JID."""
        # Salt removes its own mark before it starts the job.
        if isinstance(data, dict) and data.get("__ignore_process_count_max"):
            data[queues.QUEUED] = True
            data["jid"] = queues.whole_jid(minion.opts, data)
        return original(minion, data)

    def process_queue(self, original: Callable[..., Any], minion: Any) -> Any:
        """Process a queue, unless the jobs in it would only be held again."""
        steady.keep(minion)
        others = self._succession.look(minion)
        if others and not self._succession.is_on_trial:
            instead(original)
            return None
        self._masters.note(minion)
        if others:
            # It has to show that it works, and leaves the rest to the former minion.
            self._start_first(minion)
            instead(original)
            return None
        if self._admission.holding() and not self._is_asked(minion):
            return None
        if not self._succession.serves_on:
            self._masters.take_over(minion)
            self._start_first(minion)
        # Salt may begin to take a state run out of its queue now: startup states wait for that.
        original(minion)
        self._startup.begin(minion)
        return None

    @staticmethod
    def _start_first(minion: Any) -> None:
        """
        Start the probe, by which an update checks whether the minion works.

        It may exceed Salt's limit for processes by one: otherwise long jobs would make a healthy
        minion look as if it took no jobs.
        """
        job = queues.take_first(minion.opts)
        if job is not None:
            job[queues.QUEUED] = True
            minion._invoke_execution(job)

    @staticmethod
    def most(original: Callable[..., Any], minion: Any) -> int:
        """Return how many jobs may run; while a queue is processed, a few more than run now."""
        limit = int(original(minion))
        if not getattr(minion, "_process_queue_processing_active", False):
            return limit
        running = [each for each in minion.subprocess_list.processes if each.is_alive()]
        return min(limit, len(running) + TOGETHER)

    def invoke(self, original: Callable[..., Any], minion: Any, data: dict[str, Any]) -> Any:
        """Start the job with its share of the lock, hold it, or ignore it if it is known."""
        if self._succession.serves_on and _is_asked_for(data):
            # A health check that has waited for a state run belongs to the next minion.
            queues.put(minion.opts, data, first=True, apart=True)
            instead(original)
            return None
        queued = bool(data.pop(queues.QUEUED, False))
        of_jobs = bool(data.pop(queues.OF_JOBS, False))
        is_mine = queued or self._succession.is_mine(minion, data)
        if not is_mine or self._startup.keep(minion, data):
            instead(original)
            return None
        if self._answers.about_pending(minion, data):
            return None
        waited = False
        if functions.waits_for_update(data.get("fun")):
            held = self._wait(minion, data)
            if held:
                return None
            waited = held is False
        asked = _is_asked_for(data) and str(data.get("jid")) == self._asked()
        lock, may_start = self._admission.share(awaited=asked)
        if not may_start and not functions.starts_at_once(data.get("fun")):
            self._hold(original, minion, data, queued)
            return None
        if not may_start or self._answers.is_of_earlier(data):
            self._note_look(minion, data)
        try:
            self._let_wait_for_earlier(minion, data)
            return self._start(original, minion, data, lock, waited, (queued, of_jobs))
        except BaseException:
            # A share that is never released would keep every update from beginning.
            self._tickets.pop(id(data), None)
            if lock is not None:
                lock.close()
            raise

    def _let_wait_for_earlier(self, minion: Any, data: dict[str, Any]) -> None:
        """Have a published state run wait if only runs from before the restart are in its way."""
        if not publication.name(data) or not publication.is_refused_beside_others(data):
            return
        active = self._runs.active(minion.opts)
        if active and (self._succession.is_handed_over or all(map(self._runs.is_earlier, active))):
            data["arg"] = publication.behind_others(data)["arg"]

    def _start(
        self,
        original: Callable[..., Any],
        minion: Any,
        data: dict[str, Any],
        lock: Lock | None,
        waited: bool,
        source: tuple[bool, bool],
    ) -> Any:
        """Start the job with its share of the lock, unless it is known."""
        key: str | None = publication.key(data)
        goes_on = bool(data.pop(publication.GOES_ON, False))
        if key:
            goes_on = goes_on or (source[0] and self._has_progress(key))
            key = self._accept(minion, data, key, _may_start_from(*source), goes_on)
        if key is None:
            instead(original)
            if lock is not None:
                lock.close()
            return None
        self._tickets[id(data)] = Ticket(lock, key, waited, goes_on)
        process = None
        try:
            process = original(minion, data)
            self._runs.has_begun(publication.function(data), process)
        finally:
            if process is None or minion.opts.get("multiprocessing", True):
                # A child has the open file too; a thread closes it at its end.
                self._tickets.pop(id(data), None)
                if lock is not None:
                    lock.close()
        return process

    def queue(self, original: Callable[..., Any], minion: Any, data: dict[str, Any]) -> Any:
        """Record a job that Salt puts into its queue, unless it is known already."""
        queued = bool(data.pop(queues.QUEUED, False))
        if not queued and not self._succession.is_mine(minion, data):
            instead(original)
            return None
        key = publication.key(data)
        if key:
            try:
                known = self._ledger.hold(key, **self._described(minion, data))
                if known is State.ACCEPTED and id(data) in self._tickets:
                    # The process of the job could not be started.
                    self._ledger.put_back(key, "")
                elif known is not None and not queued:
                    log.info(
                        "safeupdate: job %s is known (%s) and not queued again",
                        data["jid"],
                        known.value,
                    )
                    return None
            except SafeUpdateError as err:
                self._complaints.log("job %s is queued without a record", data.get("jid"), err)
        elif not queued and functions.is_recorded(data.get("fun")) and _lies_there(minion, data):
            # Startup states that an earlier minion has left there.
            return None
        data[queues.OF_JOBS] = str(data.get("jid"))
        # It may stay there for a while, with its arguments.
        with salt.utils.files.set_umask(0o077):
            return original(minion, data)

    def _asked(self) -> str:
        """Return the JID of the probe, by which an update checks whether the minion works."""
        try:
            ours = self._generations.of(processes.me())
            wanted = None if ours is None else ours.probe
        except SafeUpdateError:
            return ""
        return "" if wanted is None else wanted.jid

    def _is_asked(self, minion: Any) -> bool:
        """Tell whether the probe waits in the queue while only an administrator holds jobs."""
        jid = self._asked() if self._admission.drained() else ""
        return bool(jid) and queues.find(minion.opts, jid) is not None

    def _wait(self, minion: Any, data: dict[str, Any]) -> bool | None:
        """
        Hold a job that waits for an update, until the engine sees that the wait is over.

        Return whether it is held now; None if that is not possible.
        """
        key = publication.key(data)
        try:
            known = self._ledger.full(key) if self._ledger.exists() else None
            accepted = known.accepted if known is not None else None
            if not key:
                return None
            if self._waits.is_over(key, data, accepted):
                return False
            self._ledger.hold(key, **self._described(minion, data))
        except SafeUpdateError as err:
            self._complaints.log("job %s cannot wait", data.get("jid"), err)
            return None
        return True

    def _hold(
        self, original: Callable[..., Any], minion: Any, data: dict[str, Any], queued: bool
    ) -> None:
        """Answer the job, or put it into Salt's queue until the minion has restarted."""
        if self._answers.while_held(minion, data):
            self._note_look(minion, data)
            return
        if queued:
            data[queues.QUEUED] = True
        # It may be in the queue from here on: whatever happens, it must not start as well.
        instead(original)
        try:
            minion._queue_job(data)
        finally:
            held = self._is_held_somewhere(minion, data)
        if held:
            self._note_look(minion, data)
            log.info("safeupdate: job %s is held until the minion has restarted", data.get("jid"))

    def _is_held_somewhere(self, minion: Any, data: dict[str, Any]) -> bool:
        """Tell whether the job will run later; otherwise answer that it was not run."""
        jid = str(data.get("jid"))
        # The engine takes care of a job that is in the ledger and in no queue.
        if queues.find(minion.opts, jid) is not None or self._is_known(jid):
            return True
        log.error("safeupdate: job %s could not be held and was not run", jid)
        answers.send(
            minion,
            data,
            "ERROR: An update of the minion is under way, and this job could not be held until "
            "its end, because the queue of the minion cannot be written. The job was not run; "
            "free space under 'cachedir' and send it again.",
            retcode=1,
        )
        return False

    def _has_progress(self, key: str) -> bool:
        """Tell whether states of a job are recorded."""
        try:
            return self._suspensions.has_progress(key)
        except SafeUpdateError:
            return False

    def _accept(
        self,
        minion: Any,
        data: dict[str, Any],
        key: str,
        over: tuple[State, ...],
        goes_on: bool,
    ) -> str | None:
        """Record the job; return its key, an empty key without a record, None if it is known."""
        try:
            described = self._described(minion, data)
            known = self._ledger.accept(key, **described, over=over)
            if (
                known is State.RUNNING
                and minion.opts.get("resume_jobs_on_restart")
                and self._is_abandoned(key)
            ):
                # Salt resumes an interrupted job by itself and under its JID.
                known = self._ledger.accept(key, **described, over=(State.RUNNING,))
        except DamagedError as err:
            # The ledger has the job, even if its record is damaged.
            self._complaints.log("job %s is known and not run", data.get("jid"), err)
            return None
        except SafeUpdateError as err:
            if goes_on or (over and self._is_held(key)):
                # It would run twice: the engine brings it back when the ledger can be written.
                self._complaints.log("job %s stays held", data.get("jid"), err)
                return None
            self._complaints.log("job %s runs without a record", data.get("jid"), err)
            unrecorded.note(minion.opts)
            return ""
        if known is None:
            return key
        log.info("safeupdate: job %s is known (%s) and not run again", data["jid"], known.value)
        if known is State.DELIVERED and not over:
            self._answers.of_ended(minion, data, key)
        return None

    def _is_held(self, key: str) -> bool:
        try:
            job = self._ledger.full(key)
        except SafeUpdateError:
            return False
        return job is not None and job.state is State.HELD

    def _is_abandoned(self, key: str) -> bool:
        job = self._ledger.full(key)
        return job is not None and not processes.alive(job.runner)

    def _is_known(self, jid: str) -> bool:
        """Tell whether the ledger has the job: the engine runs it if it is held in no queue."""
        try:
            return self._ledger.exists() and bool(self._ledger.find(jid))
        except SafeUpdateError:
            return False

    def _has_begun(self, jid: str) -> bool:
        try:
            return any(job.state is not State.HELD for job in self._ledger.find(jid))
        except SafeUpdateError:
            return False

    def _note_look(self, minion: Any, data: dict[str, Any]) -> None:
        self._answers.note_look(data, lambda: self._described(minion, data))

    def _described(self, minion: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "jid": str(data["jid"]),
            "fun": publication.function(data),
            "master": str(minion.opts.get("master", "")),
            "call": salt.payload.dumps(data),
            "owner": self._me(),
        }

    def _me(self) -> str:
        if self._main[0] != os.getpid():
            self._main = (os.getpid(), processes.me())
        return self._main[1]


def _is_asked_for(data: Mapping[str, Any]) -> bool:
    """Tell whether this job is a probe or a health check of an update."""
    return data.get("user") == publication.ASKED_BY


def _lies_there(minion: Any, data: Mapping[str, Any]) -> bool:
    """Tell whether a job without its own JID is queued already."""
    return any(
        all(job.get(name) == data.get(name) for name in ("jid", "fun", "arg"))
        for job in queues.listed(minion.opts)
    )


def _may_start_from(queued: bool, of_jobs: bool) -> tuple[State, ...]:
    """Return the states in which a known job may start, by the queue that it comes from."""
    if not queued:
        return ()
    # A state run that puts itself into a queue may not have recorded that yet.
    return (State.HELD,) if of_jobs else (State.HELD, State.RUNNING)
