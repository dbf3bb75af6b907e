"""Whether a process can have heard anything from elsewhere."""

from __future__ import annotations

import os

from . import processes

# What stands in the tables of the kernel for a socket that only listens, and for one that is closed
# (proc_pid_net(5), include/net/tcp_states.h).
_UNCONNECTED = ("0A", "07")
_TABLES = ("tcp", "tcp6")
_STATE, _INODE = 3, 9


def has_any(pid: int) -> bool:
    """Tell whether a process has a TCP connection, or makes one; True if that is not known."""
    try:
        connected = _connected(pid)
        return any(each in connected for each in processes.opened(pid))
    except OSError:
        return True


def _connected(pid: int) -> set[str]:
    """Return the sockets with a connection of the process's network, by their names in ``fd``."""
    found = set()
    for table in _TABLES:
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                next(lines, None)
                for line in lines:
                    fields = line.split()
                    if fields[_STATE] not in _UNCONNECTED:
                        found.add(f"socket:[{fields[_INODE]}]")
        except FileNotFoundError:
            # A kernel without IPv6 has one table only; a process that is gone has none.
            if not os.path.isdir(f"/proc/{pid}"):
                raise
    return found
