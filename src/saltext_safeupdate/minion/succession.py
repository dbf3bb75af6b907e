"""
How one generation of the minion follows another without a moment in which none serves.

The stop guard asks the main process of a minion that is restarted to hand over. It agrees, its
processes are moved out of the unit, and systemd starts the next minion. Until the next one is
ready, both take jobs, also from the schedule, and one of them claims each job. Then the earlier one
takes no more jobs, keeps the connection for the returns of its running jobs, and ends after them.

After an update the next minion is on trial: until it has shown that it works, the earlier one takes
all jobs, and the next one only the jobs that are left over.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.generations.generation import Standing
from ..core.generations.meeting import Meeting, Step, main_of_unit
from ..core.generations.table import Generations
from ..core.host import engine_at_rest, processes
from ..core.record.store import Store
from ..core.settings import Settings
from . import handing_over, own_bus, parentless
from .commands import Commands
from .complaints import Complaints
from .end_of_engines import EndOfEngines
from .masters import are_connected
from .scheduled_times import start_what_is_put_off
from .whose_jobs import WhoseJobs

log = logging.getLogger(__name__)

# Seconds for which both take jobs after the next one is connected: earlier publications may still
# be on their way to the earlier minion.
_OVERLAP = 5.0
# If a check comes this many seconds after the one before, the loop lags behind.
_LAG = 2.0
# A pause after a check is this many times as long as the check, and takes at most so many seconds:
# the returns of jobs come through the same loop, each of them several times.
_REST = 4.0
_LONGEST_REST = 1.0
# Seconds that jobs wait for the next minion to announce its claims, after it has bound its sockets
# and has a connection.
_UNANNOUNCED = 20.0
# Seconds without any job before it ends.
_QUIET = 5.0
# Work that must be done only once, by either of the main processes.
_ONCE = ("beacons", "ping", "state_queue")


class Succession:
    """
    The actions of a main process towards the former minion and the next one.

    *end* ends this process.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        complaints: Complaints,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        self._settings = settings
        self._generations = Generations(store)
        self._complaints = complaints
        self._monotonic = monotonic
        self._end = end
        self._jobs = WhoseJobs(store, complaints, monotonic, clock)
        self._minions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._bus: str | None = None
        self._parent = 0
        self._me = ""
        self._alone = self._stopped = self._given_up = False
        self._ready_at = self._quiet_at = None
        self._looked_at, self._look_at, self._lags = 0.0, 0.0, False
        self._engines = EndOfEngines()
        self._commands = Commands(monotonic, self._is_told)

    _ready_at: float | None
    _quiet_at: float | None

    @property
    def bus(self) -> str:
        """The directory with this generation's event sockets; empty: the minion's usual ones."""
        return self._bus or ""

    @property
    def serves_on(self) -> bool:
        """Whether this minion takes all jobs, because the next one may not work."""
        return self._jobs.serves_on

    @property
    def is_on_trial(self) -> bool:
        """Whether the former minion takes all jobs, because this one may not work."""
        return self._jobs.is_on_trial

    @property
    def is_handed_over(self) -> bool:
        """Whether this minion takes jobs only until the next one is ready."""
        return self._jobs.standing is not Standing.SERVING and not self.serves_on

    def is_mine(self, minion: Any, data: dict[str, Any]) -> bool:
        """Tell whether this generation starts a published job."""
        self._begin(minion)
        return self._jobs.is_mine(minion, data)

    def starts(self, due: str, at: float) -> bool:
        """Tell whether this generation starts a job of its schedule (see ``WhoseJobs``)."""
        return self._jobs.starts(due, at)

    def look(self, minion: Any) -> bool:
        """Do the work that is due; tell whether another generation processes the queues."""
        self._begin(minion)
        now = self._monotonic()
        self._lags, self._looked_at = self._lags or now > self._looked_at + _LAG, now
        if now >= self._look_at:
            lags, self._lags = self._lags, False
            self._do_what_is_due(minion, now, lags)
            ended = self._monotonic()
            self._look_at = ended + min(_REST * (ended - now), _LONGEST_REST)
        if self.serves_on:
            return False
        return self._jobs.standing is not Standing.SERVING or self.is_on_trial

    def _do_what_is_due(self, minion: Any, now: float, lags: bool) -> None:
        self._jobs.look()
        if self._jobs.standing is not Standing.SERVING:
            self._commands.tell(minion.opts, self._place)
        if self._jobs.standing is Standing.SERVING:
            self._jobs.start_left()
            if self._meeting.is_at(Step.ASKED):
                self._hand_over(minion)
        elif self._jobs.standing is Standing.OVERLAPPING:
            self._overlap(now, lags)
        else:
            self._leave(now)

    def _begin(self, minion: Any) -> None:
        """Note one part of the minion; with the first part, prepare a handover."""
        self._minions[id(minion)] = minion
        if self._me:
            return
        self._me, self._parent = processes.me(), os.getppid()
        self._meeting = Meeting(self._settings.run_dir, main_of_unit(os.getpid(), self._parent))
        self._place = str(minion.opts.get("sock_dir", ""))
        port = int(minion.opts.get("master_port") or 0)
        self._jobs.begin(self._me, own_bus.names(minion.opts), port)
        if handing_over.is_set_up(minion.opts, self._settings):
            try:
                self._bus = own_bus.link(minion.opts)
                self._meeting.open()
            except SafeUpdateError as err:
                log.warning("safeupdate: a restart waits for jobs: %s", err)

    def told(self, original: Callable[..., Any], minion: Any, package: bytes) -> Any:
        """Let an event command this main process, and store the command for the next one."""
        if self._jobs.standing is not Standing.SERVING and minion.ready:
            self._commands.keep(package)
        return original(minion, package)

    def _is_told(self, pid: int) -> bool | None:
        """Tell whether another main process accepts commands by events; None: unknown."""
        try:
            found = self._generations.of(processes.identity(pid))
            if found is None:
                return None
            return are_connected(found.masters, self._minions.values())
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False

    def _hand_over(self, minion: Any) -> None:
        """Agree to be handed over, or say why not."""
        if not self._meeting.go(Step.ASKED, Step.TAKING):
            return
        why_not = handing_over.of_process(minion.opts, self.bus, self._generations)
        try:
            if why_not:
                raise SafeUpdateError(f"This minion cannot be handed over: {why_not}.")
            self._jobs.claims.forget()
            self._generations.stands(self._me, Standing.OVERLAPPING)
            self._meeting.leave_word(str(minion.opts.get("pidfile", "")))
        except (SafeUpdateError, OSError) as err:
            log.warning("safeupdate: the restart waits for jobs: %s", err)
            with contextlib.suppress(OSError):
                self._meeting.leave_word(why_not or str(err))
            self._meeting.go(Step.TAKING, Step.REFUSED)
            return
        parentless.live_on(self._parent)
        signal.signal(signal.SIGURG, self._stop)
        self._jobs.standing = Standing.OVERLAPPING
        if self._meeting.go(Step.TAKING, Step.TAKEN):
            log.info("safeupdate: this minion hands over to the next one")
        else:
            self._given_up = True
            self._take_back()

    def _stop(self, *_: Any) -> None:
        """Note that systemd stops the scope of this minion: it sends this signal for that."""
        self._stopped = True

    def _overlap(self, now: float, lags: bool) -> None:
        if self._given_up or self._meeting.is_at(Step.BACK):
            self._take_back()
            return
        if not self._alone:
            if not self._meeting.is_at(Step.MOVED) and os.getppid() == self._parent:
                return
            self._do_nothing_twice(now)
        self._engines.kill_late(list(self._minions.values()), now)
        if self._stopped:
            log.info("safeupdate: the service is stopped: this earlier minion takes no more jobs")
            self._take_no_more()
        elif self._jobs.next.has_forgotten(self._me):
            self._serve_alone_or_not()
        elif self._jobs.is_unannounced():
            self._ready_at = None
            since = self._jobs.next.unsure_at
            late = since is not None and now > since + _UNANNOUNCED
            # A next minion on trial may be broken in this way: then this one has to continue.
            if late and not self.serves_on:
                log.warning(
                    "safeupdate: the next minion runs without this extension. This one takes no "
                    "more jobs, and leaves to it those that arrived meanwhile: %s. Ask with "
                    "'jobs.lookup_jid' on the master which of them have returned",
                    ", ".join(self._jobs.names_of_waiting()) or "none",
                )
                self._take_no_more()
        else:
            self._jobs.start_waiting()
            self._jobs.start_left()
            if not self._jobs.next.is_ready(self._me, self._minions.values()):
                self._ready_at = None
            elif self._ready_at is None or lags:
                self._ready_at = now
            elif now > self._ready_at + _OVERLAP and not self.serves_on:
                # The next minion did not exist when they were due.
                start_what_is_put_off(self._minions.values())
                self._take_no_more()

    def _serve_alone_or_not(self) -> None:
        """Leave jobs to the next one if it may receive them; otherwise keep on serving."""
        self._jobs.is_unannounced()
        self._jobs.claims.renew()
        if self._jobs.next.is_there:
            log.warning("safeupdate: the database was lost: only the next minion takes jobs now")
            self._take_no_more()
            return
        try:
            self._generations.stands(self._me, Standing.OVERLAPPING)
        except SafeUpdateError as err:
            self._complaints.tell(err)

    def _take_back(self) -> None:
        """Serve as before: the processes could not be moved."""
        try:
            self._generations.stands(self._me, Standing.SERVING)
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return
        log.warning("safeupdate: the minion could not be handed over: its restart waits for jobs")
        self._jobs.standing, self._given_up = Standing.SERVING, False
        self._commands.drop()
        parentless.end_with_it()
        self._meeting.go(Step.BACK, Step.OPEN)
        self._jobs.start_waiting()

    def _do_nothing_twice(self, now: float) -> None:
        """Stop the work that the next minion does from now on."""
        self._alone = True
        self._meeting.end()
        for minion in list(self._minions.values()):
            own_bus.use(minion.opts, self.bus)
            for name in _ONCE:
                # A minion on trial must not process the queue of states.
                if name != "state_queue" or not self.serves_on:
                    minion.remove_periodic_callback(name)
        self._engines.tell(list(self._minions.values()), now)
        try:
            engine_at_rest.forget(self._settings.run_dir, self._me)
        except (SafeUpdateError, OSError) as err:
            # For some seconds, others believe that this engine would be started again.
            log.warning("safeupdate: the note about the resting engine stays: %s", err)

    def _take_no_more(self) -> None:
        try:
            self._generations.stands(self._me, Standing.LEAVING)
        except SafeUpdateError as err:
            # The next one would continue to claim jobs, which does no harm.
            self._complaints.tell(err)
        # It still receives publications, and drops them: with websockets a master waits for each
        # subscriber, and otherwise no minion would receive jobs any more.
        self._jobs.take_no_more()
        for minion in list(self._minions.values()):
            minion.remove_periodic_callback("schedule")
        log.info("safeupdate: this earlier minion ends when its jobs have ended")

    def _leave(self, now: float) -> None:
        """End, after no job has run for a while."""
        self._engines.kill_late(list(self._minions.values()), now)
        if multiprocessing.active_children() or (self._commands.wait and not self._stopped):
            self._quiet_at = None
        elif self._quiet_at is None:
            self._quiet_at = now
        elif self._stopped or now > self._quiet_at + _QUIET:
            try:
                self._generations.stands(self._me, Standing.GONE)
            except SafeUpdateError as err:
                # The end of its process has the same effect.
                self._complaints.tell(err)
            log.info("safeupdate: the jobs of this earlier minion have ended, and so does it")
            own_bus.unlink(self.bus)
            logging.shutdown()
            self._end(0)
