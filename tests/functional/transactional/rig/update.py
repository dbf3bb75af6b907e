"""
Update the packages of a simulated minion: a command, and what came of it as JSON.

The supervisor, the package manager, the snapshots and the record are the real ones. The
minion is a file: it runs if it was started, and fails where its package brought
``/data/salt/broken``.
"""

import json
import logging
import os
import sys
import uuid

from saltext_safeupdate.core import settings
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import command, locks
from saltext_safeupdate.core.host.service import LastRun, ServiceState
from saltext_safeupdate.core.host.systemd import Systemd
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.prepare.resolution import Resolver
from saltext_safeupdate.core.program import supervisor
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import asking, watchdog
from saltext_safeupdate.core.supervisor.adoption import adopt
from saltext_safeupdate.core.supervisor.initiator import Initiator, Installation
from saltext_safeupdate.core.transactional.manager import TransactionalUpdate

MINION = "/run/rig/minion"
OWN = ("salt", "salt-minion")
SETTINGS = {
    "restart_timeout": 10,
    "watch_timeout": 10,
    "stable_interval": 0.1,
    "jobs_timeout": 5,
    "return_timeout": 5,
}


class Services(Systemd):
    """systemd, with a minion that is a file."""

    def __init__(self, store):
        super().__init__(command.run)
        self._store = store

    def state(self, unit):
        try:
            with open(MINION, encoding="ascii") as file:
                active, invocation = file.read().split()
        except FileNotFoundError:
            active, invocation = "inactive", ""
        return ServiceState(active, "enabled", 1 if active == "active" else 0, invocation)

    def last_run(self, unit):
        return LastRun()

    def start(self, unit):
        active = "failed" if os.path.exists("/data/salt/broken") else "active"
        with open(MINION, "w", encoding="ascii") as file:
            file.write(f"{active} {uuid.uuid4().hex}")
        if active == "active":
            report = Report(at=os.stat(MINION).st_mtime, boot=boot())
            Generations(self._store).reports(uuid.uuid4().hex, report)

    begin_restart = start

    def unit_file(self, unit):
        return "/usr/lib/systemd/system/salt-minion.service"

    def program(self, unit):
        return "/data/salt/minion"


def boot():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class Updating:
    """Does one command, in a process of its own."""

    def __init__(self, chosen):
        self.chosen = settings.from_mapping({**SETTINGS, **chosen})
        self.store = Store(self.chosen.database)
        self.manager = TransactionalUpdate(command.run)
        self.services = Services(self.store)
        self.locks = []

    def initiator(self):
        return Initiator(
            settings=self.chosen,
            store=self.store,
            services=self.services,
            inhibitor=self.services,
            launch=self.lock_supervisor,
            manager=self.manager,
            installation=Installation(own=OWN, backup_paths=["/etc/salt"]),
            arm=lambda copies: watchdog.arm(self.chosen, self.services, command.run, copies),
        )

    def resolver(self):
        return Resolver(
            installer=self.manager,
            own=OWN,
            store=self.store,
            revisions=self.initiator().revisions,
            staged={},
            steps_dir=self.chosen.steps_dir,
        )

    def lock_supervisor(self):
        """Look like a supervisor that runs; the lock ends with this process."""
        lock = locks.Lock(self.chosen.run_dir, "supervisor")
        assert lock.try_exclusive()
        self.locks.append(lock)

    def described(self, update):
        return {
            "id": update.id,
            "phase": update.phase.value,
            "reason": update.reason,
            "from": update.versions_from,
            "to": update.versions_to,
            "awaits": update.boot.awaits,
            "reboot": update.boot.reboot,
            "phases": [row.phase for row in self.store.history(update.id)],
        }

    def __call__(self, what, **given):
        if what == "start":
            self.services.start("salt-minion")
        elif what == "request":
            wanted = self.resolver().resolve(resolution.request(**given))
            asking.update(self.initiator(), wanted)
        elif what == "cancel":
            asking.cancel(self.initiator())
        elif what == "transaction":
            before = self.initiator().versions()
            self.manager.snapshots.install(given["files"])
            adopt(self.initiator(), before, reason="transactional_update.pkg_install")
        elif what == "quarantine":
            versions = dict.fromkeys(OWN, given["version"])
            self.store.quarantine(versions, "u0", "it did not start.")
        elif what == "supervise":
            supervisor(self.chosen, self.services, self.manager).run()
        last = self.store.latest() if self.store.exists() else None
        quarantined = sorted({row.version for row in self.store.quarantined()}) if last else []
        return {
            "installed": self.manager.installed(OWN),
            "running": self.manager.running(OWN),
            "quarantined": quarantined,
            "last": self.described(last) if last and isinstance(last, Update) else None,
        }


def answer(what, given):
    """Print what the command gave."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, force=True)
    print(json.dumps(Updating(given.pop("settings", {}))(what, **given)))
