"""
Stand-in of saltext-safeupdate, written by the state safeupdate.enabled: an executor.

Salt loads it only while nothing else provides the executor 'transactional_update'. Functions run
then, but no state run does: it would change the running system instead of a new snapshot.
"""

import importlib
import importlib.util
import logging
import shutil

from salt.exceptions import CommandExecutionError

log = logging.getLogger(__name__)

__virtualname__ = "transactional_update"

_INSTALLED = "saltext_safeupdate.executors.transactional_update"


def __virtual__():
    # Salt may load this file before its own.
    if importlib.util.find_spec("salt.executors.transactional_update") is not None:
        return False, "Salt has an executor transactional_update of its own"
    if not shutil.which("transactional-update"):
        return False, "the transactional_update executor needs transactional-update"
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """Leave the job to the extension if it is there again, or to the next executor."""
    try:
        installed = importlib.import_module(_INSTALLED)
    except Exception as err:  # noqa: BLE001 (whatever is wrong with it)
        return _without(err, opts, data, func, args, kwargs)
    installed.__salt__ = __salt__
    return installed.execute(opts, data, func, args, kwargs)


def _without(err, opts, data, func, args, kwargs):
    fun = str(data.get("fun"))
    if fun.startswith("state."):
        raise CommandExecutionError(
            f"saltext-safeupdate cannot be loaded ({err!r}), so no transaction can be opened. "
            "Nothing was done; install it again for the minion's Python, then run this again."
        ) from err
    log.error(
        "%s runs in the running system and in no transaction: saltext-safeupdate cannot be loaded "
        "(%r). Install it again for the minion's Python.",
        fun,
        err,
    )
    listed = data.get("module_executors") or opts.get("module_executors") or []
    if isinstance(listed, str):
        # As 'salt-call --module-executors' has it.
        listed = [name.strip(" '\"") for name in listed.strip("[] ").split(",")]
    if list(listed)[-1:] == [__virtualname__]:
        return func(*args, **kwargs)
    return None
