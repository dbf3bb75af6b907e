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

import logging
from typing import TYPE_CHECKING

import salt.utils.path

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import command
from saltext_safeupdate.core.transactional import detect, roots

if TYPE_CHECKING:
    __context__: dict = {}

log = logging.getLogger(__name__)

__virtualname__ = "transactional_update"
_LAST = "transactional_update.beacon"


def __virtual__():
    if not salt.utils.path.which(detect.TOOL):
        return False, "the transactional_update beacon needs transactional-update"
    return __virtualname__


def validate(config):
    """Validate the beacon's configuration: a list that may hold ``interval``."""
    if not isinstance(config, list):
        return False, "The configuration of the beacon transactional_update has to be a list"
    return True, "Valid configuration"


def beacon(config):
    """Return an event for a default snapshot that was not reported yet."""
    try:
        found = roots.read_roots(command.run)
    except SafeUpdateError as err:
        log.warning("the pending snapshot cannot be read: %s", err)
        return []
    last, now = __context__.get(_LAST), found.default if found.pending else None
    __context__[_LAST] = now
    if now == last:
        return []
    running = found.running.number if found.running else None
    tag = "pending" if found.pending else "activated"
    return [{"tag": tag, "running": running, "default": found.default.number}]
