"""
Change a transactional system: openSUSE MicroOS, SL Micro, Aeon, Leap Micro.

The root file system of such a system is a read-only btrfs snapshot. A change is made in
a new snapshot, which the next boot starts. ``transactional-update`` makes that snapshot;
this module calls it, and runs any Salt function or state inside.

The module replaces the one of the same name that Salt 3006 and 3007 contain and that Salt 3008
dropped; functions, parameters and the command lines sent to the tool are the same. It compares the
default snapshot before and after each call, so the reported result is true, and the result of an
inner call is returned complete and with its types.

Settings, all optional, in the minion configuration:

.. code-block:: yaml

    transactional_update:
      timeout: 14400          # seconds that one call of the tool may take
      lock_timeout: 600       # seconds to wait for a busy tool
      handover_dir: /var/cache/salt-safeupdate   # same directory inside and outside
      salt_call: /usr/bin/salt-call              # the one inside the snapshot

Most functions have these parameters:

self_update
    Let the tool look for a newer version of itself first. Defaults to ``False``.

snapshot
    The snapshot that the new one starts from: a number, or ``continue`` for the default snapshot,
    which contains the changes that wait for a reboot. Defaults to the running snapshot.

timeout
    Seconds that the call may take. After that time it is ended, its snapshot is discarded, and the
    tool is free again.

lock_timeout
    Seconds to wait for a busy tool. ``0``: fail at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import salt.utils.path

from saltext_safeupdate.admin import errors
from saltext_safeupdate.admin.transactional import transactions

if TYPE_CHECKING:
    __context__: dict = {}
    __opts__: dict = {}
    __salt__: dict = {}

__virtualname__ = "transactional_update"
__func_alias__ = {"apply_": "apply"}


def __virtual__():
    if not salt.utils.path.which(transactions.TOOL):
        return False, "transactional_update needs the program transactional-update"
    return __virtualname__


def _transactions():
    return transactions.Transactions(__opts__, __salt__, __context__)


def _documented(function, name, summary, parameters, example):
    """Name *function* and write its documentation; functions of one kind differ only a little."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""
    {summary}
    {parameters}
    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.{name}{example}
    """
    return function


def _cleaner(word, summary):
    def function(self_update=False):
        with errors.as_salts():
            return _transactions().change([word], self_update)

    return _documented(function, word.replace("-", "_"), summary, "", "")


def _maker(word, summary):
    def function(self_update=False, snapshot=None, timeout=None, lock_timeout=None):
        with errors.as_salts():
            return _transactions().change([word], self_update, snapshot, timeout, lock_timeout)

    name = word.replace("-", "_").replace(".", "_")
    return _documented(function, name, summary, "", ' snapshot="continue"')


def _packager(verb, summary):
    def function(
        pkg=None,
        pkgs=None,
        args=None,
        self_update=False,
        snapshot=None,
        timeout=None,
        lock_timeout=None,
    ):
        with errors.as_salts():
            words = transactions.package_words(verb, pkg, pkgs, args)
            return _transactions().change(words, self_update, snapshot, timeout, lock_timeout)

    parameters = """
    pkg
        Name of a package.

    pkgs
        Several names: a list, or a string that is split with the shell's rules.

    args
        Options for zypper: a list, or a string that is split with the shell's rules.
    """
    return _documented(function, f"pkg_{verb}", summary, parameters, ' emacs snapshot="continue"')


cleanup = _cleaner("cleanup", "Run ``cleanup_snapshots`` and ``cleanup_overlays``.")
cleanup_snapshots = _cleaner(
    "cleanup-snapshots", "Mark unneeded snapshots, so that snapper removes them."
)
cleanup_overlays = _cleaner(
    "cleanup-overlays", "Remove ``/etc`` overlays that no snapshot uses (tool before 5.0)."
)
grub_cfg = _maker("grub.cfg", "Write a new ``grub.cfg`` in a new snapshot.")
bootloader = _maker(
    "bootloader", "Write the boot loader and its configuration again, in a new snapshot."
)
initrd = _maker("initrd", "Build the initrd in a new snapshot.")
kdump = _maker(
    "kdump", "Build the initrd for kdump in a new snapshot. The tool lacks it from 6.0.4 to 6.0.7."
)
dup = _maker("dup", "Upgrade the distribution in a new snapshot (``zypper dup``).")
up = _maker("up", "Update all packages in a new snapshot (``zypper up``).")
patch = _maker("patch", "Install patches in a new snapshot (``zypper patch``).")
migration = _maker(
    "migration",
    "Move a system that is registered with SCC or SMT to the next version of its products.",
)
setup_selinux = _maker(
    "setup-selinux", "Install and enable SELinux in a new snapshot (tool 2.28 or newer)."
)
setup_kdump = _maker("setup-kdump", "Set kdump up in a new snapshot (tool 4.1 or newer).")
setup_fips = _maker("setup-fips", "Set FIPS mode up in a new snapshot (tool 4.4 or newer).")
pkg_install = _packager("install", "Install packages in a new snapshot.")
pkg_remove = _packager("remove", "Remove packages in a new snapshot.")
pkg_update = _packager("update", "Update packages in a new snapshot.")


def transactional():
    """
    Tell whether this is a transactional system: the tool is there, and the root is a
    read-only btrfs snapshot.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.transactional
    """
    with errors.as_salts():
        return transactions.is_transactional()


def in_transaction():
    """
    Tell whether this Salt runs inside a transaction.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.in_transaction
    """
    return transactions.in_transaction()


def pending_transaction():
    """
    Tell whether a new snapshot waits for a reboot.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.pending_transaction
    """
    with errors.as_salts():
        return _transactions().pending()


def snapshots():
    """
    List the snapshots of the root file system.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.snapshots
    """
    with errors.as_salts():
        return _transactions().snapshots()


def status():
    """
    Return the running snapshot, the one that the next boot starts, and the activity of the tool.

    ``running`` and ``default`` are snapshot numbers, ``pending`` says whether they differ. ``open``
    lists transactions that run now, ``crashed`` those that were never closed. ``lock_holder`` is
    the process that uses the tool, ``reboot_level`` the kind of reboot that the pending change
    needs, as far as the tool knows.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.status
    """
    with errors.as_salts():
        return _transactions().status()


def register(args=None, self_update=False, snapshot=None, timeout=None, lock_timeout=None):
    """
    Register the system with ``SUSEConnect`` in a new snapshot (tool 4.1 or newer).

    args
        Options for ``SUSEConnect``: a list, or a string that is split with the shell's rules. The
        tool writes them to its log, so do not pass a secret code.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.register args="--product sle-module/15.5/x86_64"
    """
    with errors.as_salts():
        words = transactions.register_words(args)
        return _transactions().change(words, self_update, snapshot, timeout, lock_timeout)


def apply_snapshot(lock_timeout=None):
    """
    Switch the running system to the default snapshot without a reboot (tool 4.2 or newer).

    This is ``transactional-update apply``; :py:func:`apply` applies Salt states.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.apply_snapshot
    """
    with errors.as_salts():
        return _transactions().change(["apply"], lock_timeout=lock_timeout, drop_if_no_change=False)


def run(
    command,
    self_update=False,
    snapshot=None,
    timeout=None,
    lock_timeout=None,
    keep=False,
    drop_if_no_change=True,
):
    """
    Run a command in a new snapshot and return what it printed.

    If edits of the live ``/etc`` were lost, a text below the output says so.

    command
        A list, or a string that is split with the shell's rules. There is no shell: nothing in it
        is interpreted. The tool writes it to its log, so use :py:func:`call` for anything secret.

    keep
        Keep the snapshot of a failed command, to look at it (tool 5.1 or newer).

    drop_if_no_change
        Drop the snapshot if only ``/etc`` was changed. Defaults to ``True``.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.run "mkdir -p '/usr/share/my data'" snapshot="continue"
    """
    with errors.as_salts():
        return _transactions().run(
            command, self_update, snapshot, timeout, lock_timeout, keep, drop_if_no_change
        )


def reboot(self_update=False, lock_timeout=None):
    """
    Reboot with the configured ``REBOOT_METHOD``, and report a failure.

    Inside a transaction the reboot comes after it.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.reboot
    """
    with errors.as_salts():
        return _transactions().reboot(self_update, lock_timeout)


def soft_reboot(lock_timeout=None):
    """
    Reboot user space only; an error if the pending change needs more (tool 4.6 or newer).

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.soft_reboot
    """
    with errors.as_salts():
        return _transactions().soft_reboot(lock_timeout)


def rollback(snapshot=None, lock_timeout=None):
    """
    Make another snapshot the default one.

    snapshot
        A number, or ``last`` for the last one that worked. Defaults to the running one.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.rollback
    """
    with errors.as_salts():
        return _transactions().rollback(snapshot, lock_timeout)


def call(function, *args, **kwargs):
    """
    Call a Salt function in a new snapshot and return what it returned.

    The snapshot starts from the default one, so that pending changes are not lost. If the function
    fails, the snapshot is discarded, and its changes have no effect.

    function
        The function. All other parameters are for it, except these:

    activate_transaction
        Reboot afterwards, if a new snapshot waits for that, also one from before. It does not
        reboot in test mode, nor if the call has failed. Defaults to ``False``.

    transaction_timeout, transaction_lock_timeout
        Like ``timeout`` and ``lock_timeout`` of other functions: here, those two go to the called
        function.

    transaction_snapshot
        The snapshot that the new one starts from. Defaults to ``continue``.

    transaction_keep
        Keep the snapshot of a failed call, to look at it (tool 5.1 or newer).

    transaction_report
        Return ``{"return": ..., "retcode": ..., "transaction": {...}}``: the last part names the
        new snapshot, the restarted services, and lost files. It is also returned if edits of the
        live ``/etc`` were lost and neither a text nor a state names them.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.call test.ping
        salt microos transactional_update.call ssh.set_auth_key user key=mykey
        salt microos transactional_update.call pkg.install emacs activate_transaction=True
    """
    with errors.as_salts():
        return _transactions().call(function, args, kwargs)


def perform(path, **kwargs):
    """
    Carry out a call inside a transaction, for :py:func:`call`. Not for direct use.

    CLI Example:

    .. code-block:: bash

        salt-call transactional_update.perform /var/cache/salt-safeupdate/1234
    """
    with errors.as_salts():
        transactions.perform(path, __salt__, __context__, kwargs)
    return True


def apply_(mods=None, **kwargs):
    """
    Apply states inside a transaction: :py:func:`sls` with *mods*, else :py:func:`highstate`.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.apply
        salt microos transactional_update.apply stuff
        salt microos transactional_update.apply stuff pillar='{"foo": "bar"}'
        salt microos transactional_update.apply stuff activate_transaction=True
    """
    if mods:
        return sls(mods, **kwargs)
    return highstate(**kwargs)


def sls(mods, activate_transaction=False, queue=None, **kwargs):
    """
    Apply SLS files inside a transaction.

    The full state results are returned, even if a state fails; then the snapshot is discarded. If
    necessary, a state ``transaction`` is added. It names services that were restarted afterwards or
    wait for the reboot, and edits or files that were lost.

    mods
        The SLS files. ``test``, ``pillar``, ``exclude``, ``saltenv`` and the like are as
        for :py:func:`state.sls <salt.modules.state.sls>`.

    activate_transaction
        Reboot afterwards, if a new snapshot waits for that. Defaults to ``False``.

    queue
        Wait for other state runs instead of failing. A number: wait only if there are at most
        that many. Defaults to the setting ``state_queue``, which is ``False``.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.sls stuff pillar='{"foo": "bar"}'
        salt microos transactional_update.sls stuff activate_transaction=True
    """
    kwargs["activate_transaction"] = activate_transaction
    with errors.as_salts():
        return _transactions().run_states("state.sls", (mods,), kwargs, queue)


def highstate(activate_transaction=False, queue=None, **kwargs):
    """
    Apply the highstate inside a transaction; parameters as for :py:func:`sls`.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.highstate
        salt microos transactional_update.highstate pillar='{"foo": "bar"}'
        salt microos transactional_update.highstate activate_transaction=True
    """
    kwargs["activate_transaction"] = activate_transaction
    with errors.as_salts():
        return _transactions().run_states("state.highstate", (), kwargs, queue)


def single(fun, name, activate_transaction=False, queue=None, **kwargs):
    """
    Apply one state inside a transaction; parameters as for :py:func:`sls`.

    CLI Example:

    .. code-block:: bash

        salt microos transactional_update.single pkg.installed name=emacs
        salt microos transactional_update.single pkg.installed name=emacs activate_transaction=True
    """
    kwargs["activate_transaction"] = activate_transaction
    with errors.as_salts():
        return _transactions().run_state(fun, name, kwargs, queue)
