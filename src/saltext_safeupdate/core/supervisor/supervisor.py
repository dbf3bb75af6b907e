"""
The program that updates and restarts the minion, outside its cgroup and without Salt.

It starts before anything changes, has everything it needs in memory, and holds the locks
that keep jobs from starting. Where a job installs, it waits for the ``update`` lock, the
baton of that job; where the update was asked for, it installs by itself. Either way it reads
the record and goes on from there, whatever happened to whoever wrote it. Every step may be
run again.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import replace

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host import linked_copy
from ..prepare.staging import Staging
from ..record.update import BEFORE_INSTALLING, Phase, Update
from . import drain, reboot, rollback, steps, watchdog
from .bring import bring_along
from .context import Means, torn
from .requested import Managed, unchanged
from .watch import Watch, timeout

log = logging.getLogger("salt-safeupdate")

_POLL_INTERVAL = 0.05
# Tries of a step whose program fails, and seconds between them.
_STEP_ATTEMPTS = 3
_STEP_INTERVAL = 1.0
# Supervisors of one update, one after the other, after which it is given up.
_MOST_SUPERVISORS = 12


class Supervisor(Means):
    """Bring the newest record to its end."""

    def run(self) -> None:
        update = self.store.latest()
        while update is not None:
            try:
                update = self._take_over(update)
                if update.phase.final:
                    self._clean(update)
                    self._tidy(update)
                else:
                    update = self._resume(update)
            finally:
                # Nothing that holds others back may stay, whatever went wrong above.
                if self.services.inhibited(self.settings.service):
                    self.services.release(self.settings.service)
            update = self._next(update)

    def _take_over(self, update: Update) -> Update:
        """Get the baton; for a restart or a request, also the moment at which no job runs."""
        if update.phase.final:
            self.baton.exclusive()
            return self.now(update)
        if update.kind == "restart" and update.phase in (Phase.REQUESTED, Phase.WAITING):
            update = drain.wait(self, update)
            return update if update.phase.final else self._idle(update)
        if update.requested and update.phase in BEFORE_INSTALLING:
            return Managed(self).prepare(update)
        self.drain.exclusive()
        self.baton.exclusive()
        update = self.now(update)
        if update.phase.final or update.phase in BEFORE_INSTALLING:
            return update
        return self.note(update, supervisors=update.extra.get("supervisors", 0) + 1)

    def _idle(self, update: Update) -> Update:
        if update.phase is Phase.REQUESTED:
            update = self.store.save(update.advance(Phase.WAITING))
        return self.store.save(update.advance(Phase.RESTARTING))

    def _next(self, update: Update) -> Update | None:
        """Return what came meanwhile: a newer request, or a restart that is still owed."""
        latest = self.store.latest()
        found = latest if latest and latest.id != update.id and not latest.phase.final else None
        found = found or self._owed(update)
        if found is not None:
            self.open()
            self.baton.release()
        return found

    def _owed(self, update: Update) -> Update | None:
        """Return the restart that gave way to this update, or was asked for while it ended."""
        waits = update.awaits_boot
        owed = update.extra.get("owed") if waits or "restarted" not in update.extra else None
        asked = self.store.fact("restart")
        if not owed and not asked:
            return None
        wanted = owed or asked
        restart = Update(
            id=uuid.uuid4().hex[:12],
            kind="restart",
            phase=Phase.WAITING,
            reason=wanted["reason"],
            jid=wanted["jid"],
            pid=os.getpid(),
            created=self.clock(),
            unit=update.unit,
            extra={"processes": wanted["processes"]},
        )
        restart = self.store.save(restart)
        if waits:
            self.note(update, owed=None)
        if asked:
            self.store.drop_fact("restart")
        return restart

    def _resume(self, update: Update) -> Update:
        """Go on, and again where a program failed; after that, give the update up."""
        if update.extra.get("supervisors", 0) > _MOST_SUPERVISORS:
            update = self._fail(update, f"{_MOST_SUPERVISORS} supervisors did not get it done.")
        attempts = _STEP_ATTEMPTS
        while not update.phase.final:
            phase = update.phase
            try:
                update = self._step(update)
            except (CommandError, VerificationError) as err:
                update = self.now(update)
                attempts -= 1
                if attempts:
                    log.warning("update %s: %s; trying again", update.id, err)
                    self.sleep(_STEP_INTERVAL)
                    continue
                update = self._fail(update, str(err))
            if update.phase is not phase:
                attempts = _STEP_ATTEMPTS
            elif update.awaits_boot:
                break
        return update

    def _step(self, update: Update) -> Update:
        """Go on by one phase."""
        actions: dict[Phase, Callable[[Update], Update]] = {
            Phase.INSTALLING: self._install,
            Phase.RESTARTING: self._restart,
            Phase.WATCHING: self._watch,
            Phase.ROLLING_BACK: self._roll_back,
        }
        action = actions.get(update.phase)
        if action is None:
            return self._end(
                update, Phase.FAILED, "The run ended before the update began; nothing was changed."
            )
        return action(update)

    def _fail(self, update: Update, problem: str) -> Update:
        """Go back where there is a way, else say what there is to do."""
        if update.phase is Phase.ROLLING_BACK:
            return self._end(update, Phase.FAILED, rollback.by_hand(update, problem))
        if update.requested and update.phase is Phase.INSTALLING and self._untouched(update):
            return self._end(update, Phase.FAILED, unchanged(problem))
        if update.has_way_back:
            return rollback.begin(self, update, problem)
        return self._end(
            update,
            Phase.FAILED,
            f"{problem.removesuffix('.')}. The installed version may not be the running one: fix "
            "that, then restart the minion with 'safeupdate.restart'.",
        )

    # -- installing ------------------------------------------------------------

    def _install(self, update: Update) -> Update:
        return Managed(self).install(update) if update.requested else self._after_crash(update)

    def _untouched(self, update: Update) -> bool:
        own = list(update.versions_from)
        packages = self.packages
        return (
            packages is not None
            and packages.installed(own) == update.versions_from
            and not packages.unfinished(own)
            and not torn(self.packages, update)
        )

    def _after_crash(self, update: Update) -> Update:
        """The job died while it installed: wait for its package manager, then take over."""
        left: list[str] = []
        now = update.versions_from
        if self.packages is not None:
            now, left = self.repair(list(update.versions_from))
            if now == update.versions_from and not left:
                left = torn(self.packages, update)
                if not left or not update.has_way_back:
                    what = f"left half done: {', '.join(left)}" if left else "changed nothing"
                    problem = f"The run was ended while it installed; the package manager {what}."
                    return self._end(update, Phase.FAILED, problem)
        if left and update.has_way_back:
            return rollback.begin(
                self, replace(update, versions_to=now), f"half done: {', '.join(left)}."
            )
        return self.store.save(
            update.advance(
                Phase.RESTARTING,
                reason=f"half done: {', '.join(left)}"
                if left
                else "The run was ended while it installed; the installation was completed.",
                versions_to=now,
            )
        )

    # -- the restart -----------------------------------------------------------

    def _restart(self, update: Update) -> Update:
        unit = self.settings.service
        if "restarted" not in update.extra:
            update = self._get_ready(update)
            if update.phase is not Phase.RESTARTING:
                return update
        # Also where it does not look inhibited: systemd may not have been told.
        if update.kind == "update":
            self.services.release(unit)
        before = self.services.state(unit)
        if "restarted" not in update.extra:
            update = self.note(
                update,
                # What runs now has to go, also where this is done again after a crash.
                old_pid=before.pid,
                old_invocation=before.invocation,
                old_report=Watch(self, update).report(),
                restarted=self.clock(),
            )
        if update.by_boot:
            update = self._activate(update)
            if "booted" not in update.extra:
                return update
        if self._stays_down(update):
            if before.running:
                self.services.stop(unit)
        elif not Watch(self, update).is_new(before):
            if before.enabled.startswith("masked"):
                # It runs although it is masked: that is put back when it runs again.
                self.services.set_enabled(unit, "disabled")
            if before.running:
                self.services.begin_restart(unit)
            else:
                self.services.start(unit)
        return self.store.save(
            update.advance(Phase.WATCHING, deadline=self.clock() + timeout(self, update))
        )

    def _activate(self, update: Update) -> Update:
        """Wait for the boot, unless it has been; end it where that boot would not start it."""
        problem = reboot.lost(self, update)
        if problem:
            if update.missed_boot:
                # It was booted, and something else than we went back from it.
                rollback.quarantine(self, update, problem)
            return self._end(update, Phase.FAILED, problem)
        if reboot.pending(self):
            return reboot.wait(self, update)
        # The minion that the boot has started may not have waited for them.
        update, problem = steps.run(self, update)
        if problem:
            return rollback.begin(self, update, problem)
        return self.note(update, booted=self.clock(), **self._outdated(update))

    def _outdated(self, update: Update) -> dict[str, object]:
        """Return what marks the minion that runs now as one that steps have overtaken."""
        if not update.extra.get("steps"):
            return {}
        state, report = self.services.state(self.settings.service), Watch(self, update).report()
        return {"old_pid": state.pid, "old_invocation": state.invocation, "old_report": report}

    def _get_ready(self, update: Update) -> Update:
        """
        Wait for the job and its return; then have all that belongs to the new version in place.
        """
        if update.by_boot and not reboot.asks(self):
            # Whoever reboots does so when it suits. What is beside Salt is in the snapshot.
            return update
        if not self._delivered(update):
            log.warning("the return of job %s has not reached its master yet", update.jid)
        if update.kind != "update":
            return update
        if update.jid and not update.requested:
            away = any(row.jid == update.jid for row in self.ledger.undelivered())
            update = self.note(update, master=not away)
        if update.by_boot:
            return update
        if update.extra.get("unfinished"):
            update = self._fix(update)
        problem = bring_along(self, update)
        left = update.extra.get("unfinished")
        if not self._stays_down(update) and update.has_way_back and (problem or left):
            return rollback.begin(self, update, problem or update.reason)
        update, problem = steps.run(self, update)
        if problem and update.has_way_back:
            return rollback.begin(self, update, problem)
        if problem:
            log.error("update %s goes on without a way back: %s", update.id, problem)
            update = self.store.save(replace(update, reason=problem))
        return update

    def _fix(self, update: Update) -> Update:
        now, left = self.repair(list(update.versions_from))
        if now == update.versions_from and not left:
            left = torn(self.packages, update)
        reason = update.reason if left else f"{update.reason}; completed before the restart"
        return self.note(replace(update, versions_to=now, reason=reason), unfinished=left)

    def _delivered(self, update: Update) -> bool:
        """Wait, bounded, until no job runs and the return of this one is with its master."""
        deadline = self.clock() + self.settings.return_timeout
        alone = self.jobs.wait_exclusive(
            self.settings.return_timeout, clock=self.clock, sleep=self.sleep
        )
        while alone and any(row.jid == update.jid for row in self.ledger.undelivered()):
            if self.clock() >= deadline:
                return False
            self.sleep(_POLL_INTERVAL)
        return alone

    # -- afterwards ------------------------------------------------------------

    def _watch(self, update: Update) -> Update:
        unit = self.settings.service
        if self._stays_down(update):
            if not self._removed(update):
                self.services.set_enabled(unit, update.unit.get("enabled", ""))
            return self._end(
                update, Phase.COMMITTED, update.reason or "The service does not run, as before."
            )
        back = update.has_way_back
        watch = Watch(self, update, patient=not back)
        problem = watch.proves_healthy() if update.kind == "update" else watch.comes_up()
        self.services.set_enabled(unit, update.unit.get("enabled", ""))
        if not problem:
            self._left_by_request(update)
            return self._end(update, Phase.COMMITTED, update.reason)
        if back:
            return rollback.begin(self, update, problem)
        if update.kind == "update":
            problem += f" There is no way back: {update.extra.get('no_way_back', 'not known')}."
        return self._end(update, Phase.FAILED, problem)

    def _left_by_request(self, update: Update) -> None:
        """What somebody went back from is not to be installed again by the next state run."""
        if update.requested and update.extra["request"]["back"]:
            left = dict(set(update.versions_from.items()) - set(update.versions_to.items()))
            self.store.quarantine(left, update.id, update.reason)

    def _roll_back(self, update: Update) -> Update:
        if not update.has_way_back:
            return self._end(update, Phase.FAILED, rollback.by_hand(update, "Nothing is secured."))
        update, problem = rollback.carry_out(self, update)
        if problem:
            return self._end(update, Phase.FAILED, rollback.by_hand(update, problem))
        if update.by_boot and reboot.pending(self):
            return update
        return self._end(update, Phase.ROLLED_BACK, update.reason)

    def _stays_down(self, update: Update) -> bool:
        """Tell whether it did not run before, or was removed."""
        return update.unit.get("active") in ("inactive", "failed") or self._removed(update)

    def _removed(self, update: Update) -> bool:
        """Tell whether its packages are gone, or the one with the unit is."""
        if update.kind != "update" or not update.versions_from:
            return False
        unit = self.settings.service
        had_unit = bool(update.unit.get("file"))
        return not update.versions_to or (had_unit and self.services.unit_file(unit) is None)

    # -- the end ---------------------------------------------------------------

    def _end(self, update: Update, phase: Phase, reason: str) -> Update:
        """Give the record its last phase, once nothing is left to be done."""
        self._clean(update)
        log.info("update %s: %s (%s)", update.id, phase.value, reason or "-")
        update = self.store.save(update.advance(phase, reason=reason))
        self._tidy(update)
        return update

    def _clean(self, update: Update) -> None:
        """Remove what was there for the change only; idempotent."""
        unit = self.settings.service
        try:
            if update.phase is Phase.INSTALLING or self.services.inhibited(unit):
                self.services.release(unit)
            copies = update.extra.get("copies", {})
            linked_copy.thaw(path for path in copies.values() if isinstance(path, str))
            held = update.extra.get("held")
            if held and self.packages is not None:
                self.packages.hold(held, True)
        except (CommandError, OSError) as err:
            log.error("update %s left something behind: %s", update.id, err)

    def _tidy(self, update: Update) -> None:
        """Keep what leads back from here, and nothing else; idempotent."""
        try:
            if update.phase is Phase.COMMITTED and update.versions_to != update.versions_from:
                self.revisions.keep(update)
            ended = update.phase in (Phase.COMMITTED, Phase.ROLLED_BACK)
            if update.kind == "update" and ended and self.packages is not None:
                Staging(self.settings.state_dir, self.store, self.packages).drop()
            # What is to be done by hand needs them.
            by_hand = update.phase is Phase.FAILED and "supervisors" in update.extra
            other = self.store.latest()
            waits = other is not None and not other.phase.final
            kept = {update.id if by_hand else "", other.id if other and waits else ""}
            self.revisions.prune(kept - {""})
            if not waits:
                watchdog.disarm(self.services)
        except (SafeUpdateError, OSError) as err:
            log.error("update %s left something behind: %s", update.id, err)
