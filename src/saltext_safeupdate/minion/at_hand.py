"""
Load in the main process what the process of each job would otherwise read or import by itself.

Salt keeps a formatted stack for each connection that it makes (``salt.transport.base``), and the
process of a job makes one for its return. Python reads the file of each function on that stack,
once in each process. Files that the main process has read need not be read by its children.
"""

from __future__ import annotations

import inspect
import linecache
from types import ModuleType

import salt.utils.asynchronous
import salt.utils.process

from .. import patches
from . import executor, intake, job_process, ready, returns

# Modules with functions on the stack when a job makes its connection, and imports of its executor.
_OF_JOBS: tuple[ModuleType, ...] = (
    *(salt.utils.asynchronous, salt.utils.process),
    *(patches, ready, intake, job_process, returns, executor),
)


def read() -> None:
    """Read them for this process and its children. Python reads a changed file again."""
    for module in _OF_JOBS:
        linecache.getlines(inspect.getsourcefile(module) or "")
