"""A request to a package manager, the same for all of them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..frozen import frozen


class Action(Enum):
    """The request."""

    INSTALL = "install"
    REMOVE = "remove"
    PURGE = "purge"
    UPGRADE = "upgrade"
    AUTOREMOVE = "autoremove"


REMOVALS = (Action.REMOVE, Action.PURGE, Action.AUTOREMOVE)


class Change(NamedTuple):
    """The version of one package before and after; empty: it is not installed."""

    old: str
    new: str


class File(NamedTuple):
    """A package file on the disk, and what it has to contain."""

    package: str
    version: str
    path: str
    sha256: str


@frozen
class Request:
    """
    A task of a package manager.

    *targets* are pairs of a name and a version (None: the newest). For an upgrade they may be
    empty, which means everything. *files* are package files. *release* is the release, or for
    rpm the one repository, to take them from. *options* are words for apt or
    dnf that choose what changes. *again* asks for packages that are installed already, too.
    """

    action: Action
    targets: tuple[tuple[str, str | None], ...] = ()
    files: tuple[str, ...] = ()
    release: str | None = None
    options: tuple[str, ...] = ()
    full: bool = False
    again: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.targets)
