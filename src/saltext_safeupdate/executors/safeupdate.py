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

A part of this extension that cannot be loaded, as while pip replaces it, fails no job: the log
says so, and the job runs as with plain Salt.
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
    try:
        return _begin(opts, data, func)
    except CommandExecutionError:
        raise
    except Exception:
        # What is wrong with this extension must not keep a job from running.
        log.exception(
            "safeupdate: an error of this extension; the job runs as with plain Salt: %s (%s). The "
            "extension may be only partly installed; 'safeupdate.check' looks at it.",
            data.get("jid", ""),
            data.get("fun"),
        )
        return None


def _begin(opts, data, func):
    # Salt loads every executor that there is for each job, also of a minion that is not set up.
    from saltext_safeupdate.minion import executor

    if not executor.needs_hooks(data):
        return None

    from saltext_safeupdate import hooks
    from saltext_safeupdate.core.errors import SafeUpdateError

    try:
        if not hooks.install(opts):
            return None
        hooks.adopt(func)
        return executor.begin(opts, data, late=hooks.is_late())
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
