"""
Send functions that change the root file system into a transaction.

State runs (``state.apply``, ``state.sls``, ``state.highstate``, ``state.single``) and the functions
of the delegated modules run inside a new snapshot; everything else, and everything inside a
transaction, is left to the next executor.

.. code-block:: yaml

    module_executors: [safeupdate, transactional_update, direct_call]

    # instead of the default lists
    delegated_modules: [cmd, pkg]
    delegated_functions: [pip.install]
    # in addition to them
    add_delegated_modules: [ansible]
    add_delegated_functions: [x509.create_certificate]

For one call:

.. code-block:: bash

    salt --module-executors='[transactional_update, direct_call]' \\
        --executor-opts='{add_delegated_functions: [network.mod_hostname]}' \\
        microos network.mod_hostname newname

    salt-call --module-executors='[transactional_update]' state.sls stuff activate_transaction=True
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __salt__: dict = {}

__virtualname__ = "transactional_update"

# Where Salt looks for a program besides PATH, and so do we.
_PLACES = "/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


def __virtual__():
    # Salt asks this for each job, on every host. Its own search takes many times as long.
    places = f"{os.environ.get('PATH', '')}{os.pathsep}{_PLACES}"
    if not shutil.which("transactional-update", path=places):
        return False, "the transactional_update executor needs transactional-update"
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """
    Run a delegated function in a transaction; ``None`` leaves it to the next executor.

    If a delegated function returns ``None``, the result is ``{}``: otherwise the next executor
    would run the function again, outside.
    """
    # Salt loads all executors for each job, on each host.
    from saltext_safeupdate.admin.transactional import delegation

    found = delegation.instead(opts, data, args)
    if found is None:
        return func(*args, **kwargs) if delegation.is_last(opts, data) else None
    target, args = found
    result = __salt__[target](*args, **kwargs)
    return {} if result is None else result
