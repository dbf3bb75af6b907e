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

from saltext_safeupdate.admin.status import status

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def validate(config):
    """
    Check the configuration of the beacon: a list, which may have ``interval``.
    """
    if not isinstance(config, list):
        return False, "The configuration of the beacon safeupdate must be a list."
    return True, "Valid beacon configuration"


def beacon(config):
    """
    Return an event if the phase has changed since the last look.
    """
    return status.beacon_events(__opts__, __context__)
