"""
Stand-in of saltext-safeupdate, written by the state safeupdate.enabled: an executor.

Salt loads it only while the extension itself cannot be loaded. Every job runs then, as with
plain Salt.
"""

import importlib
import logging

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate"

_INSTALLED = "saltext_safeupdate.executors.safeupdate"


def __virtual__():
    return __virtualname__


def execute(opts, data, func, args, kwargs):
    """Let the extension do what it does before a job, if it is there again."""
    try:
        installed = importlib.import_module(_INSTALLED)
    except Exception as err:  # noqa: BLE001 (whatever is wrong, the job runs)
        log.error(
            "Job %s (%s) runs as with plain Salt: saltext-safeupdate cannot be loaded (%r). "
            "Install it again for the minion's Python; nothing else has to be done.",
            data.get("jid", ""),
            data.get("fun"),
            err,
        )
        return None
    return installed.execute(opts, data, func, args, kwargs)
