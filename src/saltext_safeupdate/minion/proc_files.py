"""
How Salt reads the list of running jobs, and cleans it up when a minion starts.

Salt 3006 and 3007 write the file of a job twice, in the main process and in the process of the job,
the second time a little longer. A state run that reads it just then may get a mixture of both, and
fails. Jobs that were held begin together, so this happens more often.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import salt.payload
from salt.exceptions import SaltDeserializationError

from ..core.host import files

# How often such a file is read. It is written in far less time than one pause, in seconds.
_TRIES = 5
_PAUSE = 0.005
# How often the files are listed: one job at a time has to end between listing and reading.
_CLEANINGS = 50


def listed(opts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """
    Yield the jobs in other processes that are in the list and run.

    Nothing is removed. Salt's own function takes a file that is just being written for an empty
    one and removes it: then its job counts as none while it runs.
    """
    directory = os.path.join(opts["cachedir"], "proc")
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        try:
            with open(os.path.join(directory, name), "rb") as file:
                data = salt.payload.loads(file.read())
        except (OSError, SaltDeserializationError):
            continue
        pid = data.get("pid") if isinstance(data, dict) else None
        # Another program may have the number of a job that has ended.
        if pid and pid != os.getpid() and "salt" in files.text(f"/proc/{pid}/cmdline"):
            yield data


def running(original: Callable[..., Any], opts: Any) -> Any:
    """Return the running jobs; read a file again while it is being written."""
    for _ in range(_TRIES - 1):
        try:
            return original(opts)
        except SaltDeserializationError:
            time.sleep(_PAUSE)
    return original(opts)


def cleaned(original: Callable[..., Any], opts: Any) -> Any:
    """
    Remove the files of jobs that have ended; begin again if a job has just removed its own.

    Jobs of an earlier minion continue during a handover. Salt's start of a minion fails with such
    an error, and stays half done.
    """
    for _ in range(_CLEANINGS - 1):
        try:
            return original(opts)
        except FileNotFoundError:
            continue
    return original(opts)
