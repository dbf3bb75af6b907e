"""Whether anybody on this host reaches a master: a connection by TCP, and nothing more."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

# Seconds for one connection.
_TIMEOUT = 2.0
Address = tuple[str, int]


def _connect(address: Address) -> None:
    socket.create_connection(address, timeout=_TIMEOUT).close()


def reaches_any(
    addresses: Iterable[Address], connect: Callable[[Address], None] = _connect
) -> bool:
    """Tell whether something accepts connections at one of these addresses (host and port)."""
    for address in addresses:
        try:
            connect(address)
        except (OSError, UnicodeError):
            # Nothing is there, its name does not resolve, or it cannot be a name.
            continue
        return True
    return False
