"""Our settings in the configuration files of a daemon, and their removal."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import salt.utils.yaml

from ...core.errors import SafeUpdateError
from ...core.host.files import remove, write_atomic
from . import config_files, executors
from .config_files import ConfigFiles
from .merging import (
    HEAD,
    REPEATED,
    SETTINGS,
    declared,
    engine_name,
    entries,
    managed,
    names_of,
    owner_of,
    text_of,
)
from .stand_ins import OPTIONS, StandIns

# Our entries in the lists of a minion.
_OURS = {"engines": "safeupdate", "module_executors": executors.OURS}


class Ours:
    """
    Our settings in the configuration files of a daemon, and the file without them.

    *path* is where our file is; None: where it is found. Raises SafeUpdateError.
    """

    def __init__(self, files: ConfigFiles, path: str | None = None) -> None:
        self.path = path or managed(files)
        self._old = text_of(self.path) if self.path else ""
        if not self._old.startswith(HEAD):
            self.path, self._old = "", ""
        others = files.merged(self.path)
        self.stand_ins = StandIns(self.path, files.main_file) if self.path else None
        # Lists that other files have, with ours in them.
        self.by_hand = sorted(
            key for key, name in _OURS.items() if name in _listed(others.all, key)
        )
        self._present = config_files.read(self.path) if self.path else {}
        ours = [*declared(self._old, SETTINGS), *declared(self._old, REPEATED)]
        self._rest = {
            key: rest
            for key, value in self._present.items()
            if (rest := self._without_ours(key, value, others, ours)) is not None
        }

    @property
    def stays(self) -> dict[str, list[str]]:
        """Settings of others in our file, by key."""
        return names_of(self._rest)

    def changes(self) -> dict[str, Any]:
        """Return what differs, by path, as a state reports it: names, for values may be secret."""
        if not self.path:
            return {}
        found: dict[str, Any] = {self.path: {"old": names_of(self._present), "new": self.stays}}
        if self.stand_ins is not None and self.stand_ins.present():
            found[self.stand_ins.directory] = {"old": "stand-ins", "new": ""}
        return found

    def _without_ours(
        self, key: str, value: object, others: config_files.Merged, ours: Collection[str]
    ) -> Any:
        """Return what others have written under *key* of our file; None if that is nothing."""
        if key == "safeupdate" and isinstance(value, dict):
            return {name: each for name, each in value.items() if name not in ours} or None
        if key in OPTIONS and self.stand_ins is not None:
            left: Any = [each for each in entries(value) if each != self.stand_ins.place(key)]
        elif key not in _OURS:
            return value
        elif isinstance(value, dict):
            left = {name: each for name, each in value.items() if name != _OURS[key]}
        else:
            left = [each for each in entries(value) if engine_name(each) != _OURS[key]]
        # Entries that the other files have as well were repeated, because ours would have hidden
        # them.
        elsewhere = entries(others.all.get(key)) or list(executors.DEFAULT)
        return left if any(each not in elsewhere for each in entries(left)) else None

    def take_away(self) -> None:
        """Leave in the file what others have written, or remove it. Raises SafeUpdateError."""
        if not self.path:
            return
        try:
            if self._rest:
                like = owner_of(self.path)
                text = salt.utils.yaml.safe_dump(self._rest, default_flow_style=False)
                write_atomic(self.path, text, mode=like.mode)
                if os.geteuid() == 0:
                    os.chown(self.path, like.uid, like.gid)
            else:
                remove(self.path)
        except OSError as err:
            raise SafeUpdateError(
                f"{self.path} cannot be removed: {err.strerror or err}. The configuration is as it "
                "was; check its directory."
            ) from err


def _listed(content: Mapping[str, Any], key: str) -> list[str | None]:
    return list(map(engine_name, entries(content.get(key))))
