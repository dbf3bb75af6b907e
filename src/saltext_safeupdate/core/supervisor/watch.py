"""
Whether the minion has come up, and whether it is healthy.

A minion that cannot become healthy is found out at once: its unit has failed, its process starts
again and again, or a job has failed. A minion that has only not reported yet is waited for, and
longer on a host that has little time for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommandError
from ..host import processes
from ..host.service import ServiceState
from ..record.parts import Former, Watched
from ..record.update import Update
from . import probe
from .context import Context
from .patience import MOST, Patience

log = logging.getLogger("salt-safeupdate")

# Seconds between two looks, until a minion has reported and from then on.
_POLL_INTERVAL = 0.05
_CALM_INTERVAL = 0.5
# How many times as long as the minion before it a minion may take to report.
_MARGIN = 3.0
# Starts of the same unit after which it is left alone.
_START_ATTEMPTS = 3
# Processes, one after the other, that make it a loop.
_LOOP = 4


@dataclass
class Watch:
    """Judges one minion for one update. A *silent* one runs without this extension."""

    context: Context
    update: Update
    patient: bool = True
    silent: bool = False
    _jobs: dict[str, str] = field(default_factory=dict)
    _checked: bool = False

    def comes_up(self) -> str:
        """Wait for a minion to report; return why there is none, or nothing."""
        return self._wait(proven=False)

    def proves_healthy(self) -> str:
        """Wait until the minion is known to be healthy; return why it is not, or nothing."""
        return self._wait(proven=True)

    def _wait(self, *, proven: bool) -> str:
        context, unit = self.context, self.context.unit
        pids: list[int] = []
        reports: list[float] = []
        starts, since = 0, context.monotonic()
        state, missing = None, ""
        patience = self._patience()
        while not patience.over:
            state = self._state() or state
            patience.look(state.pid if state else 0, stops=self._stops(state))
            if state is None:
                context.sleep(_CALM_INTERVAL)
            elif self.is_new(state):
                # The old one is gone: from here on jobs start in the new one.
                context.let_jobs_start()
                report = last_report(self.context) if self._reported() else None
                if pids[-1:] != [state.pid] or (report and reports[-1:] != [report]):
                    # Also if the process begins its own work anew: it has to prove all again.
                    since = context.monotonic()
                    self._jobs, self._checked = {}, False
                if pids[-1:] != [state.pid]:
                    pids.append(state.pid)
                if report and reports[-1:] != [report]:
                    reports.append(report)
                if not proven and (reports or self._is_silent_and_stays(state, since)):
                    return ""
                if max(len(pids), len(reports)) >= _LOOP:
                    return f"{unit} started {_LOOP} times, one time after the other."
                if reports:
                    problem, missing = self._prove()
                    if problem or not (missing or not self._is_stable(since)):
                        return problem
            elif not self.patient and state.active == "failed" and self._was_new(state):
                return f"{unit} has failed. 'journalctl -u {unit}' and the minion's log say why."
            elif state.active in ("inactive", "failed") and starts < _START_ATTEMPTS:
                starts += 1
                log.warning("%s is %s: starting it", unit, state.active)
                with contextlib.suppress(CommandError):
                    context.services.start(unit)
                context.sleep(1)
            context.sleep(_CALM_INTERVAL if reports else _POLL_INTERVAL)
        return self._silence(state, missing if reports else "", patience, reported=bool(reports))

    def _state(self) -> ServiceState | None:
        """Return what is so of the service; None if the host has no time to tell."""
        try:
            return self.context.services.state(self.context.unit)
        except CommandError as err:
            log.warning("%s cannot be looked at: %s", self.context.unit, err)
            return None

    def _patience(self) -> Patience:
        """Return what is left of the time for it; all of it if nobody watched meanwhile."""
        context, update = self.context, self.update
        limit = timeout(context, update)
        watched = update.watched
        if watched.until is None:
            left = (update.deadline or 0.0) - context.clock()
        else:
            left = watched.until - context.monotonic() if watched.boot == processes.boot() else 0.0
        had = limit - left if 0 < left <= limit else 0.0
        return Patience(limit, context.monotonic, context.waited, had=had)

    def _is_silent_and_stays(self, state: ServiceState, since: float) -> bool:
        return self.silent and state.active == "active" and self._is_stable(since)

    def _is_stable(self, since: float) -> bool:
        return self.context.monotonic() >= since + self.context.settings.stable_interval

    def _silence(
        self, state: ServiceState | None, missing: str, patience: Patience, *, reported: bool
    ) -> str:
        unit = self.context.unit
        if not reported:
            missing = "no minion with this extension reported"
        elif not missing:
            missing = "its process did not stay the same"
        return (
            f"{unit} is {state.active if state else 'not known'}, but {missing} {patience.spent}. "
            f"{self._seen(state)}'journalctl -u {unit}' and the minion's "
            "log say why; 'salt-call --local safeupdate.check' says what is not set up."
        )

    def _seen(self, state: ServiceState | None) -> str:
        """Say what the minion did instead."""
        if state is None or not state.pid:
            return "No process of it runs. "
        return self.context.seen(state.pid)

    # -- which process it is ---------------------------------------------------

    def is_new(self, state: ServiceState) -> bool:
        """Tell whether what runs is another minion than the one before the restart."""
        if self.context.services.name != "systemd":
            # Its restart has returned, so a silent one is the new one.
            return self._reported() or (self.silent and state.running)
        if self.update.former.invocation and state.invocation:
            return state.pid != 0 and self._was_new(state)
        return state.pid not in (0, self.update.former.pid)

    def _stops(self, state: ServiceState | None) -> bool:
        """Tell whether the minion before the restart has not gone yet."""
        former = self.update.former.pid
        return state is not None and bool(former) and state.pid == former

    def _was_new(self, state: ServiceState) -> bool:
        return bool(state.invocation) and state.invocation != self.update.former.invocation

    def _reported(self) -> bool:
        return last_report(self.context) not in (None, self.update.former.report)

    # -- proof -----------------------------------------------------------------

    def _prove(self) -> tuple[str, str]:
        """Return what is wrong, and what is still missing."""
        check = self.context.settings.health_check
        if self._needs_master():
            arguments = [f"safeupdate: update {self.update.id}"]
            problem, missing = self._job("probe", probe.FUNCTION, arguments, delivered=True)
            if problem or missing:
                return problem, missing
        if check and os.path.isabs(check[0]):
            return self._program(check), ""
        for sls in check:
            # State runs of others, held until now, are no reason to go back.
            queued = [sls, {"__kwarg__": True, "queue": True}]
            problem, missing = self._job(sls, "state.apply", queued, delivered=False)
            if problem or missing:
                return problem, missing
        return "", ""

    def _needs_master(self) -> bool:
        """Tell whether its master has to get a return: not if it did not get one before either."""
        running = self.context.store.fact("running") or {}
        return bool(running.get("master")) and self.update.progress.master is not False

    def _program(self, argv: tuple[str, ...]) -> str:
        if not self._checked:
            try:
                self.context.command(argv, timeout=self.context.settings.watch_timeout)
            except CommandError as err:
                return f"The health check failed: {err}."
            self._checked = True
        return ""

    def _job(
        self, name: str, fun: str, arguments: list[Any], *, delivered: bool
    ) -> tuple[str, str]:
        if name not in self._jobs:
            self._jobs[name] = probe.begin(self.context, fun, arguments)
        jid = self._jobs[name]
        found = self.context.outcome(jid)
        if found is None or not found.ended:
            return "", f"job {jid} ({fun}) of the watch did not end"
        if found.retcode:
            return f"Job {jid} ({fun}) of the watch failed with code {found.retcode}.", ""
        if delivered and not found.delivered:
            return "", f"the return of job {jid} ({fun}) of the watch did not reach its master"
        return "", ""


def timeout(context: Context, update: Update) -> float:
    """
    Return how long a minion may take, in seconds of the host's time for it.

    The setting, and more if the one before took long to come up here.
    """
    settings = context.settings
    watched = update.kind == "update" and update.progress.returned is None
    given = settings.watch_timeout if watched else settings.restart_timeout
    return min(max(given, _MARGIN * (update.former.took or 0.0)), MOST * given)


def until(context: Context, limit: float) -> dict[str, Any]:
    """Return what the record says of the end of a watch that begins now."""
    # Earlier versions go by the time of day.
    return {
        "deadline": context.clock() + limit,
        "watched": Watched(boot=processes.boot(), until=context.monotonic() + limit),
    }


def last_report(context: Context) -> float | None:
    """Return when a minion with this extension last reported in this boot that it runs."""
    fact = context.store.fact("running")
    if fact is None or fact.get("boot", processes.boot()) != processes.boot():
        return None
    return float(fact.get("started", 0))


def former(context: Context, state: ServiceState) -> Former:
    """Return what tells the minion that runs now from the one that is to come."""
    took = (context.store.fact("running") or {}).get("took")
    return Former(
        pid=state.pid,
        invocation=state.invocation,
        report=last_report(context),
        took=took if isinstance(took, float) else None,
    )
