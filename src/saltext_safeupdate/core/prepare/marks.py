"""Find files that Salt's own packages would take for their marks, made by somebody else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from .beside import Told


def foreign(marks: Iterable[str], lstat: Callable[[str], os.stat_result] = os.lstat) -> list[Told]:
    """
    Return each mark that root has not made, and what to do.

    The scripts of the packages make their marks in a directory that everybody may write to, under
    names that everybody knows. They trust each file that has such a name.
    """
    found: list[Told] = []
    for path in marks:
        try:
            status = lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            wrong = "is no regular file"
        elif status.st_uid != 0:
            wrong = f"belongs to the user with the UID {status.st_uid}, and not to root"
        else:
            continue
        problem = (
            f"{path} {wrong}. The scripts of Salt's packages would take it for a mark of their "
            "own: such a mark tells them whom to give the files of Salt to, or not to restart the "
            "minion."
        )
        fix = (
            "Find out who made it, then remove it. It is safe to remove: the scripts make what "
            "they need themselves."
        )
        found.append((problem, fix))
    return found
