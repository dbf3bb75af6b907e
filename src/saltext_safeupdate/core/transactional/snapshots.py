"""The snapshots of an update of the minion: one to go to, and one to go back to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import CommandError, SafeUpdateError
from ..extensions import supervisor_copy
from ..host.command import Run
from . import handover, reboot, roots
from .cli import Options
from .outcome import Limits
from .roots import Roots, Subvolume
from .tool import Tool

# Seconds that the installation into a new snapshot may take, and to wait for a busy tool.
_INSTALL_LIMITS = Limits(timeout=3600.0, lock_timeout=900.0)
_LIMITS = Limits(timeout=600.0, lock_timeout=900.0)
_PLACE = "/.snapshots"


class Snapshots:
    """The snapshots of the root file system. Every change of them is verified."""

    def __init__(self, run: Run, tool: Tool | None = None, place: str = _PLACE) -> None:
        self._run = run
        self._tool = tool or Tool(run=run)
        self.place = place

    def roots(self) -> Roots:
        """Return the running and the default snapshot."""
        return self._tool.roots()

    @property
    def pending(self) -> bool:
        """Tell whether the next boot starts another snapshot than the running one."""
        return self.roots().pending

    @property
    def next_root(self) -> str | None:
        """Return the path of the root of the next boot; None if it is the running root."""
        roots = self.roots()
        return self._path(roots.default.number) if roots.pending else None

    def running(self) -> dict[str, int]:
        """Return the running snapshot as plain data, which names it forever."""
        found = self.roots().running
        if found is None:
            raise SafeUpdateError("The root file system is no snapshot; nothing was changed.")
        return _plain(found)

    def default(self) -> dict[str, int]:
        """Return the snapshot of the next boot as plain data, which names it forever."""
        return _plain(self.roots().default)

    def busy(self) -> bool:
        """Tell whether a transaction is under way."""
        return self._tool.lock_holder() is not None

    def exists(self, snapshot: Mapping[str, int]) -> bool:
        """Tell whether the snapshot still exists: its number may belong to a later one."""
        known = Subvolume(snapshot["number"], snapshot["ident"])
        return roots.exists(self._run, known, Path(self.place))

    def install(
        self, paths: Sequence[str], *, extensions: str = "", program: str = "", strict: bool = True
    ) -> None:
        """
        Install the package files into a new snapshot of the running one, which becomes the default.

        *extensions* is the directory with the staged extensions. They are installed for the
        interpreter that *program* names in the new snapshot. If that fails and *strict* is set, the
        snapshot is discarded. Raises CommandError, with the default snapshot as before.
        """
        with handover.opened(self._tool.host.base) as directory:
            # The state directory is no part of a snapshot, this place is in every one.
            names = [_handed_over(path, directory.path) for path in paths]
            words = [
                supervisor_copy.interpreter(self._run, {}),
                "-I",
                "-B",
                self._installer(directory.path),
            ]
            if extensions and os.path.isdir(extensions):
                beside = str(directory.path / "extensions")
                shutil.copytree(extensions, beside)
                words += ["--program", program, "--extensions", beside]
                words += ["--strict"] if strict else []
            options = Options(drop_if_no_change=False)
            self._tool.run_command([*words, "--", *names], options, _INSTALL_LIMITS).check()

    def go_back(self, snapshot: Mapping[str, int]) -> None:
        """Make the snapshot the default. Idempotent. Raises SafeUpdateError if it is gone."""
        if self.default() == dict(snapshot):
            return
        number = snapshot["number"]
        if not self.exists(snapshot):
            raise CommandError(
                ("snapper",), f"snapshot {number}, which is to be the default again, is gone"
            )
        self._tool.rollback(number, _LIMITS).check()

    def reboot(self) -> str:
        """Reboot by the method that is configured for the tool; return what will happen."""
        return reboot.reboot(self._tool, limits=_LIMITS)

    def _path(self, number: int) -> str:
        return os.path.join(self.place, str(number), "snapshot")

    @staticmethod
    def _installer(directory: Path) -> str:
        launcher = supervisor_copy.make(str(directory))
        return os.path.join(os.path.dirname(launcher), "transactional", "programs", "installer.py")


def _plain(found: Subvolume) -> dict[str, int]:
    return {"number": found.number, "ident": found.ident}


def _handed_over(path: str, directory: Path) -> str:
    target = str(directory / os.path.basename(path))
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)
    return target
