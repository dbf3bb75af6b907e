"""Whether a process can have heard anything from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from . import processes

# The values in the tables of the kernel for a socket that only listens, and for a closed one
# (proc_pid_net(5), include/net/tcp_states.h).
_UNCONNECTED = ("0A", "07")
_TABLES = ("tcp", "tcp6")
_REMOTE, _STATE, _INODE = 2, 3, 9


def has_any(pid: int, ports: Collection[int] = ()) -> bool:
    """
    Tell whether a process has a TCP connection, or makes one; True if that is not known.

    With *ports*, those count whose other end has one of them.
    """
    try:
        return any(not ports or port in ports for port in _ports(pid))
    except OSError:
        return True


def ports(pid: int) -> frozenset[int]:
    """Return the ports of the other ends of its TCP connections; empty if they are not known."""
    try:
        return frozenset(_ports(pid))
    except OSError:
        return frozenset()


def _ports(pid: int) -> Iterator[int]:
    connected = _connected(pid)
    for name in processes.opened(pid):
        if name in connected:
            yield connected[name]


def _connected(pid: int) -> dict[str, int]:
    """
    Return the sockets with a connection of the process's network, by their names in ``fd``.

    Each has the port of its other end.
    """
    found = {}
    for table in _TABLES:
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                next(lines, None)
                for line in lines:
                    fields = line.split()
                    if fields[_STATE] not in _UNCONNECTED:
                        port = int(fields[_REMOTE].rpartition(":")[2], 16)
                        found[f"socket:[{fields[_INODE]}]"] = port
        except FileNotFoundError:
            # A kernel without IPv6 has one table only; a process that is gone has none.
            if not os.path.isdir(f"/proc/{pid}"):
                raise
    return found
