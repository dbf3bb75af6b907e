"""
Which package manager this host has.

Only that one is imported: each module that is imported takes memory in every process of the
minion.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ..host.command import Run
from ..host.command import run as run_command

if TYPE_CHECKING:
    from .manager import PackageManager


def detect(run: Run = run_command) -> PackageManager | None:
    """Return the package manager of this host, or None if it has none that we know."""
    if shutil.which("dpkg-query") and shutil.which("apt-get"):
        from .apt import Apt

        return Apt(run)
    if shutil.which("rpm"):
        for front_end in ("dnf", "dnf5", "yum"):
            program = shutil.which(front_end)
            if program and os.path.basename(os.path.realpath(program)) == "dnf5":
                from .dnf5 import Dnf5

                return Dnf5(run, front_end)
            if program:
                from .dnf import Dnf

                return Dnf(run, front_end)
        if shutil.which("zypper"):
            from .zypper import Zypper

            return Zypper(run)
    return None
