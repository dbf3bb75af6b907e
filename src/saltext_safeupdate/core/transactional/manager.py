"""The package manager of a transactional system: zypper fetches, a new snapshot gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..host.command import Run
from ..packages.request import File
from ..packages.zypper import Zypper
from .snapshots import Snapshots


class TransactionalUpdate(Zypper):
    """
    openSUSE MicroOS, SL Micro and their relatives, whose root is a read-only snapshot.

    Installed is what the next boot starts. So a change is complete as soon as it is made, and
    never half done; the running system stays as it is.
    """

    name = "transactional-update"
    write_ahead = True
    # Without --dry-run, zypper does nothing on a read-only root.
    download_only = ("--dry-run", "--download-only")

    def __init__(self, run: Run, snapshots: Snapshots | None = None) -> None:
        super().__init__(run)
        self.snapshots: Snapshots = snapshots or Snapshots(run)

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        return self._versions(packages, self.snapshots.next_root)

    def install(self, files: Sequence[File]) -> None:
        self.verify(files)
        self.snapshots.install([file.path for file in files])

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        """Return nothing: a snapshot is kept as a whole or not at all."""
        return []

    def busy(self) -> bool:
        return super().busy() or self.snapshots.busy()

    def repair(self, packages: Iterable[str]) -> None:
        return
