"""What the engine does each time it looks."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..host import locks, processes
from ..record.store import PhaseRow, Store
from ..record.update import Update
from ..settings import Settings
from . import functions, recovery
from .ledger import Job, Ledger, State
from .recovery import Action, Recovery

log = logging.getLogger(__name__)

# Seconds between two tries for a return that did not arrive: doubled from the first to the last.
_FIRST_BACKOFF = 2.0
_LAST_BACKOFF = 300.0
# Seconds that a supervisor which is just starting, or starting again, gets before another is.
_GRACE = 10.0
# Seconds between two looks for jobs whose process is gone, between two tidyings of the
# database, and the age at which a finished job is no longer about to be sent by itself.
_LOOK_INTERVAL = 3.0
# Bytes of returns that are kept for masters that are away. The oldest beyond that are replaced
# by a short failure, which is not silence either.
_MOST_RETURNS = 256 << 20
_SMALL = 4096
_TIDY_INTERVAL = 60.0


class Answer(Enum):
    """What a master said to a return."""

    TAKEN = "taken"
    # It is there and could not keep it: its job cache may be broken.
    FAILED = "failed"
    NONE = "none"


@dataclass(kw_only=True)
class Ticker:
    """
    Reads the database when it has changed, and does what is due.

    *publish* returns whether the master took it, *send* its Answer; what it did not take stays.
    *run* puts a job back where the minion starts it, *ask* puts one there that the supervisor
    wants to see done, *describe* makes a return of a text,
    *queued* returns the JIDs that lie in a queue; *over* tells whether the wait of a job that waits
    for an update is over; *owner* identifies the minion's main process;
    *stand_down* is set where Salt itself resumes jobs; *most_returns* bounds, in bytes, what is
    kept for masters that are away.
    """

    settings: Settings
    store: Store
    ledger: Ledger
    launch: Callable[[], None]
    publish: Callable[[PhaseRow, Update | None], bool]
    send: Callable[[Job], Answer]
    run: Callable[[Job], None]
    describe: Callable[[Job, str], bytes]
    queued: Callable[[], Collection[str]]
    owner: str
    over: Callable[[Job], bool] = lambda job: True
    ask: Callable[[dict[str, Any]], None] = lambda wanted: None
    stand_down: bool = False
    most_returns: int = _MOST_RETURNS
    clock: Callable[[], float] = time.time
    _stamp: tuple[int, ...] = ()
    _retry_at: float = 0.0
    _backoff: float = _FIRST_BACKOFF
    _orphan_since: float = 0.0
    _look_at: float = 0.0
    _tidy_at: float = 0.0
    _dirty: bool = True
    _asked: str = ""
    _recovery: Recovery = field(init=False)

    def __post_init__(self) -> None:
        self._recovery = Recovery(
            attempts=self.settings.attempts,
            rerun=self.settings.rerun,
            stand_down=self.stand_down,
            since=self.clock(),
            over=self._over,
            clock=self.clock,
        )

    def started(self, version: str, *, master: bool = False) -> None:
        """Record that a minion with this extension runs; *master*: and has a master to talk to."""
        self.store.set_fact(
            "running",
            {
                "started": self.clock(),
                "version": version,
                "master": master,
                "boot": processes.boot(),
            },
        )

    def tick(self) -> None:
        """Look once. Raises SafeUpdateError where the database cannot be used."""
        now = self.clock()
        if now >= self._look_at:
            self._look_at = now + _LOOK_INTERVAL
            self._recover_jobs()
        # What that has written is to be sent, too.
        stamp = self.store.stamp()
        changed = stamp != self._stamp
        self._dirty = self._dirty or changed
        due = self._retry_at and now >= self._retry_at
        if changed or due or self._orphan_since:
            self._recover_update()
            self._deliver()
        # It asks while we write ourselves, too.
        if locks.held(self.settings.run_dir, "supervisor"):
            self._do_asked()
        if self._dirty and now >= self._tidy_at:
            self._tidy_at = now + _TIDY_INTERVAL
            self._tidy()
        self._stamp = self.store.stamp()
        if self._stamp != stamp and not self._retry_at:
            # We have written. But sending takes a while, and a job may have ended meanwhile.
            self._retry_at = self.clock() + _FIRST_BACKOFF

    # -- updates ---------------------------------------------------------------

    def _recover_update(self) -> None:
        last = self.store.latest()
        busy = last is not None and not last.phase.final and not last.awaits_boot
        if not busy or locks.held(self.settings.run_dir, "supervisor"):
            self._orphan_since = 0.0
        elif locks.held(self.settings.run_dir, "update"):
            # The job is about to start it.
            self._orphan_since = 0.0
        elif not self._orphan_since:
            self._orphan_since = self.clock()
        elif self.clock() >= self._orphan_since + _GRACE:
            self._orphan_since = self.clock()
            self.launch()

    def _do_asked(self) -> None:
        """Start the job that the supervisor asked for, once."""
        wanted = self.store.fact("ask")
        if wanted and wanted["jid"] not in (self._asked, ""):
            self._asked = wanted["jid"]
            if self.ledger.outcome(wanted["jid"]) is None and wanted["jid"] not in self.queued():
                self.ask(wanted)

    # -- jobs ------------------------------------------------------------------

    def _recover_jobs(self) -> None:
        """Start again, or report, every job whose process is gone."""
        if locks.held(self.settings.run_dir, "drain"):
            return
        # Hundreds may be held: the queues are listed once, and only where that matters.
        queued = functools.cache(self.queued)
        for job in self.ledger.open():
            action, reason = self._recovery(job, queued)
            if action is Action.RUN and self.ledger.take(job, self.owner):
                self._run(job.key)
            elif action is Action.REPORT:
                self._report(job, reason)

    def _over(self, bare: Job) -> bool:
        job = self.ledger.full(bare.key)
        return job is not None and job.call is not None and self.over(job)

    def _run(self, key: str) -> None:
        job = self.ledger.full(key)
        if job is None or job.call is None:
            return
        try:
            self.run(job)
        except OSError as err:
            # The next engine of the next minion tries again: the job is held and has no file.
            log.error(
                "safeupdate: job %s is kept but cannot be queued (%s): make space below 'cachedir' "
                "and restart the minion",
                job.jid,
                err.strerror or err,
            )
            return
        if functions.waits_for_update(job.fun):
            log.info("safeupdate: job %s has nothing to wait for any more", job.jid)
            return
        log.warning(
            "safeupdate: job %s was interrupted and is started again (attempt %d)",
            job.jid,
            job.attempts + 1,
        )

    def _report(self, bare: Job, reason: str) -> None:
        job = self.ledger.full(bare.key)
        if job is None or job.state is not State.RUNNING or job.runner != bare.runner:
            return
        text = recovery.report(job, reason, self.clock())
        if self.ledger.finish(job.key, self.describe(job, text), retcode=1):
            log.warning("safeupdate: job %s was interrupted; its master is told", job.jid)

    # -- what masters are to get -----------------------------------------------

    def _deliver(self) -> None:
        published = self._publish_all()
        sending, delivered, kept = self._send_all()
        failed = kept or not published
        if delivered or sending or not failed:
            # Where something arrives or still may, the rest is not far: it may only be crowded.
            self._backoff, self._retry_at = _FIRST_BACKOFF, 0.0
        # Tries in between, because the database has changed, put nothing off.
        if (failed or sending) and self.clock() >= self._retry_at:
            self._retry_at = self.clock() + self._backoff
            if failed:
                self._backoff = min(self._backoff * 2, _LAST_BACKOFF)

    def _publish_all(self) -> bool:
        for row in self.store.unpublished():
            if not self.publish(row, self.store.get(row.id)):
                return False
            self.store.mark_published(row.seq)
        return True

    def _send_all(self) -> tuple[int, int, int]:
        """
        Send what its own process does not: one master that is away holds up no other, and one
        return that a master cannot keep no other return.

        Return how many jobs still send themselves, how many returns have arrived, and how many
        tries were in vain.
        """
        sending = delivered = kept = 0
        away: set[str] = set()
        for bare in self.ledger.undelivered():
            if bare.runner and self._recovery.alive(bare.runner):
                sending += 1
                continue
            if bare.master in away:
                continue
            job = self.ledger.full(bare.key)
            if job is None or job.state is not State.FINISHED or job.payload is None:
                continue
            self.ledger.sent(job.key)
            answer = self.send(job)
            if answer is Answer.TAKEN:
                self.ledger.delivered(job.key)
                delivered += 1
                continue
            kept += 1
            if answer is Answer.NONE:
                away.add(job.master)
        return sending, delivered, kept

    def _drop_return(self, key: str) -> None:
        job = self.ledger.full(key)
        if job is None or job.payload is None or len(job.payload) <= _SMALL:
            return
        text = (
            f"ERROR: Job {job.jid} ({job.fun}) has ended, but its return of {len(job.payload)} "
            "bytes was dropped: its master was away and the returns kept for it became too many. "
            "Look at what the job did, or run it again."
        )
        self.ledger.replace(key, self.describe(job, text))
        log.error("safeupdate: the return of job %s was dropped: its master is away", job.jid)

    def _tidy(self) -> None:
        """Forget what is old, and empty the log of what has been wiped."""
        self.ledger.prune()
        for key in self.ledger.beyond(self.most_returns):
            self._drop_return(key)
        self.ledger.scrub()
        self._dirty = False
