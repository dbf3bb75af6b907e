"""
Runner of safeupdate
====================

.. versionadded:: 0.1.0
"""

import salt.version
from salt.exceptions import SaltInvocationError

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import redelivery
from saltext_safeupdate.master.account import Account, path_of

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def redeliver(target="*", tgt_type="glob", timeout=30):
    """
    Publish again, under their JIDs, the jobs that minions have missed.

    The engine ``safeupdate_redeliver`` of this master does it: it asks each minion which jobs it
    has accepted of those that it has not returned. The jobs that the minion does not know are
    published to it again; the others are left alone. Minions without this extension are left
    alone as well. The engine does the same by itself, whenever a minion starts and from time to
    time; this has it done now. How far it looks back is the engine's ``window``.

    Returns ``published`` (minions by JID), ``accepted`` (states of jobs by minion),
    ``no_answer`` and ``not_set_up`` (minions).

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.redeliver
        salt-run safeupdate.redeliver 'G@os:Debian' tgt_type=compound

    target
        The minions. Defaults to ``*``.

    tgt_type
        How ``target`` is meant. Defaults to ``glob``.

    timeout
        Seconds that minions have to answer. Defaults to ``30``.

    :raises SaltInvocationError: if ``timeout`` is not a number of seconds above 0.
    :raises CommandExecutionError: if the engine is not configured or does not run, or this
        master publishes nothing again; the message says why.
    """
    with errors.as_salts(SaltInvocationError):
        timeout = redelivery.seconds("timeout", timeout)
        minions = redelivery.targeted(__opts__, target, tgt_type)
        return redelivery.redeliver(Account(path_of(__opts__)), minions, timeout)


def master_version():
    """
    Return the version of this master.

    Minions ask for it before they update, so that none becomes newer than its master. They may
    ask if ``peer_run`` of the master lists this function; the SLS ``safeupdate.master`` sets
    that.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.master_version
    """
    return str(salt.version.__version__)
