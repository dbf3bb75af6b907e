"""
Whether anybody on this host reaches a master.

That a port accepts a connection says little: the kernel does that for a master whose processes
stand still, and a load balancer for one that is gone. One process of a master listens, and others
work: if all of these hang, the port still greets. So with ZeroMQ the master is asked a question
that one of its workers answers (Salt's ``ping``, by ZeroMQ RFC 37, ZMTP 3.1). With Salt's other
transports, a connection has to do.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# Seconds for one connection, and then for each part of the answer: a busy master takes a while.
_TIMEOUT = 2.0
_ANSWER_TIMEOUT = 5.0
# The beginning of a greeting, our greeting (version 3.0, without security), and that we will ask.
_SIGNATURE, _GREETING_SIZE = b"\xff", 64
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(52, b"\0")
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
# {"enc": "clear", "load": {"cmd": "ping"}, "version": 3}
_QUESTION = b"\x83\xa3enc\xa5clear\xa4load\x81\xa3cmd\xa4ping\xa7version\x03"
# The flags of a frame: another one follows, its size has 8 bytes, it is no part of a message.
_MORE, _LONG, _COMMAND = 1, 2, 4
# An answer has 3 frames, and few bytes.
_MOST_FRAMES, _MOST_BYTES = 16, 65536


class Address(NamedTuple):
    """Where a master listens for requests, and whether it *greets* who connects, by ZeroMQ."""

    host: str
    port: int
    greets: bool = False


def _connect(address: Address) -> None:
    with socket.create_connection(address[:2], timeout=_TIMEOUT) as connection:
        if address.greets:
            connection.settimeout(_ANSWER_TIMEOUT)
            _ask(connection)


def _ask(connection: socket.socket) -> None:
    """Ask the master, and wait for the end of its answer, whatever that is. Raise OSError."""
    connection.sendall(_GREETING)
    if _received(connection, _GREETING_SIZE)[:1] != _SIGNATURE:
        raise ConnectionError("whoever listens there is no master")
    connection.sendall(_frame(_COMMAND, _READY))
    for number in range(_MOST_FRAMES):
        flags = _received(connection, 1)[0]
        size = int.from_bytes(_received(connection, 8 if flags & _LONG else 1), "big")
        _received(connection, min(size, _MOST_BYTES))
        if not number:
            connection.sendall(_frame(_MORE, b"") + _frame(0, _QUESTION))
        elif not flags & (_MORE | _COMMAND):
            return
    raise ConnectionError("whoever listens there does not end its answer")


def _frame(flags: int, body: bytes) -> bytes:
    return bytes((flags, len(body))) + body


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("whoever listens there has hung up")
        found += more
    return found


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
