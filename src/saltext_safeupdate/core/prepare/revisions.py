"""
The way back: copies of the packages that an update replaces, and of what it may spoil.

Each update has a directory below ``<state_dir>/revisions``, made before anything changes.
That of the newest committed update stays until the next one is committed: it is the previous
revision, for a rollback by request.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import SafeUpdateError
from ..generations.activation import Activation
from ..host import backup, room
from ..packages.request import File
from ..record.parts import FileRow, WayBack
from ..record.store import Store
from ..record.typed import Fact
from ..record.update import Update


def files(rows: Iterable[Sequence[str]]) -> list[File]:
    """Return the files as a record carries them."""
    return [File(*row) for row in rows]


def rows(found: Iterable[File]) -> tuple[FileRow, ...]:
    """Return the files in the form of a record."""
    return tuple((file.package, file.version, file.path, file.sha256) for file in found)


@dataclass(frozen=True, kw_only=True)
class Previous:
    """
    The previous revision: the update that replaced it, its versions, and its package files.

    On a transactional system ``snapshot`` has them, and ``active`` is the snapshot that ran
    when that update was committed.
    """

    update: str
    versions: dict[str, str]
    files: tuple[FileRow, ...] = ()
    snapshot: dict[str, int] | None = None
    active: dict[str, int] = field(default_factory=dict)


PREVIOUS: Fact[Previous] = Fact("previous", Previous)


class Revisions:
    """The secured packages, by update; *activation* says what leads back to them."""

    def __init__(
        self,
        state_dir: str,
        store: Store,
        activation: Activation,
        *,
        statvfs: room.Statvfs = os.statvfs,
    ) -> None:
        self._statvfs = statvfs
        self._root = os.path.join(state_dir, "revisions")
        self._store = store
        self._activation = activation

    def secure(
        self, update_id: str, installed: Sequence[str], paths: Sequence[str] = ()
    ) -> WayBack:
        """
        Copy the installed packages and *paths*; return what leads back. Idempotent.

        Without room for them nothing is copied, and what is returned says so.
        """
        installer = self._activation.installer
        if installer is None or not installed:
            return WayBack(paths=tuple(paths), missing="no package that is known holds the minion")
        try:
            wanted = installer.needs_to_secure(installed) + backup.size(paths)
            there = os.path.join(self._root, update_id)
            short = room.shortage(self._root, wanted, having=there, statvfs=self._statvfs)
            if short:
                raise SafeUpdateError(f"there is no room for their copies: {short}")
            directory = self.directory(update_id)
            secured = self._activation.secure(installed, directory)
            copies = backup.save(paths, os.path.join(directory, "backup")).directory
        except (SafeUpdateError, OSError) as err:
            missing = f"the installed packages could not be secured: {err}"
            return WayBack(paths=tuple(paths), missing=missing)
        return WayBack(
            files=rows(secured.files),
            snapshot=secured.snapshot,
            paths=tuple(paths),
            backup=copies,
        )

    def renew_backup(self, way_back: WayBack) -> None:
        """Copy its paths again, now that nothing else runs. Raises SafeUpdateError."""
        if way_back.backup:
            backup.save(way_back.paths, way_back.backup, anew=True)

    def keep(self, update: Update) -> None:
        """Make what the update replaced the previous revision. Idempotent."""
        previous = Previous(update=update.id, versions=update.versions_from)
        if update.way_back.files:
            previous = replace(previous, files=update.way_back.files)
        elif update.way_back.snapshot and self._activation.by_boot:
            known = self._store.fact(PREVIOUS)
            if known is not None and known.update == update.id:
                # Another snapshot may run by now.
                return
            active = self._activation.snapshots.running()
            previous = replace(previous, snapshot=update.way_back.snapshot, active=active)
        else:
            return
        self._store.set_fact(PREVIOUS, previous)

    def previous(self) -> Previous | None:
        """Return the previous revision, if its packages are still there."""
        found = self._store.fact(PREVIOUS)
        if found is None or not all(os.path.exists(file.path) for file in files(found.files)):
            return None
        if found.snapshot is not None and not self._activation.has(found.snapshot):
            return None
        return found

    def prune(self, but: Collection[str] = ()) -> None:
        """Remove the copies of every update but these and the previous revision's. Idempotent."""
        previous = self._store.fact(PREVIOUS)
        needed = {*but, *((previous.update,) if previous is not None else ())}
        for name in os.listdir(self._root) if os.path.isdir(self._root) else ():
            if name not in needed:
                shutil.rmtree(os.path.join(self._root, name))

    def directory(self, update_id: str) -> str:
        """Return the directory of that update; it is made if it is missing."""
        directory = os.path.join(self._root, update_id)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(self._root, 0o700)
        return directory
