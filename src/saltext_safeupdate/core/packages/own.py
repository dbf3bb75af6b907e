"""The minion's own packages: those that contain Salt's code, its interpreter and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .manager import PackageManager


class Own(NamedTuple):
    """The minion's own packages, and whether they were found or configured."""

    names: frozenset[str]
    configured: bool


@dataclass
class _Cache:
    stamp: tuple[int, ...] = ()
    key: tuple[str, ...] = ()
    own: Own | None = None


@dataclass
class OwnFinder:
    """Find the own packages; ask the package manager only if its database has changed."""

    manager: PackageManager
    paths: Sequence[str]
    configured: Sequence[str] = ()
    _cache: _Cache = field(default_factory=_Cache)

    def __call__(self) -> Own:
        if self.configured:
            return Own(frozenset(self.configured), True)
        stamp = self.manager.stamp()
        key = tuple(self.paths)
        if self._cache.own is None or self._cache.stamp != stamp or self._cache.key != key:
            self._cache = _Cache(stamp, key, find_own(self.manager, self.paths))
        assert self._cache.own is not None  # noqa: S101
        return self._cache.own


def find_own(manager: PackageManager, paths: Iterable[str]) -> Own:
    """Return the packages that own Salt's code, interpreter and unit, with their siblings."""
    owners = manager.owners(paths)
    if not owners:
        return Own(frozenset(), False)
    return Own(frozenset(manager.siblings(owners)), False)
