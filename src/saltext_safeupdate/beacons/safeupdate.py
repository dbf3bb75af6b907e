"""
Beacon for a pending restart of the minion
==========================================

Fires ``salt/beacon/<id>/safeupdate/`` when an update or a deferred restart begins to wait
and when it has ended, with the fields ``pending``, ``phase``, ``update`` and ``reason``.

.. code-block:: yaml

    beacons:
      safeupdate:
        - interval: 10
"""

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import from_mapping

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def validate(config):
    """
    Check the configuration of the beacon: a list, of which ``interval`` is the beacon's own.
    """
    if not isinstance(config, list):
        return False, "The configuration of the beacon safeupdate must be a list."
    return True, "Valid beacon configuration"


def beacon(config):
    """
    Return one event where the phase is another than at the last look.
    """
    try:
        store = Store(from_mapping(__opts__.get("safeupdate")).database)
        last = store.latest() if store.exists() else None
    except SafeUpdateError as err:
        now = {"pending": False, "phase": "unknown", "update": "", "reason": str(err)}
    else:
        if last is None:
            return []
        now = {
            "pending": not last.phase.final,
            "phase": last.phase.value,
            "update": last.id,
            "reason": last.reason,
        }
    before = __context__.get("safeupdate.beacon")
    __context__["safeupdate.beacon"] = now
    if now == before or (before is None and not now["pending"]):
        return []
    return [now]
