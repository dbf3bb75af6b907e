"""
Package managers: what is installed, who owns what, and what a request would change.

Only the one of this host is imported: every minion keeps what is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import SafeUpdateError
from ..host.command import Run
from ..host.command import run as run_command
from .request import Change, File, Request

if TYPE_CHECKING:
    from ..transactional.snapshots import Snapshots
    from .zypper import Zypper

__all__ = ["Change", "File", "Own", "PackageManager", "Request", "detect", "find_own"]


class PackageManager(Protocol):
    """
    What the rest needs of a package manager.

    ``refresh``, ``install``, ``hold`` and ``repair`` change the system; nothing else does.
    """

    name: str
    # Where a change waits for the boot that activates it; None: it is there at once.
    snapshots: Snapshots | None
    # Whether its database tells of a change before files change, or when all of them have.
    write_ahead: bool

    def owners(self, paths: Iterable[str]) -> set[str]:
        """Return the packages that the files belong to; a file of no package is left out."""
        ...

    def unowned(self, paths: Iterable[str]) -> set[str]:
        """Return those of the files that belong to no package."""
        ...

    def locked_siblings(self, packages: Iterable[str]) -> set[str]:
        """Return *packages* and all that are bound to their exact version, either way."""
        ...

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        """Return the installed version of each of the packages that is installed."""
        ...

    def running(self, packages: Iterable[str]) -> dict[str, str]:
        """Return the same of the system that runs, where another one waits for a boot."""
        ...

    def simulate(self, request: Request) -> dict[str, Change]:
        """Return what the request would change; raise CommandError where it cannot succeed."""
        ...

    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]:
        """Return the versions on offer, newest first, spelled as by :meth:`installed`."""
        ...

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        """
        Return the exact version that each of the packages gets; None: the newest.

        *version* may leave out the packaging's own part. Raise InputError, with what is
        on offer, where a package has no such version.
        """
        ...

    def refresh(self) -> None:
        """Fetch the index of the repositories again."""
        ...

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        """
        Fetch what installing *targets* needs, dependencies too, and have it last in *directory*.

        The manager checks signatures by its own policy. Raise CommandError where it
        cannot succeed, and SafeUpdateError where it would remove another package.
        """
        ...

    def verify(self, files: Sequence[File]) -> None:
        """Raise VerificationError where a file is not the package that was recorded."""
        ...

    def install(self, files: Sequence[File]) -> None:
        """
        Install exactly these, up or down; without network and questions; idempotent.

        Changed configuration files and holds stay. What was interrupted may be done again.
        """
        ...

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        """
        Keep package files of the *installed* versions, so that :meth:`install` brings them back.

        Raise SafeUpdateError where there is no way to have one.
        """
        ...

    def held(self, packages: Iterable[str]) -> set[str]:
        """Return those of the packages whose version the administrator has locked."""
        ...

    def hold(self, packages: Iterable[str], held: bool) -> None:
        """Lock the version of the packages, or release it; idempotent."""
        ...

    def signature_policy(self) -> str | None:
        """Say what this host installs without a signature; None: nothing."""
        ...

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        """Return the bytes that downloading and installing targets, or files, needs at most."""
        ...

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        """Return the packages that an interrupted transaction left half done."""
        ...

    def busy(self) -> bool:
        """Tell whether a process of the package manager is at work, ours or another's."""
        ...

    def repair(self, packages: Iterable[str]) -> None:
        """Finish what an interrupted transaction began with *packages*; idempotent."""
        ...

    def stamp(self) -> tuple[int, ...]:
        """Return something that changes whenever the package database does."""
        ...

    def without(self, packages: Sequence[str], directory: str) -> Mapping[str, str] | None:
        """
        Return the environment in which an upgrade of everything leaves *packages* alone.

        None where this package manager has no way that vanishes with the process.
        """
        ...


class Own(NamedTuple):
    """The minion's own packages, and whether they were found or configured."""

    names: frozenset[str]
    configured: bool


def detect(run: Run = run_command) -> PackageManager | None:
    """Return the package manager of this host, or None where it has none that we know."""
    if shutil.which("dpkg-query") and shutil.which("apt-get"):
        from .apt import Apt

        return Apt(run)
    if shutil.which("rpm"):
        for front_end in ("dnf", "yum"):
            if shutil.which(front_end):
                from .dnf import Dnf

                return Dnf(run, front_end)
        if shutil.which("zypper"):
            return _zypper(run)
    return None


def _zypper(run: Run) -> Zypper:
    from ..transactional.detect import transactional

    if transactional(run):
        from .transactional import TransactionalUpdate

        return TransactionalUpdate(run)
    from .zypper import Zypper

    return Zypper(run)


@dataclass
class _Cache:
    stamp: tuple[int, ...] = ()
    key: tuple[str, ...] = ()
    own: Own | None = None


@dataclass
class OwnFinder:
    """Find the own packages; ask again only after the package database has changed."""

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
    """Return whoever owns Salt's code, interpreter and unit, with version-locked siblings."""
    owners = manager.owners(paths)
    if not owners:
        return Own(frozenset(), False)
    return Own(frozenset(manager.locked_siblings(owners)), False)


class NotManagedError(SafeUpdateError):
    """The running Salt belongs to no package."""
