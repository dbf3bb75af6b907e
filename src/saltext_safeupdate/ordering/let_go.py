"""
The comment of a state whose command waited for the stop of the minion.

The minion stops when its jobs have ended, so such a command would wait forever. The stop guard
ends it, and leaves a note for the process of the job.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .chunks import join_comments

_TEXT = (
    "The stop guard of safeupdate ended '{command}': it waited for a stop of the minion, which "
    "waits for this job. The stop or restart that it asked for still comes, when all jobs have "
    "ended. Use the state 'safeupdate.restarted', or 'systemctl --no-block'."
)


def tell(run_dir: str, ret: dict[str, Any]) -> None:
    """If the stop guard has ended the command of a failed state, say so in its result."""
    path = os.path.join(run_dir, f"let_go.{os.getpid()}")
    # Nearly always there is no such file.
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        command = " ".join(file.read().split())
        os.unlink(path)
        ret["comment"] = join_comments(ret.get("comment"), _TEXT.format(command=command))
