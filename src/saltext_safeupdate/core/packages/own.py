"""The minion's own packages: those that contain Salt's code, its interpreter and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .manager import Offers


class Own(NamedTuple):
    """The minion's own packages, and whether they were found or configured."""

    names: frozenset[str]
    configured: bool


@dataclass(eq=False, repr=False)
class _Cache:
    stamp: tuple[int, ...] = ()
    key: tuple[str, ...] = ()
    own: Own | None = None


@dataclass(eq=False, repr=False)
class OwnFinder:
    """Find the own packages; ask the package manager only if its database has changed."""

    offers: Offers
    paths: Sequence[str]
    configured: Sequence[str] = ()
    _cache: _Cache = field(default_factory=_Cache)

    def __call__(self) -> Own:
        if self.configured:
            return Own(frozenset(self.configured), True)
        stamp = self.offers.stamp()
        key = tuple(self.paths)
        if self._cache.own is None or self._cache.stamp != stamp or self._cache.key != key:
            self._cache = _Cache(stamp, key, find_own(self.offers, self.paths))
        assert self._cache.own is not None  # noqa: S101
        return self._cache.own


def find_own(offers: Offers, paths: Iterable[str]) -> Own:
    """Return the packages that own Salt's code, interpreter and unit, with their siblings."""
    owners = offers.owners(paths)
    if not owners:
        return Own(frozenset(), False)
    return Own(frozenset(offers.siblings(owners)), False)
