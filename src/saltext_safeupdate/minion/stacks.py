"""
Keep Salt from reading source code for stacks that nobody reads.

For each connection, Salt formats the stack (``salt.transport.base``), for the warning that the
connection was never closed. For the first one Python reads the files of all functions on the stack,
and keeps their lines: 1 to 2.5 MB in the main process of a minion, and again in its children.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from types import FrameType
from typing import Any

import salt.transport.base


def leave_out_sources() -> None:
    """
    Have the stacks of connections name file, line and function, without the line's text.

    The lines that were read for earlier ones are forgotten. A traceback reads what it needs.
    """
    if getattr(salt.transport.base, "traceback", None) is traceback:
        salt.transport.base.traceback = _Traceback()
        linecache.clearcache()


class _Traceback:
    """Takes the place of the module :mod:`traceback` in ``salt.transport.base``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def format_stack(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the stack of the caller, the innermost function last."""
        if args or kwargs:
            return traceback.format_stack(*args, **kwargs)
        found = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            found.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n')
            frame = frame.f_back
        return found[::-1]
