"""
Whether the minion has come up, and whether it is healthy.

This module observes; the table in :mod:`.verdict` decides. A minion that is visibly at fault is
detected at once. A minion that has only not reached its master yet gets time, and more of it on a
host that has little time for the minion.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommandError, UnreadableError
from ..extensions import interpreter
from ..generations.generation import Generation
from ..host import processes
from ..host.service import LastRun, ServiceState
from ..record.owner import OWNER
from ..record.parts import Former, Watched
from ..record.update import Update
from .context import Context
from .patience import MOST, Patience
from .proof import Proof
from .verdict import LOOP, WAIT, Judgement, Probe, Seen, Verdict, decide

log = logging.getLogger("salt-safeupdate")

# Seconds between two checks if nothing hints at news; and between two checks for such hints, which
# start no program.
_CALM_INTERVAL = 0.5
_POLL_INTERVAL = 0.05
# A minion may take this many times as long to report as the minion before it.
_MARGIN = 3.0
# The engine that reports.
_ENGINE = "safeupdate"
# After this many starts, the unit is left alone.
_START_ATTEMPTS = 3
# Seconds for which a unit has to stay stopped: a restart by somebody also stops it for a moment.
_STOPPED_FOR = 3.0


@dataclass
class _Sight:
    """The processes of a minion that were seen so far."""

    pids: list[int] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)
    # The process that sent the last report.
    reported_by: int = 0
    # How often another process, or the same one, began again by itself.
    other_processes: int = 0
    same_process: int = 0
    # Starts by this watch, and their number when the last new process appeared.
    starts: int = 0
    counted_starts: int = 0
    since: float = 0.0
    stopped_since: float | None = None
    # The last exit status that was not 0.
    status: int = 0

    @property
    def loops(self) -> int:
        return max(self.other_processes, self.same_process)


@dataclass
class Watch:
    """Judges one minion for one update. A *silent* one runs without this extension."""

    context: Context
    update: Update
    patient: bool = True
    silent: bool = False
    _proof: Proof = field(init=False)

    def __post_init__(self) -> None:
        self._proof = Proof(self.context, self.update)

    def comes_up(self) -> Judgement:
        """Wait for a minion to report, and return the judgement."""
        return self._wait(proven=False)

    def proves_healthy(self) -> Judgement:
        """Wait until it is clear whether the minion is healthy, and return the judgement."""
        return self._wait(proven=True)

    def _wait(self, *, proven: bool) -> Judgement:
        context, sight = self.context, _Sight(since=self.context.monotonic())
        state: ServiceState | None = None
        patience = self._patience()
        while True:
            state = self._state() or state
            away = self._proof.reachable is False and bool(sight.reports)
            if not self._is_being_stopped(state):
                patience.look(state.pid if state else 0, stops=self._stops(state) or away)
            judgement = self._judge(sight, state, patience, proven=proven)
            if judgement.verdict is not Verdict.WAIT:
                return self._told(judgement, state, patience)
            if state is None:
                context.sleep(_CALM_INTERVAL)
            elif self._is_down(state, sight):
                self._start(sight, state)
            if sight.reports:
                context.sleep(_CALM_INTERVAL)
            else:
                self._sleep(state.pid if state else 0)

    def _sleep(self, pid: int) -> None:
        """
        Sleep until there may be news: the process *pid* has ended, or a minion reports.

        Asking the init system starts a program, and a minion that starts needs the processor
        itself.
        """
        context = self.context
        process, stamp = processes.identity(pid), context.store.stamp()
        until = context.monotonic() + _CALM_INTERVAL
        context.sleep(_POLL_INTERVAL)
        while (
            processes.alive(process)
            and context.store.stamp() == stamp
            and context.monotonic() < until
        ):
            context.sleep(_POLL_INTERVAL)

    def _judge(
        self, sight: _Sight, state: ServiceState | None, patience: Patience, *, proven: bool
    ) -> Judgement:
        """Check once, and return the conclusion from everything seen so far."""
        if state is None:
            return decide(Seen(active="", came=False, reported=False, over=patience.over))
        came = self.is_new(state)
        if came or self._has_begun(state):
            # The old minion has ended. From here on jobs start in the new one, also the jobs that
            # its unit runs first.
            self.context.let_jobs_start()
        if came:
            self._follow(sight, state, patience)
        down = not came and self._was_new(state) and state.active in ("inactive", "failed")
        # For a unit with Restart= this is only known until the next process exists.
        gone = not came and self._was_new(state) and not state.pid
        # Our own restart has ended it, or a stop by somebody came instead.
        ended = not came and self._was_former(state) and state.active in ("inactive", "failed")
        last = self._last_run() if gone or ended or sight.loops >= LOOP else LastRun()
        if gone and last.status:
            sight.status = last.status
        down = down or (ended and last.stopped and self._is_left_stopped())
        stopped = self._stays_stopped(sight, stopped=down and last.stopped)
        if self._is_being_stopped(state) or (down and last.stopped and not stopped):
            return WAIT
        seen: dict[str, Any] = {
            "active": state.active,
            "came": came or down,
            "status": last.status if down else sight.status,
            "loops": sight.loops,
            "stopped": stopped,
            "stable": came and self._is_stable(sight.since),
            "patient": self.patient or last.killed,
            "reported": bool(sight.reports),
            "probe": Probe.NEEDLESS,
            "over": patience.over,
            "late": patience.watched >= patience.limit,
        }
        if came and patience.over and not sight.reports:
            seen["set_up"] = self._is_set_up()
        if proven:
            seen["had_reported"] = self.update.former.report is not None
            if came and sight.reports:
                seen = self._proof.look(seen)
        elif came and sight.loops < LOOP and (sight.reports or self._is_silent(state, sight)):
            return Judgement(Verdict.WELL)
        return decide(Seen(**seen))

    def _follow(self, sight: _Sight, state: ServiceState, patience: Patience) -> None:
        """Note which process this is, and whether its work begins again."""
        report = self._report()
        another = sight.pids[-1:] != [state.pid]
        anew = bool(report) and sight.reports[-1:] != [report]
        if another or anew:
            # It has to prove everything again.
            sight.since = self.context.monotonic()
            self._proof = Proof(self.context, self.update)
        if another:
            if sight.pids and self._started_by_somebody(sight):
                patience.begin_anew()
            elif sight.pids:
                sight.other_processes += 1
            sight.counted_starts = sight.starts
            sight.pids.append(state.pid)
        if anew and report:
            if sight.reports and sight.reported_by == state.pid:
                sight.same_process += 1
            sight.reported_by = state.pid
            sight.reports.append(report)

    def _started_by_somebody(self, sight: _Sight) -> bool:
        """Tell whether something other than the init system and this watch has started it."""
        return sight.starts == sight.counted_starts and self._last_run().restarts == 0

    def _last_run(self) -> LastRun:
        try:
            return self.context.services.last_run(self.context.unit)
        except CommandError as err:
            log.warning("the state of %s cannot be read: %s", self.context.unit, err)
            return LastRun()

    def _is_left_stopped(self) -> bool:
        try:
            return self.context.services.is_left_stopped(self.context.unit)
        except CommandError as err:
            log.warning("the state of %s cannot be read: %s", self.context.unit, err)
            return False

    def _stays_stopped(self, sight: _Sight, *, stopped: bool) -> bool:
        now = self.context.monotonic()
        if not stopped:
            sight.stopped_since = None
            return False
        if sight.stopped_since is None:
            sight.stopped_since = now
        return now >= sight.stopped_since + _STOPPED_FOR

    def _is_down(self, state: ServiceState, sight: _Sight) -> bool:
        """Tell whether this watch should start it."""
        if state.active not in ("inactive", "failed") or self.is_new(state):
            return False
        return sight.stopped_since is None and sight.starts < _START_ATTEMPTS

    def _start(self, sight: _Sight, state: ServiceState) -> None:
        sight.starts += 1
        log.warning("%s is %s: starting it", self.context.unit, state.active)
        with contextlib.suppress(CommandError):
            self.context.services.start(self.context.unit)
        self.context.sleep(1)

    def _state(self) -> ServiceState | None:
        """Return the state of the service; None if the host has no time to answer."""
        try:
            return self.context.services.state(self.context.unit)
        except CommandError as err:
            log.warning("the state of %s cannot be read: %s", self.context.unit, err)
            return None

    def _patience(self) -> Patience:
        """Return the rest of its time; all of it if no supervisor watched before."""
        context, watched = self.context, self.update.watched
        limit, left = timeout(context, self.update), 0.0
        if watched.until is not None and watched.boot == processes.boot():
            left = watched.until - context.monotonic()
        had = limit - left if 0 < left <= limit else 0.0
        return Patience(limit, context.monotonic, context.waited, had=had)

    def _is_silent(self, state: ServiceState, sight: _Sight) -> bool:
        return self.silent and state.active == "active" and self._is_stable(sight.since)

    def _is_set_up(self) -> bool:
        """Tell whether the configuration of the minion names our engine; true if unknown."""
        owner = self.context.store.replaceable(OWNER)
        config = None if owner is None else owner.config
        try:
            program = self.context.services.program(self.context.unit)
            python = interpreter.named_by(program) if program else None
            if not python or config is None or not os.path.exists(config):
                return True
            return not interpreter.lacks_engine(python, self.context.command, config, _ENGINE)
        except CommandError as err:
            log.warning("cannot tell whether the minion is set up: %s", err)
            return True

    def _is_stable(self, since: float) -> bool:
        return self.context.monotonic() >= since + self.context.settings.stable_interval

    def _told(
        self, judgement: Judgement, state: ServiceState | None, patience: Patience
    ) -> Judgement:
        """Return the judgement in the words of the record."""
        unit = self.context.unit
        if not judgement.missing:
            return judgement._replace(reason=judgement.reason.replace("{unit}", unit))
        reason = (
            f"{unit} is {state.active if state else 'not known'}, but {judgement.reason} "
            f"{patience.spent}. {self._seen(state)}'journalctl -u {unit}' and the minion's "
            "log say why; 'salt-call --local safeupdate.check' says what is not set up."
        )
        return judgement._replace(reason=reason)

    def _seen(self, state: ServiceState | None) -> str:
        """Say what the minion has done instead."""
        if state is None or not state.pid:
            return "No process of it runs. "
        return self.context.seen(state.pid)

    # -- which process it is ---------------------------------------------------

    def is_new(self, state: ServiceState) -> bool:
        """Tell whether the running minion is another one than the minion before the restart."""
        if self.context.services.name != "systemd" and not state.invocation:
            # Its restart has returned, so a silent minion is the new one.
            return self._report() is not None or (self.silent and state.running)
        if self.update.former.invocation and state.invocation:
            return state.pid != 0 and self._was_new(state)
        return state.pid not in (0, self.update.former.pid)

    def _has_begun(self, state: ServiceState) -> bool:
        """Tell whether its start has begun although it has no main process yet."""
        return state.active == "activating" and self._was_new(state)

    def _stops(self, state: ServiceState | None) -> bool:
        """Tell whether the minion from before the restart has not ended yet."""
        former = self.update.former.pid
        return state is not None and bool(former) and state.pid == former

    def _is_being_stopped(self, state: ServiceState | None) -> bool:
        """
        Tell whether somebody stops or restarts the new minion.

        Its stop guard may wait for jobs, and holds new ones, so nothing can prove meanwhile that
        the minion works. systemd does not wait forever.
        """
        return state is not None and state.active == "deactivating" and self.is_new(state)

    def _was_new(self, state: ServiceState) -> bool:
        return bool(state.invocation) and state.invocation != self.update.former.invocation

    def _was_former(self, state: ServiceState) -> bool:
        return bool(state.invocation) and state.invocation == self.update.former.invocation

    def _report(self) -> float | None:
        """Return when the engine of another minion than the former one reported, or None."""
        running, former = self.context.generations.serving(), self.update.former
        if running is None or running.process == former.process:
            # Salt may have restarted the engine of the former minion.
            return None
        if former.noted and processes.began_before(running.process, former.noted):
            # Somebody had started it just then, and it reports before our restart ends it.
            return None
        at = _at(running)
        return at if at != former.report else None


def timeout(context: Context, update: Update) -> float:
    """
    Return how long a minion may take, in seconds of the host's time for it.

    This is the setting, or longer if the former minion took long to come up here.
    """
    settings = context.settings
    watched = update.kind == "update" and update.progress.returned is None
    given = settings.watch_timeout if watched else settings.restart_timeout
    # Salt first sleeps for a random part of this delay.
    with contextlib.suppress(UnreadableError):
        report = context.generations.report()
        given += report.startup_delay if report is not None else 0.0
    return min(max(given, _MARGIN * (update.former.took or 0.0)), MOST * given)


def until(context: Context, limit: float) -> Watched:
    """Return the end of a watch that begins now, for the record."""
    return Watched(boot=processes.boot(), until=context.monotonic() + limit)


def _at(running: Generation | None) -> float | None:
    """Return when it reported in this boot, or None."""
    report = None if running is None else running.report
    return report.at if report is not None and report.boot == processes.boot() else None


def former(context: Context) -> tuple[Former, ServiceState]:
    """
    Return what distinguishes the running minion from the next one, and the state of its service.

    The report is read first, and the service is checked once: any minion that starts after that is
    the new one. The moment lies between them, so that it is not after the start of any such minion.
    """
    running = context.generations.serving()
    said, at = None, None
    try:
        said, at = None if running is None else running.report, _at(running)
    except UnreadableError as err:
        # It has reported at some time; the next minion writes the report again.
        log.warning("%s", err)
        at = 0.0
    noted = processes.moment()
    state = context.services.state(context.unit)
    found = Former(
        pid=state.pid,
        invocation=state.invocation,
        report=at,
        process="" if running is None else running.process,
        took=said.took if said is not None else None,
        hooked=said.hooked if said is not None else None,
        noted=noted,
    )
    return found, state
