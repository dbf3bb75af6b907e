"""
What Salt reads of the jobs that run.

Salt 3006 and 3007 write the file of a job twice, in the main process and in that of the job, the
second time a little longer. A state run that looks at it just then may get the one with the end of
the other, and fails. Jobs that were held begin together, so that is not as rare as it was.
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
    """Return the jobs that run; what is just being written is read again."""
    for _ in range(_TRIES - 1):
        try:
            return original(opts)
        except SaltDeserializationError:
            time.sleep(_PAUSE)
    return original(opts)
