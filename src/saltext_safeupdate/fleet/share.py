"""A count or a percentage of minions, as an administrator writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.errors import InputError


@dataclass(frozen=True)
class Share:
    """``5`` or ``10%``. *least* is the least result of a percentage: 1 if it is a default."""

    amount: float
    percent: bool = False
    least: int = 0

    def of(self, total: int, name: str, meant: int = 0) -> int:
        """
        Return this share of *total* minions, or raise InputError if it is less than one.

        It is at least 1 if it is at least 1 of all *meant* minions: the others are done already.
        """
        if not self.percent:
            return int(self.amount)
        least = max(self.least, min(self.allows(meant), 1))
        found = max(self.allows(total), min(least, total))
        if found == 0 and self.amount > 0 and total > 0:
            raise InputError(
                f"'{name}: {self}' of {total} minions is less than one. Nothing was started; "
                f"give a number of minions, such as '{name}: 1'."
            )
        return found

    def allows(self, total: int) -> int:
        """Return this share of *total*, rounded down; it may be 0."""
        return math.floor(total * self.amount / 100) if self.percent else int(self.amount)

    def needs(self, total: int) -> int:
        """Return this share of *total*, rounded up, and never more than *total*."""
        return min(
            math.ceil(total * self.amount / 100) if self.percent else int(self.amount), total
        )

    def __str__(self) -> str:
        return f"{self.amount:g}%" if self.percent else f"{self.amount:g}"


def parse(name: str, given: object, *, zero: bool = False) -> Share:
    """Return the Share for ``3``, ``"3"`` or ``"10%"``, or raise InputError."""
    text = str(given).strip()
    number, percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        amount = float(number) if percent else int(number)
    except ValueError:
        amount = -1.0
    highest = 100 if percent else math.inf
    lowest_fits = amount >= 0 if zero else amount > 0
    if isinstance(given, bool) or not lowest_fits or not amount <= highest:
        raise InputError(
            f"'{name}' must be a number of minions or a percentage such as 10%, not {given!r}."
        )
    return Share(amount, percent)
