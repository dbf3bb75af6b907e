"""
The packages that a deferred change needs are taken at the position of its state.

The package manager resolves and downloads it there, by its settings, repositories and locks of that
moment. The end of the run installs these files and asks no repository, whatever other states have
changed meanwhile.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import SafeUpdateError
from ..core.frozen import frozen
from ..core.host import processes, room
from ..core.packages.request import REMOVALS, Action, File, Request
from ..this_host import Host
from .chunks import named_packages

if TYPE_CHECKING:
    from ..core.packages.manager import PackageManager

log = logging.getLogger(__name__)

_NO_ROOM = (
    "There is no room to download {names} for the end of the run, and to keep what is installed "
    "for the way back: {short}, and run it again. Nothing was changed."
)
# State functions of which only the packages and their versions count at the end of the run.
_STATES = ("installed", "latest", "uptodate")
# Directories of these files are named after it and the process that needs them.
_PLACE = "deferred "
_INSTALLING = (Action.INSTALL, Action.UPGRADE)


class NoRoomError(SafeUpdateError):
    """The disk is too full for the change."""


@frozen
class Secured:
    """
    The package files of one deferred change.

    *others* are the packages that only come along, with the versions of before. If a later state
    changes them, they stay as it leaves them.
    """

    manager: PackageManager
    place: str
    files: tuple[File, ...]
    others: Mapping[str, str]

    @property
    def versions(self) -> dict[str, str]:
        return {file.package: file.version for file in self.files}

    def _due(self) -> list[File]:
        now = self.manager.installed(self.others)
        changed = {name for name, version in now.items() if version != self.others[name]}
        return [file for file in self.files if file.package not in changed]

    def is_meant_by(self, request: Request | None) -> bool:
        """Tell whether a call at the end of the run is the one that these files are for."""
        if request is None or request.action not in _INSTALLING:
            return False
        return bool(
            request.action is Action.UPGRADE
            or request.files
            or request.names.intersection(self.versions)
        )

    def install(self) -> dict[str, dict[str, str]]:
        """Install them; return what has changed, as Salt's modules do. Raises SafeUpdateError."""
        before = self.manager.installed(self.versions)
        self.manager.install(self._due())
        after = self.manager.installed(self.versions)
        return {
            name: {"old": before.get(name, ""), "new": version}
            for name, version in after.items()
            if version != before.get(name)
        }

    def drop(self) -> None:
        """Remove the files. Idempotent."""
        shutil.rmtree(self.place, ignore_errors=True)

    def state(self, low: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state that asks for exactly these versions, without a question to anybody."""
        fun = low.get("sfun") if low["fun"] == "mod_watch" else low["fun"]
        if low["state"] != "pkg" or fun not in _STATES:
            return dict(low)
        versions = {file.package: file.version for file in self._due()}
        named = named_packages(low) & versions.keys()
        exact = {name: versions[name] for name in sorted(named or versions)}
        left_out = ("version", "sources", "fromrepo")
        return {
            **{key: value for key, value in low.items() if key not in left_out},
            "fun": "installed",
            "pkgs": [{name: version} for name, version in exact.items()],
            "refresh": False,
            "ignore_epoch": True,
            "skip_suggestions": True,
        }


class Securing:
    """Takes what deferred changes need, each into a directory of its own."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._root = host.settings.state_dir

    def secure(
        self, request: Request | None, names: Collection[str], *, exact: bool
    ) -> Secured | None:
        """
        Return what the change needs; None if it needs nothing.

        Raise NoRoomError if the disk is too full, or another SafeUpdateError if it cannot be taken.
        """
        if request is None or request.action in REMOVALS:
            return None
        manager = self._host.known_manager()
        if self._host.activation.by_boot or not exact:
            raise SafeUpdateError("only the call itself says what it installs")
        if room.is_read_only(room.PROGRAMS):
            # A hook of the package manager may change that, and only its own front end runs it.
            raise SafeUpdateError(
                f"{room.PROGRAMS} is read-only, and only the call may change that"
            )
        targets = {} if request.files else self._targets(manager, request, names)
        self._refuse_without_room(manager, request.files, targets)
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        self.tidy()
        who = processes.identity(os.getpid())
        place = tempfile.mkdtemp(prefix=f"{_PLACE}{who} ", dir=self._root)
        try:
            files = list(manager.take(request.files, place))
            if targets:
                files += manager.download(targets, place)
            if not files:
                raise SafeUpdateError("it is what is installed now")
            manager.verify(files)
            self._secure_way_back(manager, place)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        along = {file.package for file in files}.difference(names)
        others = dict.fromkeys(along, "") | manager.installed(along)
        return Secured(manager=manager, place=place, files=tuple(files), others=others)

    def _secure_way_back(self, manager: PackageManager, place: str) -> None:
        try:
            manager.secure_ahead(sorted(manager.installed(self._host.own().names)), place)
        except SafeUpdateError as err:
            # The transaction meets the same, and warns of it.
            log.info("safeupdate: %s", err)

    def _targets(
        self, manager: PackageManager, request: Request, names: Collection[str]
    ) -> dict[str, str]:
        targets = tuple(each for each in request.targets if each[0] in names)
        found = manager.simulate(replace(request, targets=targets))
        removed = sorted(name for name, change in found.items() if not change.new)
        if removed:
            raise SafeUpdateError(f"it would remove {', '.join(removed)}")
        return {name: change.new for name, change in found.items()}

    def _refuse_without_room(
        self, manager: PackageManager, paths: Iterable[str], targets: Mapping[str, str]
    ) -> None:
        own = sorted(self._host.own().names)
        wanted = manager.needs(targets) + manager.needs_to_secure(own)
        # A copy of each file, and at least as much when it is unpacked.
        wanted += sum(2 * os.path.getsize(path) for path in paths if os.path.exists(path))
        short = room.shortage(self._host.settings.state_dir, wanted)
        if short:
            raise NoRoomError(_NO_ROOM.format(names=", ".join(sorted(targets) or own), short=short))

    def tidy(self) -> None:
        """Remove what processes have left that are gone."""
        for name in os.listdir(self._root) if os.path.isdir(self._root) else ():
            if name.startswith(_PLACE) and not processes.alive(name.split(" ")[1]):
                shutil.rmtree(os.path.join(self._root, name), ignore_errors=True)
