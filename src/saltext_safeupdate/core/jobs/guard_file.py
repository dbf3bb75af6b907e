"""
The place of the drop-in of the stop guard, and the kind of restart that it was written for.

Every minion reads that when it starts: it needs no program, and little memory.
"""

from __future__ import annotations

import os

from ..host import files
from ..settings import Settings

# The directory in which an administrator has units of systemd.
UNITS = "/etc/systemd/system"
# This exists only if the host has one hierarchy of control groups (cgroups(7), "v2").
GROUPS = "/sys/fs/cgroup/cgroup.controllers"
_NAME = "50-safeupdate-guard.conf"
# A file in the directory of locks, and how many characters of it are shown.
_WAITED = "waited"
_LONGEST = 300


def path(unit: str, units: str = "") -> str:
    """Return the path of the drop-in of the unit, a service; *units* is the directory of units."""
    unit = unit if "." in unit else f"{unit}.service"
    return os.path.join(units or UNITS, f"{unit}.d", _NAME)


def way(drop_in: str) -> str:
    """Return what the drop-in was written for, ``wait`` or ``handover``; empty if it is missing."""
    for line in files.text(drop_in).splitlines():
        if line.startswith("ExecStop="):
            return line.split()[-1]
    return ""


def has_one_hierarchy() -> bool:
    """Tell whether systemd has all processes of the host in one hierarchy of control groups."""
    return os.path.exists(GROUPS)


def waited(run_dir: str) -> str:
    """
    Return why the last restart waited for jobs although it should not have; empty if it did not.

    The reason is known until a minion is handed over, or the host boots.
    """
    return files.text(os.path.join(run_dir, _WAITED)).strip()[:_LONGEST]


def hands_over(settings: Settings) -> bool:
    """Tell whether the guard is in place, and lets a restart hand the minion over."""
    return (
        settings.restart == "handover"
        and has_one_hierarchy()
        and way(path(settings.service)) == "handover"
    )
