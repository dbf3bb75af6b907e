"""How returns are stored: SQLite makes one more copy of a large one, so it is compressed first."""

from __future__ import annotations

import zlib

from ..errors import DamagedError

# From this many bytes on, a return is stored compressed, with this prefix. No return begins so.
_LARGE = 256 << 10
_PACKED = b"\x00zlib"


def packed(payload: bytes) -> bytes:
    """Return the stored form of a return."""
    return payload if len(payload) < _LARGE else _PACKED + zlib.compress(payload, 1)


def unpacked(payload: bytes | None) -> bytes | None:
    """Return the return from its stored form. Raise DamagedError."""
    if payload is not None and not isinstance(payload, bytes):
        raise DamagedError("The stored return is not valid.")
    if payload is None or not payload.startswith(_PACKED):
        return payload
    try:
        return zlib.decompress(payload[len(_PACKED) :])
    except zlib.error as err:
        raise DamagedError(f"The stored return cannot be unpacked: {err}") from err
