"""The directories of running containers, and the removal of everything that a run left behind."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from devtools import processes
from devtools.command import run
from devtools.processes import Identity

# Short, because unix socket paths below it end at 107 bytes.
BASE = Path("/run/safeupdate-lab")
TMPFS_SIZE = "60%"


class RunDir:
    """One run's tmpfs below :data:`BASE`, with a record of everything that has to be ended."""

    def __init__(self) -> None:
        self.path = BASE / str(os.getpid())
        self._lock = threading.Lock()
        self._numbers = 0
        self._records: dict[str, dict[str, object]] = {}
        self.owner = processes.identity(os.getpid())
        options = f"size={TMPFS_SIZE},mode=755"
        with _alone():
            if self.path.exists():
                remove(self.path)
            self.path.mkdir()
            run(["mount", "-t", "tmpfs", "-o", options, "lab", str(self.path)], timeout=60)
            self._write()
        atexit.register(self.close)

    def number(self) -> int:
        """Return a number that no other container of this run has."""
        with self._lock:
            self._numbers += 1
            return self._numbers

    def record(self, name: str, **what: object) -> None:
        """Remember *name*: ``pids`` to end, ``netns`` and ``cgroup`` to remove."""
        with self._lock:
            self._records[name] = what
            self._write()

    def forget(self, name: str) -> None:
        with self._lock:
            self._records.pop(name, None)
            self._write()

    def close(self) -> None:
        """End and remove everything of this run; safe to call twice and in a forked child."""
        if processes.identity(os.getpid()) == self.owner and self.path.exists():
            remove(self.path)

    def _write(self) -> None:
        data = {"owner": self.owner, "records": self._records}
        fresh = self.path / ".state.new"
        fresh.write_text(json.dumps(data))
        fresh.replace(self.path / "state.json")


def end_processes(pids: list[Identity], timeout: float = 15.0) -> None:
    for who in pids:
        processes.kill(who)
    for who in pids:
        processes.wait_gone(who, timeout)


def remove_cgroup(name: str) -> None:
    """Remove a cgroup with its subgroups; dying processes need a moment."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, fstype, *_ = line.split()
        top = Path(where) / name
        if fstype != "cgroup2" or not top.is_dir():
            continue
        for _ in range(50):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            if not top.exists():
                return
            time.sleep(0.02)


def remove_netns(name: str) -> None:
    """End all processes in a network namespace of ours and remove it."""
    path = f"/run/netns/{name}"
    if not os.path.exists(path):
        return
    for _ in range(3):
        inside = processes.sharing_netns(path)
        if not inside:
            break
        end_processes(inside, timeout=5)
    run(["ip", "netns", "del", name], timeout=30, check=False, cleans=True)


def remove(path: Path) -> None:
    """Remove a run directory with all processes, namespaces and mounts recorded in it."""
    try:
        records = json.loads((path / "state.json").read_text())["records"]
    except (OSError, ValueError):
        records = {}
    for name, record in records.items():
        end_processes([(pid, started) for pid, started in record.get("pids", ())])
        if netns := record.get("netns"):
            remove_netns(netns)
        if cgroup := record.get("cgroup"):
            remove_cgroup(cgroup)
        propagate = Path("/run/systemd/nspawn/propagate") / name
        shutil.rmtree(propagate, ignore_errors=True)
    detach_loops(path)
    if os.path.ismount(path):
        run(["umount", "--lazy", str(path)], timeout=60, check=False, cleans=True)
    shutil.rmtree(path, ignore_errors=True)


def detach_loops(path: Path) -> None:
    """Give loop devices back whose image is below *path*; one in use goes when it is not."""
    argv = ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"]
    listed = run(argv, timeout=30, check=False, cleans=True)
    for line in listed.stdout.splitlines():
        device, _, image = line.partition(" ")
        if Path(image.strip()).is_relative_to(path):
            run(["losetup", "--detach", device], timeout=30, check=False, cleans=True)


def leftovers() -> list[Path]:
    """Return the run directories whose owner is gone."""
    found = []
    for path in sorted(BASE.glob("[0-9]*")):
        try:
            pid, started = json.loads((path / "state.json").read_text())["owner"]
        except (OSError, ValueError):
            pid, started = int(path.name), 0
        if not processes.alive((pid, started)):
            found.append(path)
    return found


def clean() -> list[Path]:
    """Remove the leftovers of runs that are no longer alive; return them."""
    with _alone():
        found = leftovers()
        for path in found:
            remove(path)
    return found


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other runs from removing the same leftovers, or incomplete directories."""
    BASE.mkdir(parents=True, exist_ok=True)
    with (BASE / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
