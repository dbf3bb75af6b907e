"""
Update the packages of a simulated minion: ``update.py COMMAND JSON`` prints what came of it.

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
from saltext_safeupdate.core.host import command, locks
from saltext_safeupdate.core.host.service import ServiceState
from saltext_safeupdate.core.host.systemd import Systemd
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.prepare.resolution import Resolver
from saltext_safeupdate.core.program import supervisor
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import requests, watchdog
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
logging.basicConfig(stream=sys.stderr, level=logging.INFO)


class Services(Systemd):
    """systemd, with a minion that is a file."""

    def state(self, unit):
        try:
            with open(MINION, encoding="ascii") as file:
                active, invocation = file.read().split()
        except FileNotFoundError:
            active, invocation = "inactive", ""
        return ServiceState(active, "enabled", 1 if active == "active" else 0, invocation)

    def start(self, unit):
        active = "failed" if os.path.exists("/data/salt/broken") else "active"
        with open(MINION, "w", encoding="ascii") as file:
            file.write(f"{active} {uuid.uuid4().hex}")
        if active == "active":
            now = {"started": os.stat(MINION).st_mtime, "version": "", "boot": boot()}
            STORE.set_fact("running", now)

    begin_restart = start

    def unit_file(self, unit):
        return "/usr/lib/systemd/system/salt-minion.service"

    def program(self, unit):
        return "/data/salt/minion"


def boot():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


GIVEN = json.loads(sys.argv[2])
CHOSEN = settings.from_mapping({**SETTINGS, **GIVEN.pop("settings", {})})
STORE = Store(CHOSEN.database)
MANAGER = TransactionalUpdate(command.run)
SERVICES = Services(command.run)


def initiator():
    return Initiator(
        settings=CHOSEN,
        store=STORE,
        services=SERVICES,
        launch=lambda: LOCKS.append(supervisor_lock()),
        manager=MANAGER,
        installation=Installation(own=OWN, backup_paths=["/etc/salt"]),
        arm=lambda copies: watchdog.arm(CHOSEN, SERVICES, command.run, copies),
    )


def resolver():
    return Resolver(
        manager=MANAGER,
        own=OWN,
        store=STORE,
        revisions=initiator().revisions,
        staged={},
        steps_dir=CHOSEN.steps_dir,
    )


LOCKS = []


def supervisor_lock():
    lock = locks.Lock(CHOSEN.run_dir, "supervisor")
    assert lock.try_exclusive()
    return lock


def described(update):
    return {
        "id": update.id,
        "phase": update.phase.value,
        "reason": update.reason,
        "from": update.versions_from,
        "to": update.versions_to,
        "awaits": update.boot.awaits,
        "reboot": update.boot.reboot,
        "phases": [row.phase for row in STORE.history(update.id)],
    }


def main():
    what = sys.argv[1]
    if what == "start":
        SERVICES.start("salt-minion")
    elif what == "request":
        requests.update(initiator(), resolver().resolve(resolution.request(**GIVEN)))
    elif what == "cancel":
        requests.cancel(initiator())
    elif what == "transaction":
        before = initiator().versions()
        MANAGER.snapshots.install(GIVEN["files"])
        adopt(initiator(), before, reason="transactional_update.pkg_install")
    if what == "supervise":
        supervisor(CHOSEN, SERVICES, MANAGER).run()
    last = STORE.latest() if STORE.exists() else None
    return {
        "installed": MANAGER.installed(OWN),
        "running": MANAGER.running(OWN),
        "quarantined": sorted({row.version for row in STORE.quarantined()}) if last else [],
        "last": described(last) if last and isinstance(last, Update) else None,
    }


if __name__ == "__main__":
    print(json.dumps(main()))
