"""
The seams to package managers: what one installs, offers and locks, and how it does so.

A user asks for the part that it needs. An update needs an :class:`Installer` alone, so that this
extension is updated the same way; the rest is there only if the host has a package manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from .request import Change, File, Request


class Snapshots(Protocol):
    """
    The part of a transactional system, whose next boot starts another snapshot, that an update
    needs.

    ``number`` and ``ident`` together name a snapshot. Its number alone is used again later.
    """

    # The file system that snapshots need space on.
    place: str

    @property
    def pending(self) -> bool:
        """Whether the next boot starts another snapshot than the running one."""
        ...

    def running(self) -> dict[str, int]:
        """Return the running snapshot. Raise SafeUpdateError if the root is not a snapshot."""
        ...

    def default(self) -> dict[str, int]:
        """Return the snapshot that the next boot starts."""
        ...

    def exists(self, snapshot: Mapping[str, int]) -> bool: ...

    def install(
        self, paths: Sequence[str], *, extensions: str = "", program: str = "", strict: bool = True
    ) -> None:
        """
        Install package files into a new snapshot, which becomes the default.

        *extensions* is the directory of the staged extensions, *program* the program that the unit
        starts. With *strict*, the snapshot is dropped if an extension cannot be loaded. Raise
        CommandError; the default is then as before.
        """
        ...

    def go_back(self, snapshot: Mapping[str, int]) -> None:
        """Make the snapshot the default; idempotent. Raise SafeUpdateError if it is gone."""
        ...

    def reboot(self) -> str:
        """Reboot by the configured method; return what will happen."""
        ...


class Installer(Protocol):
    """
    What brings packages to a version and back: a package manager, or pip for this extension.

    Only ``install`` changes the system.
    """

    name: str

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        """Return the versions of those packages that are installed."""
        ...

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        """
        Return the exact version that each package is to get.

        *version* may leave out the packaging's own part; None means the newest. Raise
        InputError, which says what is on offer, if a package has no such version.
        """
        ...

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        """
        Fetch what installing *targets* needs, also dependencies, into *directory*.

        The manager checks signatures by its own policy. The files are on the disk when this
        returns. Raise CommandError if it cannot succeed, and SafeUpdateError if the installation
        would remove another package.
        """
        ...

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        """Return how many bytes it takes at most to download and install targets, or files."""
        ...

    def verify(self, files: Sequence[File]) -> None:
        """Raise VerificationError if a file is not the package that was recorded."""
        ...

    def install(self, files: Sequence[File]) -> None:
        """
        Install exactly these files, newer or older, without network and questions. Idempotent.

        Changed configuration files and version locks stay. Call it again after an interruption.
        """
        ...

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        """
        Copy package files of the *installed* versions, so that :meth:`install` can restore them.

        Raise SafeUpdateError if there is no way to get one.
        """
        ...

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        """
        Return how many bytes :meth:`secure` writes at most.

        Packages that are not installed count nothing, nor does space that a snapshot keeps anyway.
        """
        ...


class Slots(Installer, Protocol):
    """Installs versions side by side, and keeps the earlier ones."""

    def tidy(self, left: Sequence[File] = ()) -> None:
        """
        Remove what nobody needs any more. Idempotent. Raises SafeUpdateError.

        *left* is what a committed update has left, and leads back to; empty if it was a way back.
        """
        ...


class Offers(Protocol):
    """
    Asks the repositories, the package database and package files.

    Only ``refresh`` changes something: the index of the repositories.
    """

    def simulate(self, request: Request) -> dict[str, Change]:
        """Return what the request would change; raise CommandError if it cannot succeed."""
        ...

    def refresh(self) -> None:
        """Fetch the index of the repositories again."""
        ...

    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]:
        """Return the versions of each package that are on offer, the newest first."""
        ...

    def take(self, paths: Iterable[str], directory: str) -> list[File]:
        """
        Copy package files into *directory*.

        Raise SafeUpdateError if what is installed and the files are not all that they need.
        """
        ...

    def secure_ahead(self, packages: Sequence[str], directory: str) -> None:
        """
        Fetch what a later :meth:`Installer.secure` in this process might ask a repository for.

        It finds the copies in *directory*. Raise SafeUpdateError if there is no way to get one.
        """
        ...

    def signature_policy(self) -> str | None:
        """Say what this host installs without checking signatures; None: nothing."""
        ...

    def owners(self, paths: Iterable[str]) -> set[str]:
        """Return the packages that the files belong to."""
        ...

    def unowned(self, paths: Iterable[str]) -> set[str]:
        """Return the files that belong to no package."""
        ...

    def siblings(self, packages: Iterable[str]) -> set[str]:
        """Return *packages* and all that need them in their exact version, or that they need so."""
        ...

    def stamp(self) -> tuple[int, ...]:
        """Return something that changes whenever the package database does."""
        ...


class Transactions(Protocol):
    """
    How changes are made: what they leave half done, and when they take effect.

    Only ``repair`` changes the system.
    """

    # Whether its database records a change before the first file changes, or after the last.
    write_ahead: bool
    # Files that the scripts of Salt's packages trust, in a directory that others can write to.
    marks: Sequence[str]

    @property
    def snapshots(self) -> Snapshots | None:
        """The snapshots that it installs into; None if a change takes effect without a boot."""
        ...

    def running(self, packages: Iterable[str]) -> dict[str, str]:
        """Return what is installed in the running system, if another one waits for a boot."""
        ...

    def busy(self) -> bool:
        """Tell whether any process of the package manager is at work."""
        ...

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        """Return the packages that an interrupted transaction has left unfinished."""
        ...

    def repair(self, packages: Iterable[str]) -> None:
        """Finish what an interrupted transaction began with *packages*. Idempotent."""
        ...


class VersionLocks(Protocol):
    """Keeps packages at their version. Only ``lock_versions`` changes the system."""

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        """Return the packages whose version the administrator has locked."""
        ...

    def lock_versions(self, packages: Iterable[str], locked: bool) -> None:
        """Lock the versions of the packages, or unlock them. Idempotent."""
        ...

    def without(self, packages: Sequence[str], directory: str) -> Mapping[str, str] | None:
        """
        Return the environment in which an upgrade of everything leaves *packages* alone.

        None if this package manager has no way that ends with the process.
        """
        ...


class PackageManager(Installer, Offers, Transactions, VersionLocks, Protocol):
    """The package manager of a host."""
