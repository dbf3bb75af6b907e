"""How returns are stored: SQLite copies a large one once more, so that is compressed first."""

from __future__ import annotations

import zlib

from ..errors import DamagedError

# Bytes from which on a return is stored compressed, and how that begins. No return does.
_LARGE = 256 << 10
_PACKED = b"\x00zlib"


def packed(payload: bytes) -> bytes:
    """Return what is stored of a return."""
    return payload if len(payload) < _LARGE else _PACKED + zlib.compress(payload, 1)


def unpacked(payload: bytes | None) -> bytes | None:
    """Return the return that is stored so. Raises DamagedError."""
    if payload is not None and not isinstance(payload, bytes):
        raise DamagedError("The stored return is none.")
    if payload is None or not payload.startswith(_PACKED):
        return payload
    try:
        return zlib.decompress(payload[len(_PACKED) :])
    except zlib.error as err:
        raise DamagedError(f"The stored return cannot be unpacked: {err}") from err
