"""
Tell the master when a new snapshot waits for its activation by a reboot.

.. code-block:: yaml

    beacons:
      transactional_update:
        - interval: 60

The event ``salt/beacon/<id>/transactional_update/pending`` is sent once for every new
default snapshot, with ``running`` and ``default`` (snapshot numbers); the event
``.../activated`` when nothing is pending any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import salt.utils.path

from saltext_safeupdate.admin.transactional import reboots

if TYPE_CHECKING:
    __context__: dict = {}

__virtualname__ = "transactional_update"


def __virtual__():
    if not salt.utils.path.which(reboots.TOOL):
        return False, "the transactional_update beacon needs transactional-update"
    return __virtualname__


def validate(config):
    """Check the configuration of the beacon: a list, which may have ``interval``."""
    if not isinstance(config, list):
        return False, "The configuration of the beacon transactional_update has to be a list"
    return True, "Valid configuration"


def beacon(config):
    """Return an event for a default snapshot that was not reported yet."""
    return reboots.snapshot_events(__context__)
