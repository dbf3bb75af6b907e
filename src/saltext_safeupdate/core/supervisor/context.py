"""What every step of an update acts with."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..errors import CommandError
from ..host import linked_copy, locks
from ..host.command import Run
from ..host.command import run as run_command
from ..host.service import ServiceManager
from ..jobs.ledger import Ledger
from ..packages.manager import PackageManager, Snapshots
from ..prepare.revisions import Revisions
from ..record.store import Store
from ..record.update import Update
from ..settings import Settings

log = logging.getLogger("salt-safeupdate")

# Seconds that an interrupted package manager may still be at work, and seconds between two
# looks at it.
REPAIR_WAIT = 900.0
REPAIR_INTERVAL = 1.0
# Tries to repair it; the scriptlet of a package may fail each time.
REPAIR_ATTEMPTS = 3


@dataclass(kw_only=True)
class Means:
    """The collaborators and the locks, which the process holds only once."""

    settings: Settings
    store: Store
    ledger: Ledger
    services: ServiceManager
    packages: PackageManager | None
    jobs: locks.Lock
    drain: locks.Lock
    baton: locks.Lock
    command: Run = run_command
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    @property
    def revisions(self) -> Revisions:
        return Revisions(self.settings.state_dir, self.store, self.packages)

    @property
    def snapshots(self) -> Snapshots | None:
        """What a boot activates; None where a restart does."""
        return self.packages.snapshots if self.packages is not None else None

    def now(self, update: Update) -> Update:
        """Return the record as it is on disk."""
        return self.store.get(update.id) or update

    def note(self, update: Update, **extra: object) -> Update:
        """Write to the record without a new phase."""
        return self.store.save(replace(update, extra={**update.extra, **extra}))

    def open(self) -> None:
        """Let jobs start again."""
        self.drain.release()
        self.jobs.release()

    def let_end(self) -> None:
        """Wait, bounded, for a package manager at work: what it does is not known before."""
        deadline = self.clock() + REPAIR_WAIT
        while self.packages is not None and self.packages.busy() and self.clock() < deadline:
            self.sleep(REPAIR_INTERVAL)

    def repair(self, own: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Finish what is half done; return the versions, and what stays half done."""
        packages = self.packages
        if packages is None:
            return {}, []
        deadline = self.clock() + REPAIR_WAIT
        attempts = 0
        while self.clock() < deadline:
            # It may be an orphan of whoever died.
            if not packages.busy():
                if attempts == REPAIR_ATTEMPTS or not packages.unfinished(own):
                    break
                attempts += 1
                try:
                    packages.repair(own)
                except CommandError as err:
                    log.warning("the package manager could not be repaired: %s", err)
            self.sleep(REPAIR_INTERVAL)
        return packages.installed(own), packages.unfinished(own)


def torn(packages: PackageManager | None, update: Update) -> list[str]:
    """
    Return the directories of code in which an installation has begun without telling.

    It was killed among the files of a package, and the database has the old version.
    """
    if packages is None or packages.write_ahead:
        return []
    return linked_copy.differing(update.extra.get("copies", {}))
