"""
The quiet transaction: everything around a change of the minion's own packages.

The protocol, in the process of the job that makes the change:

1. the ``update`` lock, or an error that names who holds it;
2. a record, and the supervisor, which takes the ``drain`` lock: no new job starts;
3. the ``jobs`` lock alone: every other job has ended and sent its return;
4. the old packages are secured, somebody looks after the update whatever dies, the service
   refuses to stop or restart, the old tree is kept readable;
5. the change itself, made by the caller;
6. ``restarting``: the ``update`` lock goes to the supervisor, the ``jobs`` lock stays with
   this process until it has ended. Then the supervisor restarts the minion.

Whatever dies on the way, the kernel gives its locks back and the supervisor, which waits
for the ``update`` lock, cleans up after it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from ..errors import InputError, LockHeldError, SafeUpdateError, TransitionError
from ..extensions import ourselves
from ..host import linked_copy as freezer
from ..host import locks, processes
from ..host.locks import Lock
from ..host.service import ServiceManager
from ..packages.manager import PackageManager
from ..prepare.revisions import Revisions
from ..record.store import Store
from ..record.update import Phase, Update
from ..settings import Settings
from . import watchdog
from .context import torn

T = TypeVar("T")

# Seconds within which the supervisor, a small Python program, has to take its locks.
_SUPERVISOR_TIMEOUT = 30.0
# Seconds that the supervisor may hold the update lock to write a phase before the installation.
_WRITE_TIMEOUT = 5.0


class PostponedError(SafeUpdateError):
    """Other jobs did not end in time; nothing was changed."""


@dataclass(kw_only=True)
class Transaction:
    """
    Change the own packages, or ask for a restart, under the protocol above.

    *launch* starts the supervisor; *running_jobs* names the jobs that run, for messages, and
    *running_pids* are their processes: they may have begun before this extension was there;
    *arm* has the update looked after whoever dies, and *frozen* tells this process where to
    read; both are called with the mapping of directories to their readable copies. *bring*
    gets what is installed beside Salt ready in a directory, *backup_paths* are put back on a
    rollback.
    """

    settings: Settings
    store: Store
    services: ServiceManager
    launch: Callable[[], None]
    packages: PackageManager | None = None
    own: Sequence[str] = ()
    roots: Sequence[str] = ()
    running_jobs: Callable[[], Sequence[str]] = tuple
    running_pids: Callable[[], Sequence[int]] = tuple
    frozen: Callable[[Mapping[str, str]], None] = lambda mapping: None
    arm: Callable[[Mapping[str, str]], None] = lambda mapping: None
    bring: Callable[[str], Mapping[str, Any]] = lambda directory: {}
    backup_paths: Sequence[str] = ()
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _record: Update = field(init=False)

    def change(
        self,
        work: Callable[[], T],
        jobs: Lock,
        *,
        jid: str = "",
        reason: str = "",
        failure: Callable[[T], str] = lambda result: "",
    ) -> T:
        """
        Run *work* while nothing else runs, and leave the restart to the supervisor.

        *failure* tells from the result why *work* did not do what it should, or nothing.

        *jobs* is this job's hold on the ``jobs`` lock. Where *work* changed nothing, all is
        as before and nothing restarts. Raises LockHeldError, PostponedError, RecordError or
        CommandError, each before anything was changed; what *work* raises passes through.
        """
        baton = self._begin("update", jid, reason)
        try:
            self._alone(jobs)
            return self._install(work, failure)
        finally:
            if self._record.phase not in (Phase.INSTALLING, Phase.RESTARTING):
                # The drain keeps everybody else from the exclusive lock: our hold comes back.
                jobs.try_shared()
            baton.close()

    def request_restart(self, *, jid: str = "", reason: str = "") -> Update:
        """
        Ask for a restart as soon as every job is done and delivered; return the record.

        Where a restart is to come anyway, that one's record is returned.
        """
        pending = self._latest()
        if (
            pending is not None
            and not (pending.phase.final or pending.awaits_boot)
            and self._supervised()
        ):
            if pending.phase in (Phase.WATCHING, Phase.ROLLING_BACK):
                # Its own restart has been: this one comes when it has ended.
                asked = {"reason": reason, "jid": jid, "processes": self._processes()}
                self.store.set_fact("restart", asked)
            return pending
        baton = self._begin("restart", jid, reason)
        baton.close()
        return self._record

    def request_update(
        self, request: Mapping[str, Any], *, number: int = 0, jid: str = "", reason: str = ""
    ) -> Update:
        """
        Ask the supervisor for an update; return its record.

        The same request again is the same update; another one takes the place of what has not
        begun to install. *number* grows from request to request: an older one is refused.
        """
        baton = self._writing()
        try:
            owed = self._supersede(request, number)
            if owed is None:
                return self._record
            extra = {"request": dict(request), "number": number, **owed}
            extra |= {"own": sorted(self.own), "roots": list(self.roots)}
            extra["backup_paths"] = list(self.backup_paths)
            self._record = self.store.save(self._new("update", jid, reason, extra))
        finally:
            baton.close()
        self._have_supervised()
        return self._record

    def adopt(self, before: Mapping[str, str], *, jid: str = "", reason: str = "") -> None:
        """
        Look after a transaction of the system that has changed the own packages.

        The boot that activates it is watched, and taken back if need be. *before* are the
        :meth:`versions` that the next boot would have started. What runs is not touched by
        it, so nothing has to wait.
        """
        after = self.versions()
        if after != before:
            self._adopt(after, jid, reason)

    def versions(self) -> dict[str, str]:
        """Return what is installed of the own packages."""
        return self.packages.installed(self.own) if self.packages and self.own else {}

    def cancel(self) -> Update:
        """
        Call off what waits and has not begun to install, or is not activated; return its record.
        """
        baton = self._writing()
        try:
            last = self._latest()
            if last is None or last.phase.final:
                raise TransitionError("No update and no restart is under way; nothing was changed.")
            if last.awaits_boot and last.phase is Phase.RESTARTING:
                # The former snapshot becomes the default again.
                reason = "cancelled before the reboot"
                self._record = self.store.save(last.advance(Phase.ROLLING_BACK, reason=reason))
            elif last.may_be_cancelled:
                return self.store.save(last.advance(Phase.CANCELLED, reason="cancelled"))
            else:
                raise TransitionError(
                    f"Update {last.id} is {last.phase.value}: what has begun is brought to its "
                    "end. Nothing was changed."
                )
        finally:
            baton.close()
        self._have_supervised()
        return self._record

    @property
    def warning(self) -> str:
        """What whoever asked has to know of the way back."""
        reason = self._record.extra.get("no_way_back", "")
        return f"There is no way back to the version of before: {reason}." if reason else ""

    # -- steps -----------------------------------------------------------------

    def _begin(self, kind: str, jid: str, reason: str) -> Lock:
        baton = locks.acquire(self.settings.run_dir, "update", self._busy())
        try:
            owed = self._clear_the_way(kind)
            self._record = self.store.save(self._new(kind, jid, reason, owed))
            if kind == "update":
                # Before other jobs are held: where it has to be packed anew it takes a while.
                self._note(**self._secured())
            self._start_supervisor()
            self._advance(Phase.WAITING)
        except BaseException:
            baton.close()
            raise
        return baton

    def _adopt(self, after: Mapping[str, str], jid: str, reason: str) -> None:
        packages, own = self.packages, self.own
        assert packages is not None and packages.snapshots is not None  # noqa: PT018, S101
        baton = self._writing()
        try:
            last = self._latest()
            if last is not None and not last.phase.final:
                if not last.awaits_boot or last.versions_to == after:
                    # Whoever makes it looks at what became of it.
                    return
                reason_then = "A later transaction took its place before the reboot."
                self.store.save(last.advance(Phase.FAILED, reason=reason_then))
            running = packages.running(own)
            if after == running:
                return
            extra = {"snapshot": packages.snapshots.running(), "own": sorted(own)}
            record = replace(
                self._new("update", jid, reason, extra),
                phase=Phase.RESTARTING,
                versions_from=running,
                versions_to=dict(after),
            )
            self._record = self.store.save(record)
        finally:
            baton.close()
        self.arm({})
        self._have_supervised()

    def _new(self, kind: str, jid: str, reason: str, extra: Mapping[str, Any]) -> Update:
        unit = self.settings.service
        state = self.services.state(unit)
        return Update(
            id=uuid.uuid4().hex[:12],
            kind=kind,
            jid=jid,
            pid=os.getpid(),
            reason=reason,
            created=self.clock(),
            versions_from=self.versions(),
            unit={
                "active": state.active,
                "enabled": state.enabled,
                "file": self.services.unit_file(unit) or "",
            },
            extra={"processes": self._processes(), "extension": ourselves.home(), **extra},
        )

    def _supersede(self, request: Mapping[str, Any], number: int) -> dict[str, Any] | None:
        """
        Make place for a request; None where the record of this one is there already.

        Return what the record has to carry: the restart that is owed if ours needs none.
        """
        last = self._latest()
        if last is None:
            return {}
        known = last.extra.get("number", 0) if last.requested else 0
        if number and number < known:
            raise InputError(
                f"This request ({number}) is older than update {last.id} ({known}), which is "
                f"{last.phase.value}. Nothing was changed."
            )
        same = last.requested and last.extra["request"] == dict(request)
        if same and (not last.phase.final or (number and number == known)):
            self._record = last
            return None
        if last.phase.final:
            return {}
        if not last.may_be_cancelled:
            raise LockHeldError(self._busy())
        self.store.save(last.advance(Phase.CANCELLED, reason="A newer request takes its place."))
        return self._debt(last) if last.kind == "restart" else _carried(last)

    @staticmethod
    def _debt(last: Update) -> dict[str, Any]:
        return {
            "owed": {
                "jid": last.jid,
                "reason": last.reason,
                "processes": last.extra.get("processes", {}),
            }
        }

    def _have_supervised(self) -> None:
        """Start a supervisor unless one is there: it takes the newest record when it is done."""
        try:
            if not self._supervised():
                self.launch()
                if not self._until(self._supervised):
                    self._fail_to_start()
        except (SafeUpdateError, OSError) as err:
            self._advance(Phase.FAILED, reason=str(err))
            raise

    def _writing(self) -> Lock:
        """Get the update lock, which a supervisor that prepares holds for moments only."""
        baton = Lock(self.settings.run_dir, "update")
        if not baton.wait_exclusive(_WRITE_TIMEOUT, clock=self.clock, sleep=self.sleep):
            baton.close()
            raise LockHeldError(self._busy())
        return baton

    def _latest(self) -> Update | None:
        return self.store.latest() if self.store.exists() else None

    def _revisions(self) -> Revisions:
        return Revisions(self.settings.state_dir, self.store, self.packages)

    def _secured(self) -> dict[str, Any]:
        revisions, record = self._revisions(), self._record
        secured = revisions.secure(record.id, sorted(record.versions_from), self.backup_paths)
        return {**secured, **self.bring(revisions.directory(record.id))}

    def _processes(self) -> dict[str, str]:
        """Return the identities of the processes of the running jobs, by PID."""
        named = {str(pid): processes.identity(pid) for pid in self.running_pids()}
        return {pid: identity for pid, identity in named.items() if identity}

    def _clear_the_way(self, kind: str) -> dict[str, object]:
        """
        Let a restart that only waits give way; refuse where anything else is under way.

        What waits for a boot keeps no restart back.

        Return what the record has to carry: the restart that is owed if ours needs none.
        """
        last = self.store.latest()
        booting = last is not None and last.awaits_boot
        if last is None or last.phase.final or (booting and kind == "restart"):
            if not self._until(lambda: not self._supervised()):
                raise LockHeldError(self._busy())
            return {}
        if booting:
            raise LockHeldError(self._busy())
        if not self._supervised():
            self.launch()
            raise LockHeldError(
                f"Update {last.id} was interrupted while {last.phase.value}; it is being put in "
                "order now. Nothing was changed; try again when 'safeupdate.status' shows its end."
            )
        if last.kind != "restart" or last.phase is not Phase.WAITING:
            raise LockHeldError(self._busy())
        self.store.save(last.advance(Phase.CANCELLED, reason="A newer request takes its place."))
        if not self._until(lambda: not self._supervised()):
            raise LockHeldError(self._busy())
        return self._debt(last)

    def _start_supervisor(self) -> None:
        try:
            self.launch()
            if not self._until(self._ready):
                self._fail_to_start()
        except OSError as err:
            reason = (
                f"The supervisor could not be started: {err.strerror or err}. Nothing was changed; "
                "look at the space in 'safeupdate:state_dir'."
            )
            self._advance(Phase.FAILED, reason=reason)
            raise SafeUpdateError(reason) from err
        except SafeUpdateError as err:
            self._advance(Phase.FAILED, reason=str(err))
            raise

    def _ready(self) -> bool:
        """An update needs the drain at once; a restart waits for the jobs without it first."""
        return self._supervised() and (
            self._record.kind == "restart" or locks.held(self.settings.run_dir, "drain")
        )

    def _fail_to_start(self) -> NoReturn:
        raise SafeUpdateError(
            f"The supervisor did not start within {_SUPERVISOR_TIMEOUT:g} s. Nothing "
            f"was changed; 'journalctl -u {watchdog.SUPERVISOR_UNIT}' may say why."
        )

    def _until(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        if deadline is None:
            deadline = self.clock() + _SUPERVISOR_TIMEOUT
        while not condition():
            if self.clock() >= deadline:
                return False
            self.sleep(0.02)
        return True

    def _alone(self, jobs: Lock) -> None:
        deadline = self.clock() + self.settings.jobs_timeout
        if jobs.wait_exclusive(self.settings.jobs_timeout, clock=self.clock, sleep=self.sleep):
            ours = {str(pid) for pid in processes.ancestors()}
            older = self._record.extra["processes"]
            if self._until(
                lambda: not any(processes.alive(older[pid]) for pid in older.keys() - ours),
                deadline,
            ):
                return
        others = ", ".join(self.running_jobs()) or "not known"
        reason = (
            f"Other jobs did not end within {self.settings.jobs_timeout:g} s (running: {others}). "
            "Nothing was changed. Start the update again when they are done, or set "
            "'safeupdate:jobs_timeout' higher."
        )
        self._advance(Phase.POSTPONED, reason=reason)
        raise PostponedError(reason)

    def _install(self, work: Callable[[], T], failure: Callable[[T], str]) -> T:
        copies = {root: freezer.copy_path(root, self._record.id) for root in self.roots}
        # Known before they are made: whoever cleans up after us finds them in the record.
        self._note(copies=copies)
        try:
            # Nobody reads those of an earlier update any more: no other job runs.
            freezer.thaw(freezer.leftovers(self.roots))
            freezer.freeze(self.roots, self._record.id)
        except OSError as err:
            reason = (
                f"The running code could not be kept readable beside {', '.join(self.roots)}: "
                f"{err.strerror or err}. Nothing was changed; look at the space there."
            )
            self._advance(Phase.FAILED, reason=reason)
            raise SafeUpdateError(reason) from err
        try:
            self.arm(copies)
            self._advance(Phase.INSTALLING)
            self.services.inhibit(self.settings.service)
            self.frozen(copies)
            result = work()
        except (SystemExit, KeyboardInterrupt):
            # We are being ended and the package manager may not be: the supervisor waits for it.
            raise
        except BaseException as err:
            self._settle(failure=f"{type(err).__name__}: {err}")
            raise
        self._settle(failure=failure(result))
        return result

    def _settle(self, *, failure: str) -> None:
        """
        Say what the change came to. Without another version on disk, nothing restarts: a
        package manager that fails before that has put back what it had replaced.
        """
        after = self.versions()
        unfinished = self.packages.unfinished(self.own) if self.packages and self.own else []
        changed = after != self._record.versions_from
        if failure and self.packages and not changed and not unfinished:
            # Killed before its database knew: what runs would go on in a mixture of both.
            unfinished = torn(self.packages, self._record)
            changed = bool(unfinished) and self._record.has_way_back
        reason = failure or self._record.reason
        if unfinished:
            reason = f"half done: {', '.join(unfinished)}" + (f" ({failure})" if failure else "")
        self._record = replace(self._record, extra={**self._record.extra, "unfinished": unfinished})
        if changed:
            # Half done is the supervisor's business: it repairs before it restarts.
            self._advance(Phase.RESTARTING, reason=reason, versions_to=after)
            return
        # The copies go: what this process reads from now on is in its old place again.
        self.frozen({copy: root for root, copy in self._record.extra["copies"].items()})
        self.services.release(self.settings.service)
        failed = bool(failure or unfinished)
        self._advance(
            Phase.FAILED if failed else Phase.COMMITTED,
            reason=reason if failed else "There was nothing to change; no restart.",
            versions_to=after,
        )

    def _note(self, **extra: object) -> None:
        """Write to the record without a new phase."""
        self._record = self.store.save(replace(self._record, extra={**self._record.extra, **extra}))

    def _advance(self, phase: Phase, **changes: object) -> None:
        self._record = self.store.save(self._record.advance(phase, **changes))

    def _supervised(self) -> bool:
        return locks.held(self.settings.run_dir, "supervisor")

    def _busy(self) -> str:
        last = self._latest()
        if last is not None and last.awaits_boot:
            return (
                f"Update {last.id} waits for the reboot that activates it. Nothing was changed; "
                "reboot first, or call it off with 'safeupdate.cancel'."
            )
        who = f"{last.id}, {last.phase.value}, job {last.jid or '-'}" if last else "just begun"
        return (
            f"Another update of the minion is under way ({who}). Nothing was changed; wait for "
            "its end ('safeupdate.status') and try again."
        )


def _carried(update: Update) -> dict[str, Any]:
    """Return the debt of an update that is superseded itself."""
    return {"owed": update.extra["owed"]} if "owed" in update.extra else {}
