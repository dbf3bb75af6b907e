"""
Runner of safeupdate
====================

.. versionadded:: 0.1.0
"""

import salt.version
from salt.exceptions import SaltInvocationError

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import redelivery

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def redeliver(target="*", tgt_type="glob", window=3600, timeout=30):
    """
    Publish again, under their JIDs, the jobs that minions have missed.

    Each minion is asked which jobs it has accepted of those that it has not returned. The jobs
    that it does not know are published to it again; the others are left alone. Minions without
    this extension are left alone as well. The engine ``safeupdate_redeliver`` does the same by
    itself whenever a minion starts.

    Returns ``published`` (minions by JID), ``accepted`` (states of jobs by minion),
    ``no_answer`` and ``not_set_up`` (minions).

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.redeliver
        salt-run safeupdate.redeliver 'G@os:Debian' tgt_type=compound window=600

    target
        The minions. Defaults to ``*``.

    tgt_type
        How ``target`` is meant. Defaults to ``glob``.

    window
        Seconds to look back. Defaults to ``3600``.

    timeout
        Seconds that minions have to answer. Defaults to ``30``.

    :raises SaltInvocationError: if ``window`` or ``timeout`` is not a number of seconds above 0.
    """
    with errors.as_salts(SaltInvocationError):
        window, timeout = redelivery.checked(window, timeout)
        with redelivery.Redelivery(__opts__) as work:
            return redelivery.redeliver(work, work.targeted(target, tgt_type), window, timeout)


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
