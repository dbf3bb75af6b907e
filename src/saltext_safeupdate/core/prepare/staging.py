"""Packages that are downloaded and verified ahead, so that an update needs no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import SafeUpdateError, VerificationError
from ..host import room
from ..packages.manager import Installer
from ..packages.request import File
from ..record.parts import FileRow
from ..record.store import Store
from ..record.typed import Fact
from .own_extension import OwnExtension
from .revisions import files, rows


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The versions that are staged, and their files."""

    targets: dict[str, str]
    files: tuple[FileRow, ...] = ()


PACKAGES: Fact[Staged] = Fact("staged", Staged)
EXTENSION: Fact[Staged] = Fact("staged-extension", Staged)
SLOT: Fact[Staged] = Fact("staged-slot", Staged)
# By the name of the installer; all package managers have one of them.
_FACTS = {OwnExtension.name: EXTENSION, "slots": SLOT}


class Staging:
    """
    One set of packages at a time, in ``<state_dir>/staged``; this extension has its own.

    A slot has its own place, and is only noted here.
    """

    def __init__(
        self,
        state_dir: str,
        store: Store,
        installer: Installer,
        *,
        statvfs: room.Statvfs = os.statvfs,
    ) -> None:
        self._fact = _FACTS.get(installer.name, PACKAGES)
        self._directory = os.path.join(state_dir, self._fact.name)
        self._store = store
        self._installer = installer
        self._state_dir = state_dir
        self._statvfs = statvfs

    def stage(self, targets: Mapping[str, str]) -> list[File]:
        """
        Return the verified files; what is there already is not fetched again. Idempotent.

        Raises CommandError, VerificationError if a file was altered since it was staged, or
        SafeUpdateError if there is no room: then what is there stays, and nothing is fetched.
        """
        found = self._store.fact(self._fact)
        if found and found.targets == dict(targets):
            staged = files(found.files)
            self._installer.verify(staged)
            return staged
        self._refuse_without_room(targets)
        self.drop()
        os.makedirs(self._directory, mode=0o700)
        fresh = self._installer.download(targets, self._directory)
        self._installer.verify(fresh)
        self._store.set_fact(self._fact, Staged(targets=dict(targets), files=rows(fresh)))
        return fresh

    def keep(self, targets: Mapping[str, str], downloaded: Iterable[File]) -> None:
        """Stage what lies elsewhere in the state directory, by moving it."""
        self.drop()
        os.makedirs(self._directory, mode=0o700)
        moved = []
        for file in downloaded:
            path = os.path.join(self._directory, os.path.basename(file.path))
            os.replace(file.path, path)
            moved.append(file._replace(path=path))
        self._store.set_fact(self._fact, Staged(targets=dict(targets), files=rows(moved)))

    def drop_altered(self, targets: Mapping[str, str]) -> str:
        """Remove what is staged for them if it was altered; return how, or nothing. Idempotent."""
        found = self._store.fact(self._fact)
        if not found or found.targets != dict(targets):
            return ""
        try:
            self._installer.verify(files(found.files))
        except VerificationError as err:
            self.drop()
            return str(err)
        return ""

    def _refuse_without_room(self, targets: Mapping[str, str]) -> None:
        """Raise SafeUpdateError if the download, and what follows it, would fill the disk."""
        names = sorted(targets)
        # The way back is copied right after the download, to the same file system.
        wanted = self._installer.needs(targets) + self._installer.needs_to_secure(names)
        # Files that are already staged make room for it.
        short = room.shortage(
            self._state_dir, wanted, having=self._directory, statvfs=self._statvfs
        )
        if short:
            raise SafeUpdateError(
                f"There is no room to download {', '.join(names)}, and to keep what is installed "
                f"for the way back: {short}, and ask again. Nothing was changed."
            )

    def staged(self) -> dict[str, str]:
        """Return the versions that are staged; empty if none are."""
        found = self._store.fact(self._fact)
        return found.targets if found else {}

    def staged_files(self) -> list[File]:
        """Return the files that are staged; empty if none are."""
        found = self._store.fact(self._fact)
        return files(found.files) if found else []

    def drop(self) -> None:
        """Remove what is staged. Idempotent."""
        self._store.drop_fact(self._fact)
        if os.path.isdir(self._directory):
            shutil.rmtree(self._directory)
