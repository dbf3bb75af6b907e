"""
Locks that the kernel releases when their process dies, so they are never stale.

``jobs``
    Every job has a share of it, from before it starts until its return has been sent.
    An update and a restart take it exclusively.
``drain``
    While a process has it, no new job starts.
``update``
    The process that writes the record has it. The job that installs passes it on to the
    supervisor that restarts.
``supervisor``
    The supervisor has it as long as it runs.
``engine``
    The one engine that acts has it.
``return1`` and so on
    A job takes one of these for as long as it sends its return.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence

from ..errors import LockHeldError, SafeUpdateError
from . import processes

RETURNS = tuple(f"return{number}" for number in range(1, 9))
NAMES = ("jobs", "drain", "update", "supervisor", "engine", *RETURNS)
# Seconds between two tries for a lock that another process has.
_POLL_INTERVAL = 0.05
_SLOWEST_POLL_INTERVAL = 0.4
_SYS_PIDFD_GETFD = 438


class Lock:
    """An open lock file. Closing it, or the end of the process, releases the lock."""

    def __init__(self, run_dir: str, name: str, *, fd: int | None = None) -> None:
        if name not in NAMES:
            raise ValueError(f"no lock is called {name!r}")
        self.name = name
        self.path = os.path.join(run_dir, f"{name}.lock")
        self._fd: int | None = _open(self.path) if fd is None else fd

    @property
    def fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"the lock {self.name!r} is closed")
        return self._fd

    def try_shared(self) -> bool:
        """Take a share of the lock, if no process has it exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock exclusively. A share of it is given up even if this fails."""
        return self._try(fcntl.LOCK_EX)

    def exclusive(self) -> None:
        """Wait without a time limit until the lock is ours exclusively."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def wait_exclusive(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Take the lock exclusively within *timeout* seconds; tell whether that worked."""
        deadline = clock() + timeout
        while not self.try_exclusive():
            if clock() >= deadline:
                return False
            sleep(_POLL_INTERVAL)
        return True

    def release(self) -> None:
        """Release the lock, also for other processes that share this open file."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file here. A child process that shares the open file keeps the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self.fd, operation | fcntl.LOCK_NB)
        except OSError as err:
            if err.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True


def held(run_dir: str, name: str) -> bool:
    """Tell whether a process has the lock exclusively."""
    lock = Lock(run_dir, name)
    try:
        return not lock.try_shared()
    finally:
        lock.close()


def acquire(run_dir: str, name: str, otherwise: str) -> Lock:
    """Take the lock exclusively now, or raise LockHeldError with the sentence *otherwise*."""
    lock = Lock(run_dir, name)
    if not lock.try_exclusive():
        lock.close()
        raise LockHeldError(otherwise)
    return lock


def take_turn(
    run_dir: str,
    names: Sequence[str],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Lock | None:
    """Take one of several locks exclusively within *timeout* seconds, or return None."""
    deadline = clock() + timeout
    interval = _POLL_INTERVAL
    while True:
        for name in names:
            lock = Lock(run_dir, name)
            if lock.try_exclusive():
                return lock
            lock.close()
        if clock() >= deadline:
            return None
        sleep(interval)
        # If it takes long, many processes wait.
        interval = min(interval * 2, _SLOWEST_POLL_INTERVAL)


def adopt(run_dir: str, name: str) -> Lock | None:
    """
    Return the lock that an ancestor process has open, or None.

    A job may run ``salt-call`` (``sudo_user`` does, and so may a state). Then both have one
    lock: the open file is fetched from the ancestor with ``pidfd_getfd(2)``, so that their
    common share becomes an exclusive lock. Raises SafeUpdateError if the kernel refuses that:
    the two processes would wait for each other.
    """
    # The kernel shows the path of an open file without symbolic links.
    path = os.path.realpath(os.path.join(run_dir, f"{name}.lock"))
    for pid in processes.ancestors():
        fd = _find_fd(pid, path)
        if fd is not None:
            return Lock(run_dir, name, fd=fd)
    return None


def _open(path: str) -> int:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise SafeUpdateError(
            f"The lock file {path} cannot be opened: {err.strerror or err}. Nothing was changed; "
            "the minion needs to write in 'safeupdate:run_dir'."
        ) from err


def _find_fd(pid: int, path: str) -> int | None:
    table = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(table)
    except OSError:
        return None
    for number in numbers:
        with contextlib.suppress(OSError):
            if os.readlink(f"{table}/{number}") == path:
                fd = _fetch_fd(pid, int(number))
                if fd is not None:
                    return fd
    return None


def _fetch_fd(pid: int, number: int) -> int | None:
    pidfd = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.syscall(_SYS_PIDFD_GETFD, pidfd, number, 0))
    finally:
        os.close(pidfd)
    if fd < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        raise SafeUpdateError(
            "The jobs lock of the job that started this one cannot be shared: "
            f"pidfd_getfd(2) failed with {os.strerror(ctypes.get_errno())}. Nothing was done. "
            "Allow it in the system call filter of the container, or call the function without "
            "'salt-call' inside a job."
        )
    return fd if fd >= 0 else None
