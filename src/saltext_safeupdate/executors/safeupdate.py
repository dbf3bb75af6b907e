"""
Executor that makes every job known to safeupdate
=================================================

It takes the job's share of the jobs lock if the minion has not done so already (under
``salt-call``), and puts the hooks that order state runs into the process. It runs nothing
itself: the next executor of the list does.

.. code-block:: yaml

    module_executors:
      - safeupdate
      - direct_call

It must not be the last of the list; ``sudo_user`` replaces the last one.
"""

from salt.exceptions import CommandExecutionError

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """
    Take the job's share of the jobs lock and leave the rest to the next executor.
    """
    # Salt loads every executor that there is for each job, also of a minion that is not set up.
    from saltext_safeupdate.minion import executor

    if not executor.needs_hooks(data):
        return

    from saltext_safeupdate import hooks
    from saltext_safeupdate.core.errors import SafeUpdateError

    try:
        if not hooks.install(opts):
            return
        hooks.adopt(func)
        executor.begin(opts, data)
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
