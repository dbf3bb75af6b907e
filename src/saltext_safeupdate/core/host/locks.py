"""
Locks that the kernel gives back when their holder dies, so that no stale state is possible.

``jobs``
    Every job holds it shared, from before it starts until its return has been sent.
    An update and a restart hold it alone.
``drain``
    Whoever holds it keeps new jobs from starting.
``update``
    Held by the process that writes the record. It is the baton between the job that
    installs and the supervisor that restarts.
``supervisor``
    Held by the supervisor as long as it lives.
``engine``
    Held by the one engine that acts.
``return1`` and so on
    Held by the jobs whose turn it is to send their returns.
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
# Seconds between two tries for a lock that somebody holds.
_POLL_INTERVAL = 0.05
_SLOWEST_POLL_INTERVAL = 0.4
_SYS_PIDFD_GETFD = 438


class Lock:
    """An open lock file. It is held until :meth:`close`, or until the process ends."""

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
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone. A shared hold on it is given up even where this fails."""
        return self._try(fcntl.LOCK_EX)

    def exclusive(self) -> None:
        """Wait without a bound until the lock is ours alone."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def wait_exclusive(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Take the lock alone within *timeout* seconds; say whether that worked."""
        deadline = clock() + timeout
        while not self.try_exclusive():
            if clock() >= deadline:
                return False
            sleep(_POLL_INTERVAL)
        return True

    def release(self) -> None:
        """Give the lock up, for whoever shares this open file too."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close our end. Where a child process shares the open file, it keeps the lock."""
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
    """Tell whether somebody holds the lock alone."""
    lock = Lock(run_dir, name)
    try:
        return not lock.try_shared()
    finally:
        lock.close()


def acquire(run_dir: str, name: str, otherwise: str) -> Lock:
    """Take the lock alone at once, or raise LockHeldError with the sentence *otherwise*."""
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
    """Take one of several locks alone within *timeout* seconds, or return None."""
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
        # Those who have waited for long are many.
        interval = min(interval * 2, _SLOWEST_POLL_INTERVAL)


def adopt(run_dir: str, name: str) -> Lock | None:
    """
    Return the lock that an ancestor process has open, or None.

    A job may run ``salt-call`` (``sudo_user`` does, and so may a state). Then both are one
    holder: the open file is fetched from the ancestor with ``pidfd_getfd(2)``, so that
    turning a shared hold into an exclusive one works on the hold they have in common. Raises
    SafeUpdateError where the kernel refuses that: the two would wait for each other.
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
            "The hold of the job that started this one cannot be shared: "
            f"pidfd_getfd(2) failed with {os.strerror(ctypes.get_errno())}. Nothing was done. Let "
            "the container's system call filter pass it, or call the function without "
            "'salt-call' inside a job."
        )
    return fd if fd >= 0 else None
