"""
Engine of the master that publishes again what minions have missed
==================================================================

A job that is published while a minion restarts, or while the network to it is cut, never
reaches it. This engine follows the master's events. When a minion starts, and from time to
time while a job has not returned, it asks the minion which jobs it has accepted. It publishes
the others to it again, under their JIDs. The ledger of the minion makes sure that no job runs
twice. Minions without this extension are left alone.

.. code-block:: yaml

    engines:
      - safeupdate_redeliver:
          window: 3600

``window`` is how far it looks back, in seconds; ``start_tags`` are the events that tell of
a start, with the minion's ID as the field ``id``, by default ``salt/minion/*/start`` and
``minion_start``.
"""

import salt.utils.event

from saltext_safeupdate.master import follower
from saltext_safeupdate.master.redelivery import Redelivery

__virtualname__ = "safeupdate_redeliver"


def __virtual__():
    if __opts__.get("__role") != "master":
        return False, "safeupdate_redeliver is an engine for masters"
    return __virtualname__


def start(window=3600, start_tags=follower.START_TAGS):
    """
    Run until the master ends.

    window
        Seconds to look back. Defaults to ``3600``.

    start_tags
        Patterns of the events that tell of a start. Defaults to
        ``[salt/minion/*/start, minion_start]``.
    """
    with (
        salt.utils.event.get_event(
            "master", sock_dir=__opts__["sock_dir"], opts=__opts__, listen=True
        ) as bus,
        Redelivery(__opts__) as work,
    ):
        following = follower.Follower(work, window=float(window), start_tags=start_tags)
        following.catch_up()
        while True:
            event = bus.get_event(wait=follower.INTERVAL, full=True, auto_reconnect=True)
            if event:
                following.event(event["tag"], event["data"])
            following.tick()
