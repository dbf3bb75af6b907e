"""
Have at hand, in the main process, what the process of each job would read or import by itself.

Salt keeps a formatted stack for each connection that it makes (``salt.transport.base``), and the
process of a job makes one for its return. Python reads the file of each function on that stack,
once in a process. What the main process has read, its children have.
"""

from __future__ import annotations

import inspect
import linecache
from types import ModuleType

import salt.utils.asynchronous
import salt.utils.process

from .. import patches
from . import executor, intake, job_process, ready, returns

# Whose functions are on the stack when a job makes its connection, and what its executor imports.
_OF_JOBS: tuple[ModuleType, ...] = (
    *(salt.utils.asynchronous, salt.utils.process),
    *(patches, ready, intake, job_process, returns, executor),
)


def read() -> None:
    """Read it, for this process and its children. Python reads a file that has changed again."""
    for module in _OF_JOBS:
        linecache.getlines(inspect.getsourcefile(module) or "")
