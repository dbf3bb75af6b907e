"""The functions of Salt that the hooks of a minion replace, as recorded by its engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..record.store import Store
from ..record.typed import Fact
from .table import Generations


class Row(NamedTuple):
    """
    One function of Salt: its module, the class in it if it is a method, and its name.

    *parameters* are the ones that we rely on; others after them need defaults. *may_wait* tells
    whether it may be a coroutine function.
    """

    module: str
    owner: str
    name: str
    parameters: tuple[str, ...]
    may_wait: bool = False

    @property
    def place(self) -> str:
        return ".".join(filter(None, (self.module, self.owner, self.name)))


_TABLE: Fact[tuple[Row, ...]] = Fact("table", tuple[Row, ...])


def note(store: Store, rows: Iterable[Row]) -> None:
    """Store the table for the preparation of the next update, unless it is empty."""
    table = tuple(rows)
    if table and store.replaceable(_TABLE) != table:
        store.set_fact(_TABLE, table)


def noted(store: Store) -> list[Row]:
    """Return the table; empty if none was stored, or if the hooks stand down anyway."""
    report = Generations(store).report()
    if report is None or report.hooked is False:
        return []
    found = store.fact(_TABLE)
    return [] if found is None else list(found)
