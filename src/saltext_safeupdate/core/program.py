"""The supervisor as a program: everything it needs, built from the settings alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from . import wiring
from .errors import SafeUpdateError
from .generations import own_tree
from .generations.table import Generations
from .host import inherited, init_system
from .host.locks import Lock
from .host.service import ServiceManager
from .jobs import copied
from .jobs.ledger import Ledger, State
from .jobs.stop_guard import StopGuard
from .packages.manager import PackageManager
from .record.store import Store
from .settings import Settings
from .supervisor import neighbours
from .supervisor.context import Context, Locks, Outcome
from .supervisor.supervisor import Supervisor
from .supervisor.watchdog import read_settings

log = logging.getLogger("salt-safeupdate")

# Seconds for which the lock of the supervisors may be taken although none runs: a process that
# asks whether it is held takes it for a moment.
_SOLE_TIMEOUT = 5.0


def main(argv: Sequence[str], sole_timeout: float = _SOLE_TIMEOUT) -> int:
    """Run with the settings that the only argument names; return the exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    try:
        settings = read_settings(argv[0])
    except SafeUpdateError as err:
        log.error("%s", err)
        return 1
    inherited.load(settings.state_dir)
    _hold_own_slot(settings)
    sole = Lock(settings.run_dir, "supervisor")
    try:
        store = Store(settings.database)
        if store.exists():
            copied.look(store, Ledger(settings.database))
        acting = supervisor(settings, init_system.detect(), wiring.package_manager())
        while sole.wait_exclusive(sole_timeout):
            acting.run()
            acting.let_go()
            sole.release()
            # A caller with a new request saw this supervisor live, and started no other one.
            if not acting.is_needed():
                return 0
    except SafeUpdateError as err:
        log.error("%s", err)
        return 1
    log.info("another supervisor runs; nothing to do")
    return 0


def _hold_own_slot(settings: Settings) -> None:
    """Have nobody remove the slot whose interpreter this is, while it runs."""
    try:
        own_tree.hold(own_tree.slots_of([os.path.realpath(sys.executable)], settings.slots_dir))
    except OSError as err:
        log.warning("the slot of this interpreter may be removed below it: %s", err)


def supervisor(
    settings: Settings, services: ServiceManager, manager: PackageManager | None
) -> Supervisor:
    """Return the supervisor of this host, with its database and its locks."""
    return Supervisor(context(settings, services, manager))


def context(
    settings: Settings, services: ServiceManager, manager: PackageManager | None
) -> Context:
    """Return what it acts with."""
    ledger, store, guard = Ledger(settings.database), Store(settings.database), StopGuard(settings)
    generations = Generations(store)

    def outcome(jid: str) -> Outcome | None:
        found = ledger.outcome(jid)
        if found is None:
            return None
        state, retcode = found
        refused = generations.is_refused(jid)
        held = state is State.HELD
        return Outcome(state.ended, state is State.DELIVERED, retcode, refused, held)

    return Context(
        settings=settings,
        store=store,
        services=services,
        inhibitor=services,
        watchdogs=services,
        manager=manager,
        locks=Locks.of(settings.run_dir),
        outcome=outcome,
        slots=lambda update: wiring.slot_installer(settings, store, services),
        extension=lambda update: wiring.own_extension(settings, services, update.code.extension),
        others=lambda roots: neighbours.of(settings, roots),
        undelivered=lambda jid: any(row.jid == jid for row in ledger.undelivered()),
        owed=ledger.owed,
        obstacle_to_handover=guard.obstacle,
        remove_guard=guard.remove,
    )
