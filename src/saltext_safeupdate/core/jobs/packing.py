"""How returns are stored: SQLite copies a large one once more, so that is compressed first."""

from __future__ import annotations

import zlib

# Bytes from which on a return is stored compressed, and how that begins. No return does.
_LARGE = 256 << 10
_PACKED = b"\x00zlib"


def packed(payload: bytes) -> bytes:
    """Return what is stored of a return."""
    return payload if len(payload) < _LARGE else _PACKED + zlib.compress(payload, 1)


def unpacked(payload: bytes | None) -> bytes | None:
    if payload is None or not payload.startswith(_PACKED):
        return payload
    return zlib.decompress(payload[len(_PACKED) :])
