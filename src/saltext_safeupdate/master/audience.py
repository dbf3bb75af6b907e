"""
Sets of minions as the account stores them: a list of names once, then a bit for each of them.

So ten thousand jobs for ten thousand minions without returns take ten thousand times 1,250 bytes,
and not the names of all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from ..core.errors import RecordError

# A character that no ID of a minion contains.
_END = "\0"


def packed(minions: Iterable[str]) -> tuple[bytes, int]:
    """Return the names of minions as text, the same for the same minions, and their number."""
    names = sorted(minions)
    text = _END.join(names)
    if text.count(_END) != len(names) - 1:
        # Salt refuses such IDs of minions, so this one was made up.
        names = [name for name in names if _END not in name]
        text = _END.join(names)
    return text.encode(errors="surrogatepass"), len(names)


def compressed(text: bytes) -> bytes:
    return zlib.compress(text, 1)


class Audience:
    """The minions of a publication, in their order. Raises RecordError if *blob* is damaged."""

    def __init__(self, blob: bytes) -> None:
        try:
            text = zlib.decompress(blob).decode(errors="surrogatepass")
        except (zlib.error, UnicodeDecodeError) as err:
            # Disks err, and SQLite does not check the content of blobs.
            raise RecordError(f"the names of minions that are stored are damaged: {err}") from err
        self.names: list[str] = text.split(_END) if text else []
        self._places: dict[str, int] = {}

    def members(self, minions: Iterable[str]) -> bytes:
        """Return the set of these minions; unknown names are left out."""
        if not self._places:
            self._places = {name: place for place, name in enumerate(self.names)}
        found = bytearray((len(self.names) + 7) // 8)
        for minion in minions:
            place = self._places.get(minion)
            if place is not None:
                found[place >> 3] |= 1 << (place & 7)
        return bytes(found)

    def listed(self, members: bytes) -> list[str]:
        """Return the minions of a set."""
        bits = bin(int.from_bytes(members, "little"))[:1:-1]
        return [name for name, bit in zip(self.names, bits, strict=False) if bit == "1"]

    def counts(self, times: Mapping[str, int]) -> bytes:
        """Return how often each minion had something: a set for once, one for twice, ..."""
        return b"".join(
            self.members(minion for minion, count in times.items() if count >= least)
            for least in range(1, max(times.values(), default=0) + 1)
        )

    def counted(self, counts: bytes) -> dict[str, int]:
        """Return the numbers that :meth:`counts` was given."""
        size = (len(self.names) + 7) // 8
        found: dict[str, int] = {}
        for at in range(0, len(counts), size):
            for minion in self.listed(counts[at : at + size]):
                found[minion] = found.get(minion, 0) + 1
        return found
