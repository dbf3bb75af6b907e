"""What the rest needs of a package manager, and of the snapshots that it may install into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from .request import Change, File, Request


class Snapshots(Protocol):
    """
    What an update needs of a transactional system, whose next boot starts another snapshot.

    A snapshot is named by ``number`` and ``ident``: numbers are used again, both together not.
    """

    # The file system that snapshots need space on.
    place: str

    @property
    def pending(self) -> bool:
        """Whether the next boot starts another snapshot than the running one."""
        ...

    def running(self) -> dict[str, int]:
        """Return the running snapshot. Raise SafeUpdateError if the root is none."""
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

        *extensions* is the directory of what is staged to be put beside Salt, *program* the one
        that the unit starts; *strict*: without them nothing is kept. Raise CommandError, with
        the default as before.
        """
        ...

    def go_back(self, snapshot: Mapping[str, int]) -> None:
        """Make the snapshot the default; idempotent. Raise SafeUpdateError if it is gone."""
        ...

    def reboot(self) -> str:
        """Reboot by the configured method; return what will happen."""
        ...


class PackageManager(Protocol):
    """
    What the rest needs of a package manager.

    ``refresh``, ``install``, ``hold`` and ``repair`` change the system; nothing else does.
    """

    name: str
    # Whether its database tells of a change before files change, or when all of them have.
    write_ahead: bool

    @property
    def snapshots(self) -> Snapshots | None:
        """What it installs into, if a change waits for the boot that activates it."""
        ...

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
