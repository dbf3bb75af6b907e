"""
Ask ``rebootmgr`` for reboots in maintenance windows.

Replaces the module of Salt 3006 and 3007 that Salt 3008 dropped. It supports rebootmgr 1.x and 2.x.
Functions that 2.x no longer has (groups and locks with etcd) are refused with a reason.
"""

from __future__ import annotations

import salt.utils.path

from saltext_safeupdate.admin import errors
from saltext_safeupdate.admin.transactional import reboots

__virtualname__ = "rebootmgr"


def __virtual__():
    if not salt.utils.path.which(reboots.PROGRAM):
        return False, "rebootmgr needs the program rebootmgrctl"
    return __virtualname__


def _ask(method, *args, **kwargs):
    with errors.as_salts():
        return getattr(reboots.manager(), method)(*args, **kwargs)


def version():
    """
    Return the version of rebootmgr.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.version
    """
    return _ask("version")


def is_active():
    """
    Tell whether rebootmgrd runs.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.is_active
    """
    return _ask("is_active")


def reboot(order=None):
    """
    Ask for a reboot.

    order
        ``now`` ignores window and locks; ``fast`` (1.x) ignores the window.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.reboot
        salt microos rebootmgr.reboot order=now
    """
    return _ask("reboot", order)


def soft_reboot(order=None):
    """
    Ask for a reboot of user space only (2.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.soft_reboot
    """
    return _ask("reboot", order, soft=True)


def cancel():
    """
    Cancel a requested reboot.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.cancel
    """
    return _ask("cancel")


def status():
    """
    Return whether a reboot was requested.

    ``0``: no; ``1``: yes; ``2``: it waits for the maintenance window; ``3``: it waits for
    the etcd lock (1.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.status
    """
    return _ask("status")


def set_strategy(strategy=None):
    """
    Set how rebootmgr reboots, and report if nothing changed.

    strategy
        ``best-effort`` (the default), ``maint-window``, ``instantly``, ``off``; in 1.x also
        ``etcd-lock``; since 3 also ``on``, which takes ``off`` back. YAML reads ``on`` and ``off``
        as booleans; these are accepted, too.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.set_strategy strategy=off
    """
    return _ask("set_strategy", strategy)


def get_strategy():
    """
    Return how rebootmgr reboots.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.get_strategy
    """
    return _ask("get_strategy")


def set_window(time, duration):
    """
    Set the maintenance window.

    time
        When it starts, as in ``systemd.time(7)``. Quote a time of day, as in ``time="'20:00'"``:
        without quotes it is a number, which is refused.

    duration
        How long it lasts: ``[XXh][YYm]``.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.set_window time="Thu,Fri *-*-* 03:00:00" duration=1h30m
    """
    return _ask("set_window", time, duration)


def get_window():
    """
    Return the maintenance window as ``time`` and ``duration``.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.get_window
    """
    return _ask("get_window")


def set_group(group):
    """
    Set the etcd group whose lock this machine takes before a reboot (1.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.set_group group=group_1
    """
    return _ask("set_group", group)


def get_group():
    """
    Return the etcd group whose lock this machine takes before a reboot (1.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.get_group
    """
    return _ask("get_group")


def set_max(max_locks, group=None):
    """
    Set how many machines of a group may reboot at the same time (1.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.set_max 4
    """
    return _ask("set_max", max_locks, group)


def lock(machine_id=None, group=None):
    """
    Lock a machine, so that it does not reboot (1.x).

    machine_id
        Defaults to this machine.

    group
        Defaults to the group of this machine.

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.lock group=group1
    """
    return _ask("lock", "lock", machine_id, group)


def unlock(machine_id=None, group=None):
    """
    Unlock a machine; parameters as for :py:func:`lock` (1.x).

    CLI Example:

    .. code-block:: bash

        salt microos rebootmgr.unlock group=group1
    """
    return _ask("lock", "unlock", machine_id, group)
