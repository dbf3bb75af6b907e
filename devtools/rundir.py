"""
A run's own temporary directory: short, since unix socket paths end at 107 bytes, and in memory
where that can be, since the tests write much that is written through to the disk at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

from devtools import processes
from devtools.command import run

BASE = Path("/tmp")
PREFIX = "su"
# The space of three copies of Salt and the tests' own machines, with a reserve.
NEEDED_MEMORY = 8 << 30
TMPFS_SIZE = "50%"


class TempRun:
    """Owns a directory; on exit ends what was started with it as ``TMPDIR`` and removes it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=BASE))
        if os.geteuid() == 0 and processes.free_memory() > NEEDED_MEMORY:
            options = f"size={TMPFS_SIZE},mode=700"
            mount = ["mount", "-t", "tmpfs", "-o", options, "tests", str(self.path)]
            # A run is slower without it and tests the same.
            run(mount, timeout=60, check=False)

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
    if os.path.ismount(path):
        run(["umount", "--lazy", str(path)], timeout=60, check=False, cleans=True)
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
