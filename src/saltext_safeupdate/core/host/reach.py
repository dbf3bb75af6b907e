"""
Whether anybody on this host reaches a master.

That a connection by TCP is accepted says little: the kernel does that for a master whose processes
stand still, and a load balancer for one that is gone. Where the transport is ZeroMQ, whoever
listens sends its greeting at once (ZeroMQ RFC 37, ZMTP 3.1, "greeting"), so that is waited for.
With Salt's other transports, who listens says nothing until it is asked.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# Seconds for one connection, and then for its greeting.
_TIMEOUT = 2.0
# The beginning of the greeting.
_SIGNATURE = b"\xff"


class Address(NamedTuple):
    """Where a master listens for requests, and whether it *greets* who connects."""

    host: str
    port: int
    greets: bool = False


def _connect(address: Address) -> None:
    with socket.create_connection(address[:2], timeout=_TIMEOUT) as connection:
        if address.greets and connection.recv(1) != _SIGNATURE:
            raise ConnectionError("whoever listens there is no master")


def is_here(host: str) -> bool:
    """Tell whether a name or an address is one of this host: only of such can anything listen."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_bindable(family, where) for family, _, _, _, where in found)


def _is_bindable(family: int, where: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(where)
    except OSError:
        return False
    return True


def reaches_any(
    addresses: Iterable[Address], connect: Callable[[Address], None] = _connect
) -> bool:
    """Tell whether a master is there at one of these addresses."""
    for address in addresses:
        try:
            connect(address)
        except (OSError, UnicodeError):
            # Nothing is there, its name does not resolve, or it cannot be a name.
            continue
        return True
    return False
