"""
Executor that makes every job known to safeupdate
=================================================

It takes the job's share of the jobs lock if the minion has not done so already (under
``salt-call``), and puts the hooks that order state runs into the process. It runs nothing itself:
the next executor of the list runs the function.

.. code-block:: yaml

    module_executors:
      - safeupdate
      - direct_call

It should not be the last one in the list, because ``sudo_user`` replaces the last one.

If a part of this extension cannot be loaded, for example while pip replaces it, no job fails: the
log says so, and the job runs as with plain Salt.
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
        answer = _begin(opts, data, func)
    except CommandExecutionError:
        raise
    except Exception:
        answer = None
        # A fault of this extension must not keep a job from running.
        log.exception(
            "safeupdate: an error of this extension; the job runs as with plain Salt: %s (%s). The "
            "extension may be only partly installed; 'safeupdate.check' looks at it.",
            data.get("jid", ""),
            data.get("fun"),
        )
    if answer is None and _is_last(opts, data):
        # Salt would report success, although nothing has run.
        return func(*args, **kwargs)
    return answer


def allow_missing_func(function):
    """
    Return that this executor needs the function to be there.

    Salt asks each executor that is named, and without an answer loads all that there are.
    """
    return False


def _is_last(opts, data):
    """Tell whether this is the last executor."""
    listed = data.get("module_executors") or opts.get("module_executors") or []
    if isinstance(listed, str):
        # The form of 'salt-call --module-executors'.
        listed = [name.strip(" '\"") for name in listed.strip("[] ").split(",")]
    return isinstance(listed, list | tuple) and list(listed[-1:]) == [__virtualname__]


def _begin(opts, data, func):
    # Salt loads all executors for each job, even on a minion that is not set up.
    from saltext_safeupdate.minion import executor

    if not executor.needs_hooks(data):
        return None

    from saltext_safeupdate import hooks
    from saltext_safeupdate.core.errors import SafeUpdateError

    try:
        # The function itself has not begun.
        with executor.one_connection():
            if not hooks.install(opts):
                return None
            hooks.adopt(func)
            return executor.begin(opts, data, late=hooks.is_late())
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
