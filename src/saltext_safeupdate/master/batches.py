"""
Batches that the master itself drives: ``salt -b 1 --async``, since Salt 3008.

Such a batch asks no minion after its job. It gives a minion up when its time is over, and publishes
the job to the next ones under the same JID.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def waited_for(opts: Mapping[str, Any], jid: str, minions: set[str]) -> set[str]:
    """Return the minions that a batch still waits for; all, if the job belongs to no such batch."""
    try:
        from salt.utils.batch_state import read_batch_state
    except ImportError:
        return set(minions)
    state = read_batch_state(jid, opts)
    if not isinstance(state, dict) or state.get("driver") != "master":
        return set(minions)
    return set() if state.get("halted") else minions.intersection(state.get("active") or ())
