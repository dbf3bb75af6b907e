"""
Grain ``safeupdate``: the phase of the newest update, the version that runs, and whether a
restart is pending. ``phase`` is ``unknown`` where the database cannot be read.
"""

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import from_mapping


def safeupdate():
    """
    Read the record; start nothing.
    """
    import salt.version

    grain = {"version": str(salt.version.__version__), "phase": "idle", "pending": False}
    try:
        store = Store(from_mapping(__opts__.get("safeupdate")).database)
        last = store.latest() if store.exists() else None
    except SafeUpdateError as err:
        return {"safeupdate": {**grain, "phase": "unknown", "reason": str(err)}}
    if last is not None:
        grain |= {"phase": last.phase.value, "pending": not last.phase.final}
        if last.reason and last.phase.final:
            grain["reason"] = last.reason
    return {"safeupdate": grain}
