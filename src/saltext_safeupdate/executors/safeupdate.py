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

import logging

from salt.exceptions import CommandExecutionError

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """
    Take the job's share of the jobs lock and leave the rest to the next executor.
    """
    # Salt loads every executor that there is for each job, also of a minion that is not set up.
    try:
        from saltext_safeupdate.minion import executor

        if executor.needs_hooks(data):
            _begin(opts, data, func, executor)
    except CommandExecutionError:
        raise
    except Exception:
        # What is wrong with this extension must not keep a job from running.
        log.exception("safeupdate: an error of this extension; the job runs as with plain Salt")


def _begin(opts, data, func, executor):
    from saltext_safeupdate import hooks
    from saltext_safeupdate.core.errors import SafeUpdateError

    try:
        if hooks.install(opts):
            hooks.adopt(func)
            executor.begin(opts, data)
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
