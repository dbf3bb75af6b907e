"""How a process of the minion begins an update: it writes a record and starts a supervisor."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import LockHeldError, SafeUpdateError
from ..extensions import ourselves
from ..generations import activation
from ..generations.activation import Activation
from ..host import locks, processes
from ..host.locks import Lock
from ..host.minions import Minion
from ..host.servers import Server
from ..host.service import Inhibitor, Services
from ..host.wait import Wait
from ..packages.manager import Installer, PackageManager
from ..prepare.revisions import Revisions
from ..record.parts import Code, Owed, WayBack
from ..record.phase import Phase
from ..record.store import Store
from ..record.update import Update
from ..settings import Settings
from . import leaving, watchdog

# Seconds within which the supervisor, a small Python program, must take its locks.
_SUPERVISOR_TIMEOUT = 30.0
_POLL_INTERVAL = 0.02


@dataclass(frozen=True, kw_only=True)
class Installation:
    """
    The parts that an update changes: the own packages, the directories of code of the minion in
    them, and the paths that a rollback puts back.
    """

    own: Sequence[str] = ()
    roots: Sequence[str] = ()
    backup_paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Master:
    """
    The daemons of a master that run from the packages of an update, and the paths of that master
    that a rollback puts back.
    """

    servers: Sequence[Server] = ()
    backup_paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class RunningJobs:
    """
    The jobs that run now: their *names* for messages, and the *pids* of their processes. They may
    have begun before this extension was installed.
    """

    names: Callable[[], Sequence[str]] = tuple
    pids: Callable[[], Sequence[int]] = tuple

    def processes(self) -> dict[str, str]:
        """Return the identities of their processes, by PID."""
        found = {str(pid): processes.identity(pid) for pid in self.pids()}
        return {pid: identity for pid, identity in found.items() if identity}


@dataclass(kw_only=True)
class Initiator:
    """
    The collaborators of a process that begins an update, and the steps that all ways share.

    *manager* is the package manager of the host. An update of this extension has none: *pip* is its
    installer. *launch* starts the supervisor. *arm* makes sure that a supervisor continues the
    update, whichever process dies; it gets the linked copies of the code by their directories.
    *stage_extensions* stages the extensions below a directory and returns where; empty if there is
    nothing to stage.
    *others* are the other minions of this host that run from the same packages. *unaware* says why
    minions without this extension prevent an update. *master* returns a master that runs from the
    same packages, or raises SafeUpdateError if it could not start again.
    *write_timeout* is how long a supervisor that prepares may hold the update lock, in seconds.
    *obstacle_to_handover* says why the stop guard would not hand the minion over now; empty if it
    would.
    *clock* is the time of day, for the record only; waiting uses *monotonic*.
    """

    settings: Settings
    store: Store
    services: Services
    inhibitor: Inhibitor
    launch: Callable[[], None]
    manager: PackageManager | None = None
    pip: Installer | None = None
    installation: Installation = Installation()
    jobs: RunningJobs = RunningJobs()
    arm: Callable[[Mapping[str, str]], None] = lambda copies: None
    stage_extensions: Callable[[str], str] = lambda directory: ""
    others: Sequence[Minion] = ()
    unaware: Callable[[], Sequence[str]] = tuple
    master: Callable[[], Master] = Master
    write_timeout: float = 5.0
    obstacle_to_handover: Callable[[], str] = lambda: ""
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def installer(self) -> Installer | None:
        """The object that installs the update; None if no package manager is known."""
        return self.pip or self.manager

    @property
    def revisions(self) -> Revisions:
        return Revisions(self.settings.state_dir, self.store, self.activation)

    @property
    def activation(self) -> Activation:
        return activation.of(self.manager, self.installer)

    def versions(self) -> dict[str, str]:
        """Return the installed versions of the own packages."""
        own, installer = self.installation.own, self.installer
        return installer.installed(own) if installer and own else {}

    def latest(self) -> Update | None:
        return self.store.latest() if self.store.exists() else None

    def new_record(self, kind: str, jid: str, reason: str, **parts: Any) -> Update:
        """
        Return a record of the minion as it is now; it is not written.

        Raise LockHeldError for an update if the minion will soon run without this extension.
        """
        if kind == "update" and leaving.is_asked(self.store):
            raise LockHeldError(
                "safeupdate is being removed from this minion (state safeupdate.disabled), so "
                "nobody would watch the update. Nothing was changed; wait for the restart, or "
                "apply safeupdate.enabled first."
            )
        unit = self.settings.service
        state = self.services.state(unit)
        installation = self.installation
        request = parts.get("request")
        with_master = kind == "update" and self.pip is None and not (request and request.source)
        master = self.master() if with_master else Master()
        return Update(
            **{
                "id": uuid.uuid4().hex[:12],
                "kind": kind,
                "jid": jid,
                "pid": os.getpid(),
                "reason": reason,
                "created": self.clock(),
                "versions_from": self.versions(),
                "unit": {
                    "active": state.active,
                    "enabled": state.enabled,
                    "file": self.services.unit_file(unit) or "",
                },
                "processes": self.jobs.processes(),
                "code": Code(
                    own=tuple(sorted(installation.own)),
                    roots=tuple(installation.roots),
                    extension=ourselves.home(),
                    servers=tuple(master.servers),
                ),
                "way_back": WayBack(
                    paths=(*installation.backup_paths, *master.backup_paths),
                    kept=tuple(master.backup_paths),
                ),
                **parts,
            }
        )

    def writing(self) -> Lock:
        """Return the update lock; a supervisor that prepares holds it only for moments."""
        lock = Lock(self.settings.run_dir, "update")
        if not lock.wait_exclusive(self.write_timeout, clock=self.monotonic, sleep=self.sleep):
            lock.close()
            raise LockHeldError(self.busy())
        return lock

    def wait_until(self, condition: Callable[[], bool], wait: Wait | None = None) -> bool:
        """Wait for the condition, by default as long as a supervisor may take to start."""
        wait = wait or Wait(_SUPERVISOR_TIMEOUT, self.monotonic)
        while not condition():
            if wait.over:
                return False
            self.sleep(_POLL_INTERVAL)
        return True

    def wait_end(self, other: Update) -> bool:
        """Wait, within the limit for jobs, for the end of an update or restart under way."""

        def ended() -> bool:
            now = self.store.get(other.id)
            return (now is None or now.phase.final) and not self.is_supervised()

        return self.wait_until(ended, Wait(self.settings.jobs_timeout, self.monotonic))

    def is_supervised(self) -> bool:
        """Tell whether a supervisor lives."""
        return locks.held(self.settings.run_dir, "supervisor")

    def have_supervised(self, update: Update) -> None:
        """Start a supervisor unless one lives, which takes the newest record when it is done."""
        try:
            if not self.is_supervised():
                self.launch()
                if not self.wait_until(lambda: self._is_taken(update)):
                    self.fail_to_start()
        except (SafeUpdateError, OSError) as err:
            self.store.save(update.advance(Phase.FAILED, reason=str(err)))
            raise

    def _is_taken(self, update: Update) -> bool:
        """Tell whether a supervisor lives, or one that was quick has ended."""
        if self.is_supervised():
            return True
        found = self.store.get(update.id)
        return found is not None and found.phase is not update.phase

    def fail_to_start(self) -> NoReturn:
        raise SafeUpdateError(
            f"The supervisor did not start within {_SUPERVISOR_TIMEOUT:g} s. Nothing "
            f"was changed; 'journalctl -u {watchdog.supervisor_unit(self.settings)}' may say why."
        )

    def clear_the_way(self, kind: str) -> Owed | None:
        """
        Cancel a restart that only waits; refuse if anything else is under way.

        An update that waits for a boot does not delay a restart. Return the restart that is owed
        if the new update needs none.
        """
        last = self.store.latest()
        booting = last is not None and last.awaits_boot
        if last is None or last.phase.final or (booting and kind == "restart"):
            if not self.wait_until(lambda: not self.is_supervised()):
                raise LockHeldError(self.busy())
            return None
        if booting:
            raise LockHeldError(self.busy())
        if not self.is_supervised():
            self.launch()
            raise LockHeldError(
                f"Update {last.id} was interrupted while {last.phase.value}; it is being repaired "
                "now. Nothing was changed; try again when 'safeupdate.status' shows its end."
            )
        if last.kind != "restart" or last.phase is not Phase.WAITING:
            raise LockHeldError(self.busy())
        self.store.save(last.advance(Phase.CANCELLED, reason="A newer request takes its place."))
        if not self.wait_until(lambda: not self.is_supervised()):
            raise LockHeldError(self.busy())
        return debt(last)

    def busy(self) -> str:
        """Name the update or the restart that is under way."""
        last = self.latest()
        if last is not None and last.awaits_boot:
            return (
                f"Update {last.id} waits for the reboot that activates it. Nothing was changed; "
                "reboot first, or cancel it with 'safeupdate.cancel'."
            )
        who = f"{last.id}, {last.phase.value}, job {last.jid or '-'}" if last else "just begun"
        restarts = last is not None and last.kind == "restart" and not last.phase.final
        return (
            f"{'A restart' if restarts else 'Another update'} of the minion is under way ({who}). "
            "Nothing was changed; wait for its end ('safeupdate.status') and try again."
        )


def debt(last: Update) -> Owed | None:
    """Return the restart that a superseded record owes: itself, or the one it owed already."""
    if last.kind == "restart":
        return Owed(jid=last.jid, reason=last.reason, processes=last.processes)
    return last.owed
