"""
Sets of minions as integers, with a bit for each: 1,000 jobs for 10,000 minions take 3 MB.

A minion has a number as long as somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Numbered:
    """Minions and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def highest(self) -> int:
        """How many numbers there are, used or not."""
        return len(self._names)

    def find(self, minion: str) -> int | None:
        """Return the number of a minion; None if it has none."""
        return self._numbers.get(minion)

    def name(self, number: int) -> str:
        return self._names[number]

    def number(self, minion: str) -> int:
        """Return the number of a minion, a new one if it has none."""
        number = self._numbers.get(minion)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = minion
            else:
                number = len(self._names)
                self._names.append(minion)
            self._numbers[minion] = number
        return number

    def members(self, minions: Iterable[str]) -> int:
        """Return these minions as a set."""
        found = bytearray(len(self._names) // 8 + 1)
        for minion in minions:
            number = self.number(minion)
            if number // 8 >= len(found):
                found.extend(bytes(len(found) + 1))
            found[number // 8] |= 1 << number % 8
        return int.from_bytes(found, "little")

    def listed(self, members: int) -> list[str]:
        """Return the minions of a set."""
        return [self._names[number] for number in numbers(members)]

    def keep(self, members: int) -> list[int]:
        """Free the numbers of all other minions; return them."""
        gone = [
            number
            for number, name in enumerate(self._names)
            if not members >> number & 1 and self._numbers.get(name) == number
        ]
        for number in gone:
            del self._numbers[self._names[number]]
        self._free += gone
        return gone


def numbers(members: int) -> Iterator[int]:
    """Yield the numbers in a set."""
    text = bin(members)[:1:-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)


def lowest(members: int, most: int) -> int:
    """Return a set of the lowest numbers of a set."""
    if members.bit_count() <= most:
        return members
    for place, number in enumerate(numbers(members), start=1):
        if place == most:
            return members & ((1 << number + 1) - 1)
    return members
