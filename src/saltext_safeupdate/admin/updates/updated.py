"""The state ``safeupdate.updated``."""

from __future__ import annotations

from typing import Any

from salt.exceptions import CommandExecutionError

from ...core.prepare.findings import Finding
from .updating import Functions, refusal


def updated(
    functions: Functions,
    version: Any,
    *,
    allow_downgrade: bool,
    test: bool,
    source: str | None = None,
) -> dict[str, Any]:
    """
    Make sure that the minion has a version; ask for the update if it has another.

    Return ``result``, ``changes`` and ``comment`` of a state.
    """
    ret: dict[str, Any] = {"result": True, "changes": {}, "comment": ""}
    wanted: dict[str, Any] = {"allow_downgrade": allow_downgrade}
    if source is not None:
        wanted["source"] = source
    try:
        plan = functions["safeupdate.plan"](version, **wanted)
        blocking = [Finding(**item) for item in plan["findings"] if item["blocking"]]
        if blocking:
            return {**ret, "result": False, "comment": refusal(blocking)}
        if not plan["changes"]:
            left = "; a reboot activates it" if plan.get("reboot") else ""
            return {**ret, "comment": f"It is installed{left}."}
        ret["changes"] = plan["changes"]
        if test:
            how = ", and a reboot of the host activate it" if plan.get("reboot") else ""
            return {**ret, "result": None, "comment": f"The minion would be updated{how}."}
        asked = functions["safeupdate.update"](version, **wanted)
    except CommandExecutionError as err:
        return {**ret, "result": False, "changes": {}, "comment": str(err)}
    return {**ret, "comment": asked["comment"]}
