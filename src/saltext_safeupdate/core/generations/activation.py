"""
How an installed version becomes the running one: by a restart of the service, or by a boot.

Everything that depends on this is here. Callers ask the activation of their host (:func:`of`), and
not whether there are snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import SafeUpdateError

if TYPE_CHECKING:
    from ..packages.manager import Installer, Snapshots, Transactions
    from ..packages.request import File


@dataclass(frozen=True, kw_only=True)
class Secured:
    """The way back: copies of the package files, or the snapshot that contains them."""

    files: list[File] = field(default_factory=list)
    snapshot: dict[str, int] | None = None


@dataclass(frozen=True)
class ByRestart:
    """An installed version is in place at once, and runs after a restart of the service."""

    installer: Installer | None
    by_boot = False
    # The next boot starts another system than the running one.
    pending = False
    # A sentence that says so; empty if it does not.
    waiting = ""

    @property
    def snapshots(self) -> Snapshots:
        """Fail: the host has changed since the record was made. Raise SafeUpdateError."""
        raise SafeUpdateError("This is not a transactional system any more.")

    def written(self, roots: Sequence[str]) -> Sequence[str]:
        """Return directories on the file systems to which the *roots* of code are installed."""
        return roots

    def install(
        self, files: Sequence[File], *, extensions: str = "", program: str = "", strict: bool = True
    ) -> None:
        """
        Install package files. Extensions are put in place before the restart.

        Raise CommandError, and SafeUpdateError if there is no installer.
        """
        self._known().install(files)

    def secure(self, installed: Sequence[str], directory: str) -> Secured:
        """Return the way back to what is installed now. Raise SafeUpdateError."""
        return Secured(files=self._known().secure(installed, directory))

    def has(self, snapshot: Mapping[str, int]) -> bool:
        """Tell whether the host can go back to a snapshot."""
        return False

    def _known(self) -> Installer:
        if self.installer is None:
            raise SafeUpdateError("This host has no supported package manager.")
        return self.installer


@dataclass(frozen=True)
class ByBoot:
    """An installed version is in a new snapshot, which the next boot of the host starts."""

    installer: Installer | None
    snapshots: Snapshots
    by_boot = True

    @property
    def pending(self) -> bool:
        return self.snapshots.pending

    @property
    def waiting(self) -> str:
        if not self.snapshots.pending:
            return ""
        return f"Snapshot {self.snapshots.default()['number']} waits for a reboot."

    def written(self, roots: Sequence[str]) -> Sequence[str]:
        return (self.snapshots.place,)

    def install(
        self, files: Sequence[File], *, extensions: str = "", program: str = "", strict: bool = True
    ) -> None:
        paths = [file.path for file in files]
        self.snapshots.install(paths, extensions=extensions, program=program, strict=strict)

    def secure(self, installed: Sequence[str], directory: str) -> Secured:
        return Secured(snapshot=self.snapshots.running())

    def has(self, snapshot: Mapping[str, int]) -> bool:
        return self.snapshots.exists(snapshot)


Activation = ByRestart | ByBoot


def of(manager: Transactions | None, installer: Installer | None) -> Activation:
    """Return how a version that *installer* installs is activated on a host with *manager*."""
    snapshots = manager.snapshots if manager is not None else None
    return ByRestart(installer) if snapshots is None else ByBoot(installer, snapshots)
