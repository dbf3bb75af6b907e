"""
Engine that keeps the promises of safeupdate
============================================

It reports that the minion runs, tells the master of every phase of an update, sends
returns again that did not arrive, resumes jobs that a restart interrupted or reports them
to their master, and starts the supervisor if an update was interrupted. Loading it
also puts the hooks into the minion's main process.

.. code-block:: yaml

    engines:
      - safeupdate: {}

Each phase is an event ``salt/minion/<id>/safeupdate/<phase>`` with the fields ``update``,
``kind``, ``phase``, ``reason``, ``from``, ``to`` (packages and versions), ``seq`` (grows
with each event of this minion) and ``at`` (epoch seconds).
"""

import logging
import os
import time

from saltext_safeupdate import hooks
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs.ticker import Ticker
from saltext_safeupdate.factory import Factory

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate"


def __virtual__():
    # Engines are loaded in the main process of the minion, before it takes any job.
    try:
        if not hooks.install(__opts__) and not hooks.stood_down():
            return False, "safeupdate runs on minions only"
    except SafeUpdateError as err:
        return False, str(err)
    return __virtualname__


def start():
    """
    Run until the minion ends.
    """
    from saltext_safeupdate.minion.delivery import Delivery

    minion = os.getppid()
    factory = Factory(__opts__)
    lock = locks.Lock(factory.settings.run_dir, "engine")
    # With several masters there are several engines: one acts.
    lock.exclusive()
    delivery = Delivery(__opts__, __salt__)
    ticker = Ticker(
        settings=factory.settings,
        store=factory.store,
        ledger=factory.ledger,
        delivery=delivery,
        launch=factory.launch,
        owner=processes.identity(minion),
        stand_down=bool(__opts__.get("resume_jobs_on_restart")),
    )
    announced = False
    # An engine that outlives its minion must not act beside that of the next one.
    while os.getppid() == minion:
        try:
            if not announced:
                factory.ledger.anchor()
                ticker.started(delivery.salt_version, master=_has_master(__opts__))
                announced = True
            ticker.tick()
        except SafeUpdateError as err:
            log.error("safeupdate: %s", err)
        time.sleep(factory.settings.tick_interval)


def _has_master(opts):
    """Tell whether jobs of this minion come back to a master."""
    return opts.get("master_type") != "disable" and not hooks.stood_down()
