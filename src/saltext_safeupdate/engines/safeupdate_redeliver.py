"""
Engine of the master that publishes again what minions have missed
==================================================================

A job that is published while a minion restarts, or while it is cut off, never reaches it.
This engine follows the master's events. When a minion starts, and from time to time while
a job has not returned, it asks the minion which jobs it has accepted, and publishes the
others to it again, under their JIDs. The ledger of the minion sees to it that none runs
twice. Minions without this extension are left alone.

.. code-block:: yaml

    engines:
      - safeupdate_redeliver:
          window: 3600

``window`` is how far it looks back, in seconds; ``start_tags`` are the events that tell of
a start, with the minion's ID as the field ``id``, by default ``salt/minion/*/start`` and
``minion_start``.
"""

import fnmatch
import logging
import time

import salt.exceptions
import salt.utils.event

from saltext_safeupdate.core.jobs.missed_jobs import Tracker
from saltext_safeupdate.master.redelivery import Redelivery

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate_redeliver"

_START_TAGS = ("salt/minion/*/start", "minion_start")
# Seconds between two looks for what is due.
_INTERVAL = 1.0


def __virtual__():
    if __opts__.get("__role") != "master":
        return False, "safeupdate_redeliver is an engine for masters"
    return __virtualname__


def start(window=3600, start_tags=_START_TAGS):
    """
    Run until the master ends.

    window
        Seconds to look back. Defaults to ``3600``.

    start_tags
        Patterns of the events that tell of a start. Defaults to
        ``[salt/minion/*/start, minion_start]``.
    """
    tracker = Tracker(window=float(window))
    with (
        salt.utils.event.get_event(
            "master", sock_dir=__opts__["sock_dir"], opts=__opts__, listen=True
        ) as bus,
        Redelivery(__opts__) as work,
    ):
        now = time.time()
        for jid, load, minions in work.recent(float(window)):
            tracker.published(jid, load.get("fun"), minions, now - work.age(jid))
        look_at = 0.0
        while True:
            event = bus.get_event(wait=_INTERVAL, full=True, auto_reconnect=True)
            if event:
                _follow(tracker, work, event["tag"], event["data"], start_tags)
            if time.time() >= look_at:
                look_at = time.time() + _INTERVAL
                _ask(tracker, work)


def _follow(tracker, work, tag, data, start_tags):
    parts = tag.split("/")
    if parts[:2] == ["salt", "job"] and len(parts) > 3:
        jid = parts[2]
        if parts[3] == "new":
            tracker.published(jid, data.get("fun"), data.get("minions", ()), time.time())
        elif parts[3] == "ret" and len(parts) > 4:
            if tracker.is_question(jid):
                missed = tracker.answered(jid, parts[4], _answer(data), time.time())
                for one in missed:
                    _publish(work, one, parts[4])
            tracker.returned(jid, parts[4], time.time())
    elif any(fnmatch.fnmatchcase(tag, pattern) for pattern in start_tags) and data.get("id"):
        tracker.started(data["id"])


def _answer(data):
    """Return what the minion said; None where it does not know the function."""
    return data.get("return") if data.get("success", data.get("retcode", 0) == 0) else None


def _ask(tracker, work):
    due = tracker.due(time.time())
    if not due:
        return
    jids = {jid for listed in due.values() for jid in listed}
    try:
        question = work.ask(due, jids)
    except (salt.exceptions.SaltException, OSError) as err:
        log.error("safeupdate: minions cannot be asked what they missed: %s", err)
        question = ""
    tracker.asked(question, due, time.time())


def _publish(work, jid, minion):
    try:
        work.publish(jid, [minion])
    except (salt.exceptions.SaltException, OSError) as err:
        log.error("safeupdate: job %s cannot be published again: %s", jid, err)
