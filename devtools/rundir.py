"""A run's own temporary directory: short, since unix socket paths end at 107 bytes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

from devtools import processes

BASE = Path("/tmp")
PREFIX = "su"


class TempRun:
    """Owns a directory; on exit ends what was started with it as ``TMPDIR`` and removes it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=BASE))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        remove(self.path)


def sweep(path: Path) -> None:
    """End what still runs with *path* or a directory in it as its ``TMPDIR``."""
    for folder in (path, *path.glob("*")):
        for sig, timeout in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
            left = processes.with_environment(f"TMPDIR={folder}")
            for who in left:
                processes.kill(who, sig)
            for who in left:
                processes.wait_gone(who, timeout)


def remove(path: Path) -> None:
    sweep(path)
    shutil.rmtree(path, ignore_errors=True)


def clean() -> list[Path]:
    """Remove the directories of runs that are gone."""
    found = []
    for path in BASE.glob(f"{PREFIX}[0-9]*-*"):
        owner = path.name[len(PREFIX) :].partition("-")[0]
        mine = path.is_dir() and path.stat().st_uid == os.geteuid()
        if mine and owner.isdigit() and processes.start_time(int(owner)) is None:
            remove(path)
            found.append(path)
    return found
