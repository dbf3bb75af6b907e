"""What the executor does in the process of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.jobs import functions


def needs_hooks(data: Mapping[str, Any]) -> bool:
    """Tell whether the process of this job needs our hooks."""
    return functions.needs_hooks(data.get("fun"))


def begin(opts: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """
    Take this job's share of the jobs lock, unless it only looks or has one.

    Raise LockHeldError while an update holds new jobs.
    """
    # A salt-call that only looks starts as fast as without us.
    from ..core.jobs import current
    from ..core.settings import of_minion

    if functions.needs_lock(data.get("fun")):
        settings, _ = of_minion(opts)
        current.ensure(settings, str(data.get("jid", "")))
