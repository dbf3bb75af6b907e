"""
Locks that the kernel releases when their process dies, so they are never stale.

``jobs``
    Every job has a share of it, from before it starts until its return has been sent. An update and
    a restart take it exclusively. The stop guard writes the contents of its file.
``drain``
    While a process has it, no new job starts.
``packages``
    Who reads code where packages put it has a share: ``salt-call``, and any job as long as it has
    the package manager work. The process that changes the own packages while jobs run has it
    exclusively.
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
import pwd
import time
from collections.abc import Callable, Sequence

from ..errors import LockHeldError, LockUnavailableError, SafeUpdateError
from . import processes
from .files import make_private, open_private
from .wait import Wait

RETURNS = tuple(f"return{number}" for number in range(1, 9))
NAMES = ("jobs", "drain", "packages", "update", "supervisor", "engine", *RETURNS)
# Seconds between two tries for a lock that another process has.
_POLL_INTERVAL = 0.05
# The same for a turn: of one who has just come, and the least.
_FIRST_TURN_INTERVAL, _TURN_INTERVAL = 0.2, 0.025
# The standard library has the first one only if it was built where the kernel was new enough.
_SYS_PIDFD_OPEN, _SYS_PIDFD_GETFD = 434, 438
# The errors of a kernel or a filter that forbids it.
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)


class Lock:
    """
    An open lock file. Closing it, or the end of the process, releases the lock.

    Every method raises LockUnavailableError if the lock cannot be used.
    """

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
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as err:
            raise _unavailable(self.path, err) from err

    def wait_exclusive(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Take the lock exclusively within *timeout* seconds; tell whether that worked."""
        wait = Wait(timeout, clock)
        while not self.try_exclusive():
            if wait.over:
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
            raise _unavailable(self.path, err) from err
        return True


def held(run_dir: str, name: str) -> bool:
    """Tell whether a process has the lock exclusively."""
    lock = Lock(run_dir, name)
    try:
        return not lock.try_shared()
    finally:
        lock.close()


def drop_inherited(run_dir: str) -> None:
    """
    Close the files of all locks that this process, which was forked, has from its parent.

    The parent may have them for a job that is a thread. They would stay locked as long as this
    process runs.
    """
    names = {os.path.join(os.path.realpath(run_dir), f"{name}.lock") for name in NAMES}
    for each in os.listdir("/proc/self/fd"):
        # The listing itself has one that is closed by now.
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{each}") in names:
                os.close(int(each))


def share(run_dir: str, name: str) -> Lock | None:
    """Return a share of the lock; None if a process has it exclusively."""
    lock = Lock(run_dir, name)
    try:
        if lock.try_shared():
            return lock
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


def problem(run_dir: str, user: str = "") -> str:
    """
    Return why the locks cannot be used; empty if they can.

    *user* is the name of the user that the minion runs as, if that is not the user of this
    process.
    """
    try:
        held(run_dir, "jobs")
        owner = os.stat(run_dir).st_uid
        minion = pwd.getpwnam(user).pw_uid if user else owner
    except SafeUpdateError as err:
        return str(err)
    except (KeyError, OSError) as err:
        return f"Whether {user} can use {run_dir} is not known: {err}."
    if minion in (owner, 0):
        return ""
    return (
        f"The minion runs as {user}, and {run_dir} belongs to another user, so its jobs take no "
        "locks."
    )


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
    """
    Take one of several locks exclusively within *timeout* seconds, or return None.

    A process that has waited longer tries more often, so that turns are taken about in the order of
    arrival.
    """
    deadline = clock() + timeout
    interval = _FIRST_TURN_INTERVAL
    found: Lock | None = None
    opened: list[Lock] = []
    try:
        while True:
            for place, name in enumerate(names):
                # Mostly the first one is free, and the others need not be opened.
                if place == len(opened):
                    opened.append(Lock(run_dir, name))
                if opened[place].try_exclusive():
                    found = opened[place]
                    return found
            if clock() >= deadline:
                return None
            sleep(interval)
            interval = max(interval / 2, _TURN_INTERVAL)
    finally:
        for lock in opened:
            if lock is not found:
                lock.close()


def adopt(run_dir: str, name: str) -> Lock | None:
    """
    Return the lock that an ancestor process has open, or None.

    A job may run ``salt-call`` (``sudo_user`` does, and so may a state). Then both have one
    lock: the open file is fetched from the ancestor with ``pidfd_getfd(2)``, so that their
    common share becomes an exclusive lock. Raises LockUnavailableError if the kernel refuses that:
    the ancestor has the lock, and would wait for this process as this one for it.
    """
    try:
        wanted = os.stat(os.path.join(run_dir, f"{name}.lock"))
    except OSError:
        # Nobody has it open under that name, or whoever has is another user.
        return None
    for pid in processes.ancestors():
        fd = _find_fd(pid, f"{name}.lock", wanted)
        if fd is not None:
            return Lock(run_dir, name, fd=fd)
    return None


def _open(path: str) -> int:
    try:
        make_private(os.path.dirname(path))
        return open_private(path)
    except OSError as err:
        if err.errno == errno.EROFS:
            # A lock needs no writing: what was made before still locks.
            with contextlib.suppress(OSError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raise _unavailable(path, err) from err


def _unavailable(path: str, err: OSError) -> LockUnavailableError:
    return LockUnavailableError(
        f"The lock {path} cannot be used: {err.strerror or err}. Jobs run as without safeupdate: "
        "no update and no restart waits for them, and no update starts. The user of the minion "
        "has to be able to write in 'safeupdate:run_dir'."
    )


def _find_fd(pid: int, name: str, wanted: os.stat_result) -> int | None:
    """Find the open file by device and inode: processes may see it under other paths."""
    table = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(table)
    except OSError:
        return None
    for number in numbers:
        with contextlib.suppress(OSError):
            # Only what is called so is looked at: a file of a network that is away would block.
            if not os.readlink(f"{table}/{number}").endswith(f"/{name}"):
                continue
            if os.path.samestat(os.stat(f"{table}/{number}"), wanted):
                fd = _fetch_fd(pid, int(number))
                if fd is not None:
                    return fd
    return None


def _fetch_fd(pid: int, number: int) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    name, fd = "pidfd_open", -1
    pidfd = int(libc.syscall(_SYS_PIDFD_OPEN, pid, 0))
    if pidfd >= 0:
        name, fd = "pidfd_getfd", int(libc.syscall(_SYS_PIDFD_GETFD, pidfd, number, 0))
        os.close(pidfd)
    if fd < 0 and ctypes.get_errno() in _REFUSED:
        raise LockUnavailableError(
            "The jobs lock of the job that started this one cannot be shared: "
            f"{name}(2) failed with {os.strerror(ctypes.get_errno())}. Nothing was done. "
            "Allow it in the system call filter of the container, or call the function without "
            "'salt-call' inside a job."
        )
    return fd if fd >= 0 else None
