"""The proof that a minion which has reported works: the probe, and the health check."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommandError
from ..extensions import interpreter
from ..generations.generation import Generation
from ..host.reach import Address
from ..record.facts import PENDING_KEY
from ..record.update import Update
from . import probe
from .context import Context
from .verdict import Probe, Seen

log = logging.getLogger("salt-safeupdate")

# Seconds after which a silent master is checked for reachability, and between two such checks.
_REACH_INTERVAL = 2.0
# The port on which a master listens for requests.
_PORT = 4506


@dataclass
class Proof:
    """
    Checks the work of one process of a minion; another process has to prove everything again.

    *reachable* tells whether this host reaches a master; None if that has not been checked.
    """

    context: Context
    update: Update
    reachable: bool | None = None
    _jobs: dict[str, str] = field(default_factory=dict)
    _checked: bool = False
    _broken: str | None = None
    _reach_at: float | None = None
    _answered: bool = False
    _succeeded: bool = False
    _away: bool = False
    # Checks in a row that reached no master, and when the next one was due after the last.
    _misses: int = 0
    _counted: float | None = None
    _waited: bool = False

    def look(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Return *seen* with the facts about the work of a minion that has reported."""
        running = self.context.generations.serving()
        if running is None or running.report is None:
            return seen
        report, before = running.report, self.update.former.hooked
        seen |= {
            "stood_down": report.hooked is False,
            "had_stood_down": before is False,
            "unhooked": report.hooked is None,
            "pending": self._pending_key(running),
        }
        if not report.master:
            return seen | self._health_check(running)
        seen["master"] = self._heard_before()
        # A probe that no master can answer is not started.
        seen |= (
            {"probe": Probe.PENDING}
            if seen["master"] is False
            else self._probe(running, seen["over"])
        )
        return seen | self._health_check_if_due(running, seen) if Seen(**seen).settled else seen

    def _probe(self, running: Generation, over: bool) -> dict[str, Any]:
        """Return the result of the job that shows whether the master hears from the minion."""
        context = self.context
        jid = self._asked(
            running, "probe", probe.FUNCTION, [f"safeupdate: update {self.update.id}"]
        )
        found = context.outcome(jid)
        seen: dict[str, Any] = {"job": f"job {jid} ({probe.FUNCTION}) of the watch"}
        if found is not None and found.ended and found.answered:
            if not self._answered:
                self._answered, self.reachable = True, None
            self._succeeded = not found.retcode
            broken = self._cannot_load(jid, found.retcode) if found.retcode else ""
            return {**seen, "probe": Probe.ANSWERED, "broken": broken}
        seen["probe"] = Probe.ENDED if found is not None and found.ended else Probe.PENDING
        seen["engine"] = self.context.has_engine()
        seen["reachable"] = self._look_for_master(running, at_once=over)
        return seen

    def _pending_key(self, running: Generation) -> str:
        """Return the name under which it waits for its key; empty if a master has accepted it."""
        found = self.context.store.replaceable(PENDING_KEY)
        if found is None or found.process != running.process:
            return ""
        return "" if any(there for _, there in running.masters or ()) else found.name

    def _heard_before(self) -> bool | None:
        """Tell whether a master got a return of the minion before; None if unknown."""
        known, jid = self.update.progress.master, self.update.jid
        if known is None and jid:
            found = self.context.outcome(jid)
            # It may be a return of this minion instead: that proves it as well.
            return True if found is not None and found.ended and found.answered else None
        return known

    def _look_for_master(self, running: Generation, *, at_once: bool = False) -> bool | None:
        """Tell whether this host reaches a master; None if that has not been checked yet."""
        now = self.context.monotonic()
        if self._reach_at is None:
            self._reach_at = now + _REACH_INTERVAL
        if now >= self._reach_at or (at_once and self.reachable is None):
            known = _masters(running)
            self.reachable = self.context.reaches(known) if known else None
            self._reach_at = self.context.monotonic() + _REACH_INTERVAL
        return self.reachable

    def _stays_away(self, reachable: bool | None) -> bool:
        """Tell whether two checks in a row reached no master: a busy one may miss one check."""
        if self._reach_at != self._counted:
            self._counted = self._reach_at
            self._misses = self._misses + 1 if reachable is False else 0
        return self._misses > 1

    def _cannot_load(self, jid: str, retcode: int) -> str:
        """
        Return why the new Salt cannot load the module of the probe; empty if it can.

        A job fails for many reasons outside of the minion: a blackout, a list of modules.
        """
        if self._broken is None:
            self._broken = ""
            try:
                program = self.context.services.program(self.context.unit)
                python = interpreter.named_by(program) if program else None
                names = ("salt", probe.MODULE) if python else ()
                good, bad = interpreter.importable(python or "", self.context.command, names)
            except CommandError as err:
                log.warning("cannot tell whether Salt can be loaded: %s", err)
                return ""
            if "salt" in good and bad:
                self._broken = (
                    f"Job {jid} ({probe.FUNCTION}) of the watch failed with code {retcode}, "
                    f"and {python} cannot load it: {bad[0]}."
                )
        return self._broken

    def _health_check_if_due(self, running: Generation, seen: dict[str, Any]) -> dict[str, Any]:
        """Run it, unless it is an SLS and there is no proof that this minion can run one now."""
        check = self.context.settings.health_check
        of_master = bool(check) and not os.path.isabs(check[0])
        if of_master and not (seen["probe"] is Probe.ANSWERED and self._succeeded):
            return {"unchecked": True}
        return self._health_check(running)

    def _health_check(self, running: Generation) -> dict[str, Any]:
        check = self.context.settings.health_check
        if check and os.path.isabs(check[0]):
            return {"check": self._program(check)}
        for sls in check:
            # A state run of others that was held until now is no reason to roll back.
            options = {"__kwarg__": True, "queue": True}
            jid = self._asked(running, sls, "state.apply", [sls, options])
            found = self.context.outcome(jid)
            if found is None or not found.ended:
                reachable = self._look_for_master(running)
                self._away = self._away or self._stays_away(reachable)
                self._waited = self._waited or (found is not None and found.held)
                return {
                    "checking": f"job {jid} (state.apply) of the watch did not end",
                    "reachable": reachable,
                    "engine": self.context.has_engine(),
                    "check_waited": found is None or self._waited,
                }
            if found.retcode:
                if not self._away:
                    known = _masters(running)
                    self._away = bool(known) and not self.context.reaches(known)
                if self._away:
                    return {"unchecked": True}
                failed = f"Job {jid} (state.apply) of the watch failed with code {found.retcode}."
                return {"check": failed}
        return {}

    def _program(self, argv: tuple[str, ...]) -> str:
        if not self._checked:
            try:
                self.context.command(argv, timeout=self.context.settings.watch_timeout)
            except CommandError as err:
                return f"The health check failed: {err}."
            self._checked = True
        return ""

    def _asked(self, running: Generation, name: str, fun: str, arguments: list[Any]) -> str:
        """Return the JID of a job of this watch; the minion gets each of them once."""
        if name not in self._jobs:
            self._jobs[name] = probe.begin(self.context, running.process, fun, arguments)
        return self._jobs[name]


def _masters(running: Generation) -> list[Address]:
    """Return the addresses of the masters of the new minion."""
    report = running.report
    if report is None or report.masters or not report.master:
        return list(report.masters) if report is not None else []
    # A function names them, so they are known as soon as a minion has signed in.
    return [Address(host, report.port or _PORT) for host, _ in running.masters or ()]
