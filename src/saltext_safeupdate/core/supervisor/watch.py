"""
Whether the minion has come up, and whether it is healthy.

What shows that it cannot become healthy is found at once: the unit has failed, its process
starts again and again, a job has failed. What only is not heard of is waited for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommandError
from ..host import processes
from ..host.service import ServiceState
from ..jobs.ledger import State
from ..record.update import Update
from .context import Means

log = logging.getLogger("salt-safeupdate")

# Seconds between two looks, until a minion has reported and from then on.
_POLL_INTERVAL = 0.05
_CALM_INTERVAL = 0.5
# Starts of the same unit after which it is left alone.
_START_ATTEMPTS = 3
# Processes, one after the other, that make it a loop.
_LOOP = 4
# The function that proves that jobs run and return.
_PROBE = "test.echo"


@dataclass
class Watch:
    """Judges one minion for one update."""

    means: Means
    update: Update
    patient: bool = True
    _jobs: dict[str, str] = field(default_factory=dict)
    _checked: bool = False

    def comes_up(self) -> str:
        """Wait for a minion to report; return why there is none, or nothing."""
        return self._wait(proven=False)

    def proves_healthy(self) -> str:
        """Wait until the minion is known to be healthy; return why it is not, or nothing."""
        return self._wait(proven=True)

    def _wait(self, *, proven: bool) -> str:
        means, unit = self.means, self.means.settings.service
        pids: list[int] = []
        reports: list[float] = []
        starts, since = 0, means.clock()
        state, missing = means.services.state(unit), ""
        deadline = self._deadline()
        while means.clock() < deadline:
            state = means.services.state(unit)
            if self.is_new(state):
                # The old one is gone: from here on jobs start in the new one.
                means.open()
                report = self.report() if self._reported() else None
                if pids[-1:] != [state.pid] or (report and reports[-1:] != [report]):
                    # Also where the process starts its own work anew: all is to be shown again.
                    since = means.clock()
                    self._jobs, self._checked = {}, False
                if pids[-1:] != [state.pid]:
                    pids.append(state.pid)
                if report and reports[-1:] != [report]:
                    reports.append(report)
                if reports and not proven:
                    return ""
                if max(len(pids), len(reports)) >= _LOOP:
                    return f"{unit} started {_LOOP} times, one time after the other."
                if reports:
                    problem, missing = self._prove()
                    if problem or not (missing or means.clock() < since + self._stable()):
                        return problem
            elif not self.patient and state.active == "failed" and self._was_new(state):
                return f"{unit} has failed. 'journalctl -u {unit}' and the minion's log say why."
            elif state.active in ("inactive", "failed") and starts < _START_ATTEMPTS:
                starts += 1
                log.warning("%s is %s: starting it", unit, state.active)
                with contextlib.suppress(CommandError):
                    means.services.start(unit)
                means.sleep(1)
            means.sleep(_CALM_INTERVAL if reports else _POLL_INTERVAL)
        return self._silence(state, missing if reports else "", reported=bool(reports))

    def _deadline(self) -> float:
        means, deadline = self.means, self.update.deadline or 0.0
        if deadline <= means.clock():
            # Nobody watched meanwhile, such as during a power cut.
            return means.clock() + timeout(means, self.update)
        return deadline

    def _stable(self) -> float:
        return self.means.settings.stable_interval

    def _silence(self, state: ServiceState, missing: str, *, reported: bool) -> str:
        unit = self.means.settings.service
        if not reported:
            missing = "no minion with this extension reported"
        elif not missing:
            missing = "its process did not stay the same"
        return (
            f"{unit} is {state.active}, but {missing} within "
            f"{timeout(self.means, self.update):g} s. 'journalctl -u {unit}' and the minion's log "
            "say why; 'salt-call --local safeupdate.check' says what is not set up."
        )

    # -- which process it is ---------------------------------------------------

    def is_new(self, state: ServiceState) -> bool:
        """Tell whether what runs is another minion than the one before the restart."""
        if self.means.services.name != "systemd":
            return self._reported()
        if self.update.extra.get("old_invocation") and state.invocation:
            return state.pid != 0 and self._was_new(state)
        return state.pid not in (0, self.update.extra.get("old_pid"))

    def _was_new(self, state: ServiceState) -> bool:
        return bool(state.invocation) and state.invocation != self.update.extra.get(
            "old_invocation"
        )

    def _reported(self) -> bool:
        return self.report() not in (None, self.update.extra.get("old_report"))

    def report(self) -> float | None:
        """Return when a minion with this extension last reported that it runs."""
        fact = self.means.store.fact("running")
        if fact is None or fact.get("boot", processes.boot()) != processes.boot():
            return None
        return float(fact.get("started", 0))

    # -- proof -----------------------------------------------------------------

    def _prove(self) -> tuple[str, str]:
        """Return what is wrong, and what is still missing."""
        check = self.means.settings.health_check
        if self._needs_master():
            arguments = [f"safeupdate: update {self.update.id}"]
            problem, missing = self._job("probe", _PROBE, arguments, delivered=True)
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
        """Tell whether its master has to hear of it: not where it did not before either."""
        running = self.means.store.fact("running") or {}
        return bool(running.get("master")) and self.update.extra.get("master") is not False

    def _program(self, argv: tuple[str, ...]) -> str:
        if not self._checked:
            try:
                self.means.command(argv, timeout=self.means.settings.watch_timeout)
            except CommandError as err:
                return f"The health check failed: {err}."
            self._checked = True
        return ""

    def _job(
        self, name: str, fun: str, arguments: list[Any], *, delivered: bool
    ) -> tuple[str, str]:
        if name not in self._jobs:
            self._jobs[name] = ask(self.means, fun, arguments)
        jid = self._jobs[name]
        found = self.means.ledger.outcome(jid)
        if found is None or not found[0].ended:
            return "", f"job {jid} ({fun}) of the watch did not end"
        state, retcode = found
        if retcode:
            return f"Job {jid} ({fun}) of the watch failed with code {retcode}.", ""
        if delivered and state is not State.DELIVERED:
            return "", f"the return of job {jid} ({fun}) of the watch did not reach its master"
        return "", ""


def timeout(means: Means, update: Update) -> float:
    """Return how long a minion may take, in seconds."""
    settings = means.settings
    watched = update.kind == "update" and "returned" not in update.extra
    return settings.watch_timeout if watched else settings.restart_timeout


def ask(means: Means, fun: str, arguments: list[Any]) -> str:
    """Have the running minion run a job as if it were published; return its JID."""
    # Shaped like those of the master, and no other's.
    now = time.gmtime(means.clock())
    jid = time.strftime("%Y%m%d%H%M%S", now) + f"{uuid.uuid4().int % 1_000_000:06}"
    means.store.set_fact("ask", {"jid": jid, "fun": fun, "arg": arguments})
    return jid


def heard(means: Means, seconds: float) -> bool:
    """Tell whether the master of the running minion gets the return of a job in time."""
    running = means.store.fact("running") or {}
    if not running.get("master"):
        return False
    jid = ask(means, _PROBE, ["safeupdate: before an update"])
    deadline = means.clock() + seconds
    while means.clock() < deadline:
        found = means.ledger.outcome(jid)
        if found is not None and found[0] is State.DELIVERED:
            return True
        means.sleep(_POLL_INTERVAL)
    return False
