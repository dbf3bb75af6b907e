"""
What a state says whose command waited for the stop of the minion.

The minion stops when its jobs have ended, so such a command would wait for ever. The stop guard
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
    """Say it in the result of a failed state, if the stop guard has ended its command."""
    path = os.path.join(run_dir, f"let_go.{os.getpid()}")
    # Nearly always there is none.
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        command = " ".join(file.read().split())
        os.unlink(path)
        ret["comment"] = join_comments(ret.get("comment"), _TEXT.format(command=command))
