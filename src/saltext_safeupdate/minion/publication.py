"""A publication of a master, or its copy in a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.jobs import functions, jids

# The user of jobs that the supervisor gives the minion.
ASKED_BY = "safeupdate"
# The key that marks a job in a queue which has begun before, and continues.
GOES_ON = "__safeupdate_goes_on__"
# Startup states have no JID; Salt writes this instead.
_STARTUP = "req"


def key(data: Mapping[str, Any]) -> str:
    """
    Return the name of the job in the ledger; empty if it is not recorded.

    Any text other than a JID may be used again and again, so it does not name a job.
    """
    if data.get("fun") in (None, "") or not functions.is_recorded(data["fun"]):
        return ""
    return name(data)


def name(data: Mapping[str, Any]) -> str:
    """Return a name that no other job has, recorded or not; empty if it has no JID of its own."""
    return _name(data) if jids.is_jid(str(data.get("jid", ""))) else ""


def heard(data: Mapping[str, Any]) -> str:
    """
    Return the name by which two minions know a job that both received; empty if unpublished.

    The publisher may choose any text instead of a JID (``salt --jid``).
    """
    return name(data) or (_name(data) if data.get("tgt") else "")


def _name(data: Mapping[str, Any]) -> str:
    resource = data.get("resource_target")
    if isinstance(resource, dict):
        return f"{data['jid']}/{resource.get('type')}:{resource.get('id')}"
    return str(data["jid"])


def is_of_startup(data: Mapping[str, Any]) -> bool:
    """Tell whether these are the startup states of a minion, which nobody has published."""
    return data.get("jid") == _STARTUP and not data.get("tgt")


def behind_others(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a publication whose state run waits in the queue while another one is running."""
    return _with(data, "queue")


def beside_others(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a publication whose state run begins although another one is running."""
    return _with(data, "concurrent")


def is_refused_beside_others(data: Mapping[str, Any]) -> bool:
    """Tell whether it is a state run that Salt refuses while another one is running."""
    args = data.get("arg") or ()
    said = [each for each in args if isinstance(each, dict) and each.get("__kwarg__")]
    told = {name for each in said for name in each}
    told |= {each.partition("=")[0] for each in args if isinstance(each, str) and "=" in each}
    return function(data) in functions.QUEUEING and not told & {"queue", "concurrent"}


def _with(data: Mapping[str, Any], option: str) -> dict[str, Any]:
    if not is_refused_beside_others(data):
        return dict(data)
    return {**data, "arg": [*(data.get("arg") or ()), {"__kwarg__": True, option: True}]}


def function(data: Mapping[str, Any]) -> str:
    """Return the name of the function, or the names of several in one text."""
    fun = data.get("fun", "")
    return ",".join(map(str, fun)) if isinstance(fun, list | tuple) else str(fun)
