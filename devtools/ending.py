"""
How ``./dev`` ends, whoever ends it: what it has started cleans up, or is cleaned up.

A signal interrupts what runs, which has time to take back what it did. If ``./dev`` is killed,
another process cleans up: ``python3 -m devtools.ending`` waits for the end of a pipe whose other
end only ``./dev`` has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from devtools import host, processes, progress, rundir
from devtools.command import REPO, Stopped, ToolError, interrupt_all, spawn, stopping
from devtools.lab import state

_ENDED = "ended\n"


def run(work: Callable[[], int]) -> int:
    """Do the work and return the exit status; whatever ends it, nothing of it is left."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, _stop)
    try:
        with _watched():
            return work()
    except Stopped:
        return 130
    except ToolError as err:
        print(f"dev: {err}", file=sys.stderr)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def clean() -> list[str]:
    """Remove what runs that are no longer alive have left; return what it was."""
    found = rundir.clean() + (state.clean() if host.is_root() else [])
    return [str(path) for path in found]


def _stop(number: int, _: object) -> None:
    if stopping.is_set():
        progress.say_at_once("stopping already, which may take a minute")
        return
    progress.say_at_once("stopping: ending what was started")
    interrupt_all()
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Have another process clean up if this one is killed inside."""
    argv = [sys.executable, "-m", "devtools.ending", *map(str, processes.identity(os.getpid()))]
    other = spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=None, cwd=REPO)
    try:
        yield
    finally:
        other.communicate(_ENDED)


def _watch(pid: str, started: str) -> None:
    if sys.stdin.read() != _ENDED:
        # Its files are closed before it is gone.
        processes.wait_gone((int(pid), int(started)), 60)
        clean()


if __name__ == "__main__":
    _watch(*sys.argv[1:])
