"""
The way back: copies of the packages that an update replaces, and of what it may spoil.

Each update has a directory below ``<state_dir>/revisions``, made before anything changes.
That of the newest committed one stays until the next is committed, for a rollback by request.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..errors import SafeUpdateError
from ..host import backup
from ..packages.manager import PackageManager
from ..packages.request import File
from ..record.store import Store
from ..record.update import Update

_PREVIOUS = "previous"


def files(rows: Iterable[Sequence[str]]) -> list[File]:
    """Return the files as a record carries them."""
    return [File(*row) for row in rows]


class Revisions:
    """The secured packages, by update."""

    def __init__(self, state_dir: str, store: Store, packages: PackageManager | None) -> None:
        self._root = os.path.join(state_dir, "revisions")
        self._store = store
        self._packages = packages

    def secure(
        self, update_id: str, installed: Sequence[str], paths: Sequence[str] = ()
    ) -> dict[str, Any]:
        """
        Copy the installed packages and *paths*; return what the record is to carry. Idempotent.

        ``old_files`` are the packages, or ``snapshot`` names the one that has them; ``backup``
        is the directory of the other copies. Where there are none, ``no_way_back`` says why.
        """
        if self._packages is None or not installed:
            return {"no_way_back": "no package that is known holds the minion"}
        try:
            directory = self.directory(update_id)
            secured = self._way_back(self._packages, installed, directory)
            copies = backup.save(paths, os.path.join(directory, "backup")).directory
        except (SafeUpdateError, OSError) as err:
            return {"no_way_back": f"the installed packages could not be secured: {err}"}
        return {**secured, "backup": copies}

    @staticmethod
    def _way_back(
        packages: PackageManager, installed: Sequence[str], directory: str
    ) -> dict[str, Any]:
        if packages.snapshots is not None:
            return {"snapshot": packages.snapshots.running()}
        return {"old_files": [list(file) for file in packages.secure(installed, directory)]}

    def keep(self, update: Update) -> None:
        """Make what the update replaced the revision to go back to by request. Idempotent."""
        snapshots = self._packages.snapshots if self._packages is not None else None
        row: dict[str, Any] = {"update": update.id, "versions": update.versions_from}
        if update.extra.get("old_files"):
            row["files"] = update.extra["old_files"]
        elif update.extra.get("snapshot") and snapshots is not None:
            if (self._store.fact(_PREVIOUS) or {}).get("update") == update.id:
                # Another snapshot may run by now.
                return
            row |= {"files": [], "snapshot": update.extra["snapshot"]}
            row["active"] = snapshots.running()
        else:
            return
        self._store.set_fact(_PREVIOUS, row)

    def previous(self) -> dict[str, Any] | None:
        """Return that revision, where its packages are still there."""
        found: dict[str, Any] | None = self._store.fact(_PREVIOUS)
        if not found or not all(os.path.exists(file.path) for file in files(found["files"])):
            return None
        snapshots = self._packages.snapshots if self._packages is not None else None
        if "snapshot" in found and not (snapshots and snapshots.exists(found["snapshot"])):
            return None
        return found

    def prune(self, but: Collection[str] = ()) -> None:
        """Remove the copies of every update but these and the previous revision's. Idempotent."""
        previous = self._store.fact(_PREVIOUS) or {}
        kept = {previous.get("update"), *but}
        for name in os.listdir(self._root) if os.path.isdir(self._root) else ():
            if name not in kept:
                shutil.rmtree(os.path.join(self._root, name))

    def directory(self, update_id: str) -> str:
        """Return the directory of that update; it is made where it is missing."""
        directory = os.path.join(self._root, update_id)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(self._root, 0o700)
        return directory
