"""
How Salt reads the list of running jobs.

Salt 3006 and 3007 write the file of a job twice, in the main process and in the process of the job,
the second time a little longer. A state run that reads it just then may get a mixture of both, and
fails. Jobs that were held begin together, so this happens more often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from salt.exceptions import SaltDeserializationError

# How often such a file is read. It is written in far less time than one pause, in seconds.
_TRIES = 5
_PAUSE = 0.005


def running(original: Callable[..., Any], opts: Any) -> Any:
    """Return the running jobs; read a file again while it is being written."""
    for _ in range(_TRIES - 1):
        try:
            return original(opts)
        except SaltDeserializationError:
            time.sleep(_PAUSE)
    return original(opts)
