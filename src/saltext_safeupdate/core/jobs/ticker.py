"""The work of the engine each time it checks the database."""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import DamagedError, LockUnavailableError, SafeUpdateError, UnreadableError
from ..generations.generation import Report
from ..generations.table import Generations
from ..host import locks
from ..record.facts import LEAVING, STEPS_BEGUN, STEPS_SINCE
from ..record.store import Store
from ..record.update import Update
from ..settings import Settings
from . import functions, idle, recovery, update_wait
from .admission import Admission
from .delivering import Answer, Delivery
from .held import Held
from .ledger import Job, Ledger, State
from .problems import Problems
from .recovery import Action, Recovery
from .suspension import Suspensions

log = logging.getLogger(__name__)


def _log(err: SafeUpdateError) -> None:
    log.error("safeupdate: %s", err)


# Seconds between two attempts to send an undelivered return: doubled from the first to the last.
_FIRST_BACKOFF = 2.0
_LAST_BACKOFF = 300.0
# Seconds for a supervisor that is just starting, perhaps again, before another is started.
_GRACE = 10.0
# Seconds between two checks for jobs whose process is gone, and between two clean-ups of the
# database.
_LOOK_INTERVAL = 3.0
# Seconds without a check while no job is open and the database does not change.
_REST = 60.0
_TIDY_INTERVAL = 60.0
# Bytes of undelivered returns. The oldest beyond that are replaced by a short failure, because a
# master must get some answer; very small ones are left as they are.
_MOST_RETURNS = 256 << 20
_SMALL = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class Ticker:
    """
    Reads the database when it has changed, and does the work that is due.

    *launch* starts the supervisor, *owner* identifies the minion's main process, and *stand_down*
    is set if Salt itself resumes jobs. *most_returns* limits, in bytes, the returns for masters
    that are away. *complain* gets, each time, the reason why a lock cannot be used. *recording*
    tells whether the minion records its jobs. *plain*: not even their processes do, so a job that
    is taken out of a queue runs without telling the ledger. *clock* is the time of day, for
    messages and records; waiting uses *monotonic*, which nobody sets.
    """

    settings: Settings
    store: Store
    ledger: Ledger
    delivery: Delivery
    launch: Callable[[], None]
    owner: str
    stand_down: bool = False
    most_returns: int = _MOST_RETURNS
    complain: Callable[[SafeUpdateError], None] = _log
    recording: bool = False
    plain: bool = False
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _stamp: tuple[int, ...] = ()
    _retry_at: float = 0.0
    _backoff: float = _FIRST_BACKOFF
    _orphan_since: float = 0.0
    _look_at: float = 0.0
    # The state of the database when no job was open, and how long that counts.
    _at_rest: tuple[int, ...] = ()
    _rest_until: float = 0.0
    _tidy_at: float = 0.0
    _dirty: bool = True
    _probed: str = ""
    _refused: str = ""
    # The last update that needs no more work.
    _settled: str = ""
    _recovery: Recovery = field(init=False)
    _held: Held = field(init=False)
    _waits: update_wait.Waits = field(init=False)
    _admission: Admission = field(init=False)
    _generations: Generations = field(init=False)
    _suspensions: Suspensions = field(init=False)

    def __post_init__(self) -> None:
        self._generations = Generations(self.store)
        self._suspensions = Suspensions(self.ledger.path)
        self._admission = Admission(
            self.settings, self.store, complain=self.complain, clock=self.clock
        )
        self._waits = update_wait.Waits(self.store, self.clock, self.monotonic)
        self._recovery = Recovery(
            attempts=self.settings.attempts,
            rerun=self.settings.rerun,
            stand_down=self.stand_down,
            since=self.monotonic(),
            wait_is_over=self._wait_is_over,
            was_idle=functools.partial(idle.was, self.store, self.settings.run_dir),
            clock=self.monotonic,
        )
        self._held = Held(
            ledger=self.ledger, recovery=self._recovery, give_up=self._end, plain=self.plain
        )

    def started(self, report: Report, *, rested: bool = False) -> None:
        """
        Record that a minion with this extension runs.

        *rested*: its engine has reported before, and rested since.
        """
        try:
            # Upgrade steps of this version and of earlier ones do not have to run.
            self.store.claim_fact(STEPS_SINCE, report.version, lambda known: known is None)
        except UnreadableError as err:
            self.complain(err)
        first = self._generations.reports(self.owner, report, rested=rested)
        if first and self.store.replaceable(LEAVING) is not None:
            # The minion runs with us again, so nothing may be removed.
            self.store.drop_fact(LEAVING)

    def tick(self) -> None:
        """Check once. Raise SafeUpdateError if something failed; the rest has been done."""
        now, problems = self.monotonic(), Problems()
        stamp = self.store.stamp()
        if now >= self._look_at and (stamp != self._at_rest or now >= self._rest_until):
            self._look_at = now + _LOOK_INTERVAL
            problems.of(self._recover_jobs)
            # The changes by this are published as well.
            stamp = self.store.stamp()
        changed = stamp != self._stamp
        if stamp[:1] != self._stamp[:1]:
            # This is the first check, or another file: the last one was lost.
            self._note_recording()
        self._dirty = self._dirty or changed
        due = self._retry_at and now >= self._retry_at
        if changed or due or self._orphan_since:
            problems.of(self._recover_update)
            problems.of(self._deliver)
        # Not only when the database has changed: this engine itself changes it meanwhile.
        if self._is_supervised():
            problems.of(self._start_probe)
        if self._dirty and now >= self._tidy_at:
            self._tidy_at = now + _TIDY_INTERVAL
            self._tidy()
        self._stamp = self.store.stamp()
        if (problems or self._stamp != stamp) and not self._retry_at:
            # This engine has written. But sending takes a while, and a job may have ended
            # meanwhile.
            self._retry_at = self.monotonic() + _FIRST_BACKOFF
        problems.tell()

    def is_quiet(self) -> bool:
        """Tell whether nothing is to be done, as far as the last check has shown."""
        waits = self._retry_at or self._orphan_since or self._dirty
        return not waits and self.store.stamp() == self._stamp == self._at_rest

    def is_done(self) -> bool:
        """Tell by the database whether nothing is open. Raise SafeUpdateError."""
        last = self.store.latest()
        return not (
            self._is_busy(last)
            or self._is_supervised()
            or self.ledger.open()
            or self.store.unpublished()
        )

    def _note_recording(self) -> None:
        if self.recording:
            self.ledger.record_from_now()
        else:
            self.ledger.record_no_more()

    # -- updates ---------------------------------------------------------------

    def _recover_update(self) -> None:
        if not self._is_busy(self.store.latest()) or self._is_supervised():
            self._orphan_since = 0.0
        elif locks.held(self.settings.run_dir, "update"):
            # The job is about to start it.
            self._orphan_since = 0.0
        elif not self._orphan_since:
            self._orphan_since = self.monotonic()
        elif self.monotonic() >= self._orphan_since + _GRACE:
            self._orphan_since = self.monotonic()
            self.launch()

    def _is_busy(self, last: Update | None) -> bool:
        """Tell whether an update needs a supervisor."""
        busy = last is not None and not last.phase.final and not last.awaits_boot
        half_done = last is not None and last.may_be_half_done
        return busy or half_done or self._has_steps_left(last)

    def _has_steps_left(self, last: Update | None) -> bool:
        """Tell whether an update has ended, and its steps are neither taken back nor kept yet."""
        if last is None or not last.phase.final or last.id == self._settled:
            return False
        if self.store.fact(STEPS_BEGUN) is not None:
            return True
        self._settled = last.id
        return False

    def _is_supervised(self) -> bool:
        """Tell whether a supervisor lives, or may live: without locks, no other could start."""
        try:
            return locks.held(self.settings.run_dir, "supervisor")
        except LockUnavailableError as err:
            self.complain(err)
            return True

    def _start_probe(self) -> None:
        """Start the job that shows the supervisor whether the minion works, once."""
        ours = self._generations.of(self.owner)
        wanted = None if ours is None else ours.probe
        if wanted is None or wanted.jid == self._probed:
            return
        known = self.ledger.outcome(wanted.jid) is not None
        if known or wanted.jid in self.delivery.queued() or self.delivery.probe(wanted):
            self._probed = wanted.jid

    # -- jobs ------------------------------------------------------------------

    def _recover_jobs(self) -> None:
        """Start again, or report, every job whose process is gone."""
        if self._admission.holding():
            return
        stamp = self.store.stamp()
        # Hundreds may be held: the queues are listed once, and only if needed.
        queued = functools.cache(self.delivery.queued)
        jobs = self.ledger.open()
        self._at_rest = () if jobs else stamp
        self._rest_until = self.monotonic() + _REST
        self._recovery.forget(jobs)
        self._held.forget(jobs)
        for job in jobs:
            try:
                action, reason = self._held.decide(job, queued)
                # Check this after its process has ended, which may just have stored its return.
                if action is not Action.WAIT and job.key in self.delivery.kept():
                    continue
                if action is Action.RUN and self.ledger.take(job, self.owner):
                    self._run(job)
                elif action is Action.REPORT:
                    self._report(job, reason)
            except DamagedError as err:
                self._give_up(job, err)

    def _wait_is_over(self, bare: Job) -> bool:
        job = self.ledger.full(bare.key)
        if job is None:
            return False
        call = self.delivery.call(job)
        return self._waits.is_over(job.key, call, job.accepted)

    def _run(self, bare: Job) -> None:
        key, job = bare.key, self.ledger.full(bare.key)
        if job is None:
            return
        try:
            awaits = bare.awaits or self._suspensions.of(key)
            self.delivery.run(job._replace(awaits=awaits))
        except OSError as err:
            # It is tried again soon: the job is held and has no file.
            self._held.note(key, put=False)
            self.complain(
                SafeUpdateError(
                    f"Job {job.jid} is held and cannot be queued ({err.strerror or err}): free "
                    "space below 'cachedir'. It is tried again."
                )
            )
            return
        self._held.note(key, put=True)
        if functions.waits_for_update(job.fun):
            log.info("safeupdate: job %s has nothing to wait for any more", job.jid)
            return
        if awaits:
            log.info("safeupdate: job %s continues after the restart that it requested", job.jid)
            return
        log.warning(
            "safeupdate: job %s was interrupted and is started again (attempt %d)",
            job.jid,
            job.attempts + 1,
        )

    def _give_up(self, bare: Job, err: DamagedError) -> None:
        """Report a job with unreadable stored data to its master."""
        text = (
            f"ERROR: Job {bare.jid} ({bare.fun}) was {bare.state.value} on this minion, and its "
            f"data in the database is damaged. {err} Nothing more is done about this job; check "
            "whether it ran, and what it changed."
        )
        payload = self.delivery.describe(bare, text)
        if bare.state is State.FINISHED:
            self.ledger.replace(bare.key, payload)
        else:
            self.ledger.finish(bare.key, payload, retcode=1)
        log.error("safeupdate: job %s is given up: %s", bare.jid, err)

    def _report(self, bare: Job, reason: str) -> None:
        transactional = shutil.which("transactional-update") is not None
        # One that was only held has begun nothing.
        only_held = bare.state is State.HELD and not self._suspensions.has_progress(bare.key)
        job = bare._replace(unbegun=1) if only_held else bare
        text = recovery.interruption(job, reason, self.clock(), transactional=transactional)
        self._end(bare, text)

    def _end(self, bare: Job, text: str) -> None:
        """Store that a job has failed with this *text*, unless it has changed meanwhile."""
        job = self.ledger.full(bare.key)
        if job is None or job.state is not bare.state or job.runner != bare.runner:
            return
        payload = self.delivery.describe(job, text)
        if self.ledger.finish(job.key, payload, retcode=1):
            log.warning("safeupdate: job %s did not end and is reported", job.jid)
            self.delivery.hand_over(job, payload)

    # -- messages to masters ---------------------------------------------------

    def _deliver(self) -> None:
        published = self._publish_all()
        sending, delivered, refused = self._send_all()
        failed = refused or not published
        if delivered or sending or not failed:
            # If something arrives or still may, the rest may soon: the way may only be crowded.
            self._backoff, self._retry_at = _FIRST_BACKOFF, 0.0
        # An extra attempt, because the database has changed, does not delay the next one.
        if (failed or sending) and self.monotonic() >= self._retry_at:
            self._retry_at = self.monotonic() + self._backoff
            if failed:
                self._backoff = min(self._backoff * 2, _LAST_BACKOFF)

    def _publish_all(self) -> bool:
        for row in self.store.unpublished():
            try:
                update = self.store.get(row.id)
            except UnreadableError as err:
                # Its phase is reported nevertheless.
                self.complain(err)
                update = None
            if not self.delivery.publish(row, update):
                return False
            self.store.mark_published(row.seq)
        return True

    def _send_all(self) -> tuple[int, int, int]:
        """
        Send the returns that the job's own process does not send. A master that is away delays
        no other master, and a return that a master cannot store delays no other return.

        Return how many jobs still send their returns, how many returns have arrived, and how many
        attempts failed.
        """
        sending = delivered = refused = 0
        away: set[str] = set()
        for bare in self.ledger.undelivered():
            if bare.runner and self._recovery.alive(bare.runner):
                sending += 1
                continue
            if bare.master in away:
                continue
            try:
                job = self.ledger.full(bare.key)
                if job is None or job.state is not State.FINISHED:
                    continue
                self.ledger.sent(job.key)
                answer = self.delivery.send(job)
            except DamagedError as err:
                self._give_up(bare, err)
                refused += 1
                continue
            if answer is Answer.TAKEN:
                self.ledger.delivered(job.key)
                delivered += 1
                continue
            refused += 1
            if answer is Answer.NONE:
                away.add(job.master)
            elif job.jid == self._probed and self._refused != job.jid:
                # The supervisor need not wait: the minion has done its part.
                self._generations.refuse(self.owner, job.jid)
                self._refused = job.jid
        return sending, delivered, refused

    def _drop_return(self, key: str) -> None:
        try:
            job = self.ledger.full(key)
        except DamagedError:
            # It is given up when it should be sent.
            return
        if job is None or job.payload is None or len(job.payload) <= _SMALL:
            return
        text = (
            f"ERROR: Job {job.jid} ({job.fun}) has ended, but its return of {len(job.payload)} "
            "bytes was dropped: its master was away and too many returns waited for it. "
            "Check what the job did, or run it again."
        )
        self.ledger.replace(key, self.delivery.describe(job, text))
        log.error("safeupdate: the return of job %s was dropped: its master is away", job.jid)

    def _tidy(self) -> None:
        """Delete old rows, and empty the write-ahead log, which has wiped data."""
        self.ledger.prune()
        for key in self.ledger.beyond(self.most_returns):
            self._drop_return(key)
        self.ledger.scrub()
        self._dirty = False
