"""
Which slot a minion runs from: two links, and each is the old one or the new one.

``active`` is what its unit starts; ``previous`` is what it goes back to. Both lead to the ``tree``
of a slot. ``previous`` is written first, so that what was active is never without a name.
"""

from __future__ import annotations

import contextlib
import os
import re

from ..errors import InputError, SafeUpdateError
from ..host.files import remove, sync_directory
from . import private

ACTIVE, PREVIOUS = "active", "previous"
_MINIONS = "minions"
_TARGET = re.compile(r"\.\./\.\./slots/([^/]+)/tree")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,127}", re.ASCII)


class Links:
    """The links of all minions below the directory of the slots."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.join(directory, _MINIONS)

    def can_have(self, minion: str) -> bool:
        """Tell whether the name is one that a minion with links can have."""
        return bool(_NAME.fullmatch(minion))

    def active(self, minion: str) -> str | None:
        return self._leads_to(minion, ACTIVE)

    def previous(self, minion: str) -> str | None:
        return self._leads_to(minion, PREVIOUS)

    def activate(self, minion: str, ident: str, *, remember: bool = True) -> None:
        """Have *active* lead to a slot, and, to *remember* it, *previous* to the one before."""
        place = self._place(minion)
        private.make(self._directory)
        private.make(place)
        before = self.active(minion)
        if before == ident:
            return
        if remember and before is not None:
            _point(place, PREVIOUS, before)
        _point(place, ACTIVE, ident)

    def leave(self, minion: str) -> None:
        place = self._place(minion)
        for name in (ACTIVE, PREVIOUS):
            with contextlib.suppress(FileNotFoundError):
                remove(os.path.join(place, name))
        with contextlib.suppress(OSError):
            os.rmdir(place)

    def needed(self) -> set[str]:
        """Return the slots that a minion has as its active or its previous one."""
        try:
            minions = filter(_NAME.fullmatch, os.listdir(self._directory))
        except FileNotFoundError:
            return set()
        found = {self._leads_to(minion, name) for minion in minions for name in (ACTIVE, PREVIOUS)}
        return {ident for ident in found if ident is not None}

    def _leads_to(self, minion: str, name: str) -> str | None:
        try:
            target = os.readlink(os.path.join(self._place(minion), name))
        except FileNotFoundError:
            return None
        except OSError as err:
            raise SafeUpdateError(
                f"Which slot {minion} has is not known: {err}. Nothing was changed; look at that "
                "path, and ask again as root."
            ) from err
        found = _TARGET.fullmatch(target)
        return found[1] if found else None

    def _place(self, minion: str) -> str:
        if not self.can_have(minion):
            raise InputError(f"{minion!r} is no name of a unit. Nothing was changed.")
        return os.path.join(self._directory, minion)


def _point(place: str, name: str, ident: str) -> None:
    """Have a link lead to a slot, at once."""
    path, new = os.path.join(place, name), os.path.join(place, f".{name}.new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink(os.path.join("..", "..", "slots", ident, "tree"), new)
    os.replace(new, path)
    sync_directory(place)
