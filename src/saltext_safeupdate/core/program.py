"""The supervisor as a program: everything it needs, built from the settings alone."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

from . import wiring
from .errors import SafeUpdateError
from .host import service
from .host.locks import Lock
from .jobs.ledger import Ledger
from .record.store import Store
from .settings import from_mapping
from .supervisor.supervisor import Supervisor

log = logging.getLogger("salt-safeupdate")

# Seconds for which the lock of the supervisors may be taken without one that runs: whoever
# asks whether it is held holds it for a moment.
_SOLE_TIMEOUT = 5.0


def main(argv: Sequence[str]) -> int:
    """Run with the settings as JSON in the only argument; return the exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    settings = from_mapping(json.loads(argv[0]))
    sole = Lock(settings.run_dir, "supervisor")
    if not sole.wait_exclusive(_SOLE_TIMEOUT):
        log.info("another supervisor runs; nothing to do")
        return 0
    try:
        Supervisor(
            settings=settings,
            store=Store(settings.database),
            ledger=Ledger(settings.database),
            services=service.detect(),
            packages=wiring.package_manager(),
            jobs=Lock(settings.run_dir, "jobs"),
            drain=Lock(settings.run_dir, "drain"),
            baton=Lock(settings.run_dir, "update"),
        ).run()
    except SafeUpdateError as err:
        log.error("%s", err)
        return 1
    return 0
