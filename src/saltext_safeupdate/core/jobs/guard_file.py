"""
Where the drop-in of the stop guard is, and the way of restarting that it was written for.

Every minion asks that when it starts: it takes no program, and little memory.
"""

from __future__ import annotations

import os

from ..host import files
from ..settings import Settings

# Where an administrator has the units of systemd.
UNITS = "/etc/systemd/system"
# There only if the host has one hierarchy of control groups (cgroups(7), "v2").
GROUPS = "/sys/fs/cgroup/cgroup.controllers"
_NAME = "50-safeupdate-guard.conf"
# In the directory of locks, and how many characters of it are told.
_WAITED = "waited"
_LONGEST = 300


def path(unit: str, units: str = "") -> str:
    """Return the path of the drop-in of the unit, a service; *units* is the directory of units."""
    unit = unit if "." in unit else f"{unit}.service"
    return os.path.join(units or UNITS, f"{unit}.d", _NAME)


def way(drop_in: str) -> str:
    """Return what the drop-in was written for, ``wait`` or ``handover``; empty: there is none."""
    for line in files.text(drop_in).splitlines():
        if line.startswith("ExecStop="):
            return line.split()[-1]
    return ""


def has_one_hierarchy() -> bool:
    """Tell whether systemd has all processes of the host in one hierarchy of control groups."""
    return os.path.exists(GROUPS)


def waited(run_dir: str) -> str:
    """
    Return why the last restart waited for jobs although it was not to; empty if none has.

    It is known until a minion is handed over, or the host boots.
    """
    return files.text(os.path.join(run_dir, _WAITED)).strip()[:_LONGEST]


def hands_over(settings: Settings) -> bool:
    """Tell whether the guard is in place, and has a restart hand the minion over."""
    return (
        settings.restart == "handover"
        and has_one_hierarchy()
        and way(path(settings.service)) == "handover"
    )
