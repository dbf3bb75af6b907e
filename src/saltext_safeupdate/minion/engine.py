"""The loop of the minion's engine, which does what no process of a job can."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.host import locks, processes
from ..core.jobs.ticker import Ticker
from ..factory import Factory
from .delivery import Delivery

log = logging.getLogger(__name__)


def run(opts: Mapping[str, Any], functions: Mapping[str, Any], *, hooked: bool) -> None:
    """
    Run until the minion ends.

    *functions* are Salt's execution functions. *hooked* tells whether the minion has our hooks:
    without them no return of a job is recorded, so none proves that a master hears.
    """
    minion = os.getppid()
    factory = Factory(opts)
    lock = locks.Lock(factory.settings.run_dir, "engine")
    # With several masters there are several engines: one acts.
    lock.exclusive()
    delivery = Delivery(opts, functions)
    ticker = Ticker(
        settings=factory.settings,
        store=factory.store,
        ledger=factory.ledger,
        delivery=delivery,
        launch=factory.launch,
        owner=processes.identity(minion),
        stand_down=bool(opts.get("resume_jobs_on_restart")),
    )
    announced = False
    # An engine that outlives its minion must not act beside that of the next one.
    while os.getppid() == minion:
        try:
            if not announced:
                factory.ledger.anchor()
                ticker.started(delivery.salt_version, master=has_master(opts, hooked=hooked))
                announced = True
            ticker.tick()
        except SafeUpdateError as err:
            log.error("safeupdate: %s", err)
        time.sleep(factory.settings.tick_interval)


def has_master(opts: Mapping[str, Any], *, hooked: bool) -> bool:
    """Tell whether the return of a job shows that a master hears of this minion."""
    return hooked and opts.get("master_type") != "disable"
