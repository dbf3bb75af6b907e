"""Which init system this host has."""

from __future__ import annotations

import os

from .command import Run
from .command import run as run_command
from .direct import Direct
from .service import ServiceManager
from .systemd import Systemd


def detect(run: Run = run_command) -> ServiceManager:
    """Return systemd if it is PID 1, else the one that starts programs directly."""
    return Systemd(run) if os.path.isdir("/run/systemd/system") else Direct(run)
