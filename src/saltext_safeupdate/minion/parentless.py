"""
A minion that lives on when its parent ends, which a thread in Salt's own program would prevent.

``salt.scripts.minion_process`` sends its parent signal 0 every 5 s, on 3006 to 3008.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_PROGRAM = "salt.scripts"


class _System:
    """The module ``os`` for Salt's own program: the parent of this process always seems to live."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def kill(self, pid: int, signum: int) -> None:
        if signum or pid != self._parent:
            os.kill(pid, signum)


def is_possible() -> bool:
    """Tell whether this process was started by Salt's own program."""
    return _PROGRAM in sys.modules


def live_on(parent: int) -> None:
    """Make this process live on without its parent."""
    vars(sys.modules[_PROGRAM])["os"] = _System(parent)


def end_with_it() -> None:
    """Make this process end with its parent again."""
    vars(sys.modules[_PROGRAM])["os"] = os
