"""
States for transactional systems.

.. code-block:: yaml

    base packages:
      transactional_update.applied:
        - mods: [packages, users]

    activate them:
      transactional_update.rebooted:
        - require:
          - transactional_update: base packages
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin.transactional import transactions

if TYPE_CHECKING:
    __opts__: dict = {}
    __salt__: dict = {}

__virtualname__ = "transactional_update"


def __virtual__():
    if "transactional_update.call" not in __salt__:
        return False, "the transactional_update execution module is not available"
    return __virtualname__


def applied(name, mods=None, **kwargs):
    """
    Apply states inside a transaction.

    name
        The name of the change.

    mods
        SLS files, as a list or separated by commas. Defaults to the highstate.

    Other parameters (``pillar``, ``saltenv``, ``exclude``, ``transaction_timeout``...) are as
    for :py:func:`transactional_update.sls`.

    .. code-block:: yaml

        base packages:
          transactional_update.applied:
            - mods: packages
            - pillar:
                editor: emacs
    """
    if __salt__["transactional_update.in_transaction"]():
        comment = "This runs inside a transaction already; list the SLS under include"
        return {"name": name, "changes": {}, "result": False, "comment": comment}
    try:
        found = __salt__["transactional_update.apply"](
            mods, test=__opts__["test"], **transactions.without_internals(kwargs)
        )
    except CommandExecutionError as err:
        return {"name": name, "changes": {}, "result": False, "comment": str(err)}
    return {"name": name, **transactions.summarise(found, test=__opts__["test"])}


def rebooted(name):
    """
    Reboot if a new snapshot waits for a reboot; otherwise do nothing.

    Inside a transaction the reboot comes after it.

    name
        The purpose of the reboot.

    .. code-block:: yaml

        activate changes:
          transactional_update.rebooted:
            - order: last
    """
    ret = {"name": name, "changes": {}, "result": True, "comment": "No reboot is needed"}
    inside = __salt__["transactional_update.in_transaction"]()
    try:
        if not inside and not __salt__["transactional_update.pending_transaction"]():
            return ret
        if __opts__["test"]:
            return {**ret, "result": None, "comment": "A reboot would be requested"}
        ret["comment"] = __salt__["transactional_update.reboot"]()
    except CommandExecutionError as err:
        return {**ret, "result": False, "comment": str(err)}
    return {**ret, "changes": {"reboot": "requested"}}
