"""The collaborators that every step of an update needs."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from ..errors import CommandError, LockUnavailableError, UnreadableError
from ..generations import activation, meeting
from ..generations.activation import Activation
from ..generations.table import Generations
from ..host import copy_names, engine_at_rest, linked_copy
from ..host.command import Run
from ..host.command import run as run_command
from ..host.host_wait import HostWait, describe
from ..host.locks import Lock
from ..host.minions import Minion
from ..host.reach import Address, reaches_any
from ..host.service import Inhibitor, Services, Watchdogs
from ..packages.manager import Installer, PackageManager, Slots, Transactions
from ..prepare.revisions import Revisions
from ..record.store import Store
from ..record.update import Update
from ..settings import Settings

log = logging.getLogger("salt-safeupdate")

# Seconds that an interrupted package manager may still be at work, and seconds between two
# checks of it.
REPAIR_WAIT = 900.0
REPAIR_INTERVAL = 1.0
# Number of attempts to repair it; the scriptlet of a package may fail each time.
REPAIR_ATTEMPTS = 3


class Outcome(NamedTuple):
    """
    The result of a job: whether it has ended, and whether its master has the return.

    *refused*: its master was reachable and could not store the return. *held*: the job is in a
    queue.
    """

    ended: bool
    delivered: bool
    retcode: int
    refused: bool = False
    held: bool = False

    @property
    def answered(self) -> bool:
        """Whether a master has answered to the return."""
        return self.delivered or self.refused


@dataclass(frozen=True)
class Locks:
    """
    The locks. The process opens each of them only once.

    Exclusive ``jobs`` means that no job runs. ``drain`` keeps new jobs from starting. ``packages``
    keeps away what may not run during a change of the own packages. The process that writes the
    record holds ``update``.
    """

    jobs: Lock
    drain: Lock
    packages: Lock
    update: Lock

    @classmethod
    def of(cls, run_dir: str) -> Locks:
        """Open all of them."""
        return cls(*(Lock(run_dir, each.name) for each in fields(cls)))


@dataclass(frozen=True, kw_only=True)
class Context:
    """
    The collaborators of the supervisor.

    *outcome* returns the result of a job of this minion, None if it is unknown. *undelivered* tells
    whether the return of a job still waits for its master. *owed* names the jobs that only the
    ledger can complete. *others* finds the other minions of this host that run from directories of
    code; *neighbours* are the ones that this update is for.
    *manager* is the package manager of the host. An update of this extension has none: *extension*
    returns its installer, which becomes *pip*. An update to a slot has none either: *slots* returns
    its installer.
    *obstacle_to_handover* says why the stop guard would not hand the minion over now; empty if it
    would. *remove_guard* removes it.
    *clock* is the time of day, for the record only, because somebody may set it. All waiting uses
    *monotonic*. *waited* returns how many seconds the processes below a PID had to wait for the
    host since the last call. *reaches* tells whether this host reaches one of these masters.
    *seen* says in a sentence what a process has done so far. *engine_runs* tells whether the engine
    of a minion runs; if it is None, the lock of the engine tells.
    """

    settings: Settings
    store: Store
    services: Services
    inhibitor: Inhibitor
    watchdogs: Watchdogs
    manager: PackageManager | None
    locks: Locks
    outcome: Callable[[str], Outcome | None]
    undelivered: Callable[[str], bool]
    extension: Callable[[Update], Installer] | None = None
    slots: Callable[[Update], Slots] | None = None
    pip: Installer | None = None
    owed: Callable[[], Sequence[str]] = tuple
    command: Run = run_command
    others: Callable[[Sequence[str]], Sequence[Minion]] = lambda roots: ()
    neighbours: Sequence[Minion] = ()
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    waited: Callable[[int], float] = field(default_factory=HostWait)
    reaches: Callable[[Sequence[Address]], bool] = reaches_any
    seen: Callable[[int], str] = describe
    engine_runs: Callable[[], bool] | None = None
    obstacle_to_handover: Callable[[], str] = lambda: ""
    remove_guard: Callable[[], object] = bool

    @property
    def unit(self) -> str:
        """The name of the minion's own service."""
        return self.settings.service

    def has_engine(self) -> bool:
        """Tell whether the engine of a minion runs; true if its lock cannot be read."""
        if self.engine_runs is not None:
            return self.engine_runs()
        try:
            return engine_at_rest.is_there(self.settings.run_dir)
        except LockUnavailableError as err:
            log.warning("cannot tell whether the engine runs: %s", err)
            return True

    @property
    def installer(self) -> Installer | None:
        """The object that installs the update; None if no package manager is known."""
        return self.pip or self.manager

    @property
    def generations(self) -> Generations:
        return Generations(self.store)

    @property
    def hands_over(self) -> bool:
        """Tell whether the running minion can be handed over: its restart waits for no job."""
        serving = self.generations.serving()
        try:
            report = None if serving is None else serving.report
        except UnreadableError as err:
            log.warning("%s", err)
            return False
        if serving is None or report is None or not report.hands_over:
            return False
        if not meeting.can_be_asked(self.settings.run_dir, serving.process):
            return False
        # The unit may have changed since the minion started.
        why_not = self.generations.crowded() or self.obstacle_to_handover()
        if why_not:
            log.info("the restart waits for jobs: %s", why_not)
        return not why_not

    @property
    def revisions(self) -> Revisions:
        return Revisions(self.settings.state_dir, self.store, self.activation)

    @property
    def activation(self) -> Activation:
        return activation.of(self.manager, self.installer)

    def reread(self, update: Update) -> Update:
        """Return the record as it is on disk."""
        return self.store.get(update.id) or update

    def note(self, update: Update, **changes: Any) -> Update:
        """Write to the record without a new phase."""
        return self.store.save(replace(update, **changes))

    def note_progress(self, update: Update, **changes: Any) -> Update:
        """Write the progress of the update to the record."""
        return self.note(update, progress=replace(update.progress, **changes))

    def let_jobs_start(self) -> None:
        self.locks.packages.release()
        self.locks.drain.release()
        self.locks.jobs.release()

    def let_manager_end(self) -> None:
        """Wait, within a limit, for a running package manager: its effect is unknown until then."""
        deadline = self.monotonic() + REPAIR_WAIT
        while self.manager is not None and self.manager.busy() and self.monotonic() < deadline:
            self.sleep(REPAIR_INTERVAL)

    def repair(
        self, own: Sequence[str], *, killed: bool = False
    ) -> tuple[dict[str, str], list[str]]:
        """
        Finish what is half done; return the versions, and the packages still half done.

        A package manager that was *killed* may have left work of other packages, such as triggers.
        """
        installer, manager = self.installer, self.manager
        if installer is None:
            return {}, []
        deadline = self.monotonic() + REPAIR_WAIT
        attempts = 0
        while manager is not None and self.monotonic() < deadline:
            # It may be an orphan of a process that died.
            if not manager.busy():
                needed = (killed and not attempts) or bool(manager.unfinished(own))
                if attempts == REPAIR_ATTEMPTS or not needed:
                    break
                attempts += 1
                try:
                    manager.repair(own)
                except CommandError as err:
                    log.warning("the package manager could not be repaired: %s", err)
            self.sleep(REPAIR_INTERVAL)
        return installer.installed(own), self.unfinished(own)

    def unfinished(self, own: Sequence[str]) -> list[str]:
        """Return the packages that an interrupted transaction has left unfinished."""
        return self.manager.unfinished(own) if self.manager is not None else []

    @contextlib.contextmanager
    def letting_go(self) -> Iterator[None]:
        """Release the service afterwards: nobody else would, and it could never be stopped."""
        try:
            yield
        finally:
            if self.inhibitor.inhibited(self.unit):
                self.inhibitor.release(self.unit)

    def mixed(self, update: Update) -> list[str]:
        """Return the directories of code that have files of two versions."""
        return mixed(self.manager, update)


def mixed(manager: Transactions | None, update: Update) -> list[str]:
    """
    Return the directories of code in which an installation has begun without a trace.

    It was killed among the files of a package, and the package database has the old version.
    The directories are compared with the linked copies of the old code.
    """
    if manager is None or manager.write_ahead:
        return []
    return linked_copy.differing(copy_names.of(update.code.roots, update.id))
