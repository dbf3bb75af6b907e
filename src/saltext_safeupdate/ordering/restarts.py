"""The result of a state that has restarted the system or the minion during its run."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from ..core.host import processes
from ..core.jobs.suspension import Suspension
from . import results
from .chunks import join_comments

_REBOOTED = "The system was rebooted here, and the run continued after that (safeupdate)."
_RESTARTED = "The minion was restarted here, and the run continued after that (safeupdate)."
_NOT_DOWN = (
    "The system did not go down within {timeout:g} s. The reboot was asked for and may still come: "
    "see 'systemctl list-jobs' and the log of the system."
)
_NOT_RESTARTED = (
    "The minion did not restart within {timeout:g} s. The restart was asked for and may still "
    "come: 'safeupdate.status' says what it waits for."
)


def result(state: Any, low: Mapping[str, Any], wanted: Suspension, owner: str) -> dict[str, Any]:
    """
    Return the result of a state that had asked for what is *wanted*.

    *owner* is the identity of the main process of the minion that continues the run.
    """
    ret = results.blank(state, low, datetime.datetime.now())
    of_system = wanted.process.split(":")[1:2] == ["1"]
    if not wanted.has_come(processes.alive):
        text = _NOT_DOWN if of_system else _NOT_RESTARTED
        return {**ret, "result": False, "comment": text.format(timeout=wanted.timeout)}
    if of_system:
        changes = {"boot": _changed(wanted.process, processes.identity(1))}
        ret |= {"changes": changes, "comment": _REBOOTED}
    else:
        changes = {"minion": {"old": _pid(wanted.process), "new": _pid(owner)}}
        ret |= {"changes": changes, "comment": _RESTARTED}
    # Salt names its parameter in several ways, so it is in no table.
    check = getattr(state, "_run_check_cmd", None)
    if "check_cmd" in low and check is not None:
        checked = check(low)
        comment = join_comments(ret["comment"], checked.get("comment"))
        ret |= {"result": checked["result"], "comment": comment}
    return ret


def _changed(old: str, new: str) -> dict[str, str]:
    """Return the boots by their names; in a container they may have the name from the host."""
    boots = [each.partition(":")[0] for each in (old, new)]
    if boots[0] == boots[1]:
        boots = [old, new]
    return {"old": boots[0], "new": boots[1]}


def _pid(process: str) -> str:
    return f"PID {process.split(':')[1]}" if process.count(":") > 1 else "unknown"
