"""Salt's own queues of jobs on disk: what lies in them, and how to put a job there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import salt.payload
import salt.utils.state

from ..core.files import write_atomic

# The keys under which a job carries that it comes from a queue, and that this is the one of
# the jobs. State runs put themselves into the other one.
MARK = "__safeupdate_queued__"
KEPT = "__safeupdate_kept__"


def find(opts: Mapping[str, Any], jid: str) -> str | None:
    """Return the path of the queued job, or None."""
    for directory in _directories(opts):
        for name in _names(directory):
            if name.endswith(f"_{jid}.p"):
                return os.path.join(directory, name)
    return None


def listed(opts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every queued job as it was published."""
    found = []
    for directory in _directories(opts):
        for name in sorted(_names(directory)):
            data = read(os.path.join(directory, name))
            if data:
                found.append(data)
    return found


def read(path: str) -> dict[str, Any]:
    """Return the job; empty where the queue runs it just now."""
    try:
        with open(path, "rb") as file:
            return dict(salt.payload.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def put(opts: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Put a job into the queue that its master's part of the minion works on."""
    directory = salt.utils.state.job_queue_dir(opts)
    os.makedirs(directory, exist_ok=True)
    name = f"queued_{int(time.time() * 1_000_000)}_{data['jid']}.p"
    # What Salt notes of an earlier stay in a queue does not hold any more.
    clean = {key: value for key, value in data.items() if not key.endswith("_queue_file")}
    write_atomic(os.path.join(directory, name), salt.payload.dumps({**clean, KEPT: True}))


def _directories(opts: Mapping[str, Any]) -> tuple[str, str]:
    return salt.utils.state.job_queue_dir(opts), salt.utils.state.state_queue_dir(opts)


def _names(directory: str) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = [
            name
            for name in os.listdir(directory)
            if name.startswith("queued_") and name.endswith(".p")
        ]
    return names
