"""Processes: names for them that stay unique also across reboots, and work in the background."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator

# Indexes behind the name in /proc/<pid>/stat, and the states of the dead.
_PARENT_FIELD = 1
_START_FIELD = 19
_DEAD = ("Z", "X", "x")
# The name of a boot that is unknown.
NO_BOOT = "-"


def identity(pid: int) -> str:
    """Return a name that no other process ever has; empty if there is no such process."""
    start = start_time(pid)
    return f"{boot()}:{pid}:{start}" if start else ""


def alive(who: str) -> bool:
    """Tell whether the process with this :func:`identity` still runs."""
    which, _, rest = who.partition(":")
    pid, _, start = rest.partition(":")
    return which == boot() and pid.isdigit() and start_time(int(pid)) == start


def pid(who: str) -> int:
    """Return the PID in the :func:`identity` of a process."""
    return int(who.split(":")[1])


def ancestors() -> Iterator[int]:
    """Yield the PIDs of our parent, of its parent, and so on; PID 1 is left out."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        pid = parent(pid)


def parent(pid: int) -> int:
    """Return the PID of the parent of a process; 0 if the process is gone."""
    fields = _stat(pid)
    return int(fields[_PARENT_FIELD]) if fields else 0


def has_children(pid: int) -> bool:
    """Tell whether a process has begun others that have not ended; yes if the kernel cannot say."""
    told = False
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            # The thread may have ended: what it has begun is another one's then.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                    if children.read().strip():
                        return True
                told = True
    # A kernel without CONFIG_PROC_CHILDREN tells nothing.
    return not told and bool(start_time(pid))


def descendants(pid: int) -> list[int]:
    """Return the processes that one has begun, and those that these have, as far as all live."""
    parents = {int(name): parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found = [pid]
    for each in found:
        found += [child for child, its in parents.items() if its == each]
    return found[1:]


def opened(pid: int) -> Iterator[str]:
    """
    Yield what a process has open, by the names in ``/proc/<pid>/fd``.

    Raises OSError if it is gone, or is another user's.
    """
    directory = f"/proc/{pid}/fd"
    for fd in os.listdir(directory):
        # It may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(os.path.join(directory, fd))


def start_time(pid: int) -> str:
    """Return what tells a process from a later one of the same PID; empty if it is dead."""
    fields = _stat(pid)
    return fields[_START_FIELD] if fields and fields[0] not in _DEAD else ""


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


@functools.cache
def boot() -> str:
    """Return the name of this boot of the system; ``-`` if it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return NO_BOOT


def since_boot() -> float:
    """Return seconds since this boot, the same in every process; no clock setting moves them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age(pid: int) -> float | None:
    """Return for how many seconds a process has been there; None if it is not."""
    start = start_time(pid)
    if not start:
        return None
    return since_boot() - int(start) / os.sysconf("SC_CLK_TCK")


def moment() -> str:
    """
    Return a name for this moment, for :func:`began_before`: that is a thread which begins now.

    So both come from ``/proc``, which may count from another origin than the clock of the boot.
    """
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(this_thread()))
    thread.start()
    thread.join()
    return found[0]


def began_before(who: str, when: str) -> bool:
    """Tell whether a process began before a :func:`moment` of its boot; no if that is not known."""
    which, _, start = who.rpartition(":")
    there, _, ticks = when.rpartition(":")
    boots = {which.partition(":")[0], there.partition(":")[0]}
    known = len(boots) == 1 and NO_BOOT not in boots and start.isdigit() and ticks.isdigit()
    return known and int(start) < int(ticks)


def me() -> str:
    """Return the identity of this process."""
    return identity(os.getpid())


def this_thread() -> str:
    """Return the identity of this thread; the identity of the first one is its process's."""
    return identity(threading.get_native_id())


def in_background(work: Callable[[], object]) -> None:
    """Do the work in a process with a session of its own, which is a child of PID 1."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        # A reader of the output of this process does not wait for the work.
        for number in (0, 1, 2):
            os.dup2(null, number)
        work()
    finally:
        os._exit(127)
