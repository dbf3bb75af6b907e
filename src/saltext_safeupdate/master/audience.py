"""The names of minions as the account stores them: most jobs share theirs with others."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from ..core.errors import RecordError

# A character that no ID of a minion contains.
_END = "\0"


def packed(minions: Iterable[str]) -> bytes:
    """Return the names of minions as text, the same for the same minions."""
    names = sorted(minions)
    text = _END.join(names)
    if text.count(_END) >= max(len(names), 1):
        # Salt refuses IDs with that character, so one was made up.
        text = _END.join(name for name in names if _END not in name)
    return text.encode(errors="surrogatepass")


def compressed(text: bytes) -> bytes:
    return zlib.compress(text, 1)


def unpacked(blob: bytes) -> frozenset[str]:
    """Return the names. Raises RecordError if they are damaged."""
    try:
        text = zlib.decompress(blob).decode(errors="surrogatepass")
    except (zlib.error, UnicodeDecodeError) as err:
        # Disks err, and SQLite does not check the content of blobs.
        raise RecordError(f"the names of minions that are stored are damaged: {err}") from err
    return frozenset(text.split(_END) if text else ())
