"""
The slot that a minion runs from: two links, each of which is always either the old or the new one.

Its unit starts ``active``, and it goes back to ``previous``. Until an update has ended, ``older``
is the former ``previous``, and ``left`` is the former ``active`` if the minion leaves all slots.
All lead to the ``tree`` of a slot. ``active`` is written last, so that the former active slot
always has a name.
"""

from __future__ import annotations

import contextlib
import os
import re

from ..errors import InputError, SafeUpdateError
from ..host.files import remove, sync_directory
from . import private

ACTIVE, PREVIOUS, _OLDER, _LEFT = "active", "previous", "older", "left"
_ALL = (ACTIVE, PREVIOUS, _OLDER, _LEFT)
_MINIONS = "minions"
_TARGET = re.compile(r"\.\./\.\./slots/([^/]+)/tree")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,127}", re.ASCII)


class Links:
    """The links of all minions below the directory of the slots."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.join(directory, _MINIONS)

    def can_have(self, minion: str) -> bool:
        """Tell whether a minion with this name can have links."""
        return bool(_NAME.fullmatch(minion))

    def active(self, minion: str) -> str | None:
        return self._leads_to(minion, ACTIVE)

    def previous(self, minion: str) -> str | None:
        return self._leads_to(minion, PREVIOUS) if self.active(minion) else self.left(minion)

    def left(self, minion: str) -> str | None:
        return self._leads_to(minion, _LEFT)

    def activate(self, minion: str, ident: str) -> None:
        """
        Make *active* lead to a slot, and *previous* to the former active one. Idempotent.

        If the minion goes back to the previous slot, *previous* leads to its former target again.
        """
        place = self._place(minion)
        private.make(self._directory)
        private.make(place)
        before, previous = self.active(minion), self._leads_to(minion, PREVIOUS)
        if before is None and ident == self.left(minion):
            # The minion goes back to slots: the other links have not changed.
            _lead(place, ACTIVE, ident)
        elif ident == previous:
            self._go_back(minion, place)
        elif before != ident:
            # If both are the same, the last caller died after the first line.
            if previous != before:
                _lead(place, _OLDER, previous)
            if before is not None:
                _lead(place, PREVIOUS, before)
            _lead(place, ACTIVE, ident)

    def _go_back(self, minion: str, place: str) -> None:
        before, previous = self.active(minion), self._leads_to(minion, PREVIOUS)
        older = self._leads_to(minion, _OLDER)
        _lead(place, ACTIVE, previous)
        _lead(place, PREVIOUS, older)
        # The end of the update decides whether this stays.
        _lead(place, _OLDER, before if before != previous else None)

    def settle(self, minion: str, *before: str | None) -> None:
        """Remove the links of an update that ended; *before*, if given, is the slot it left."""
        place = self._place(minion)
        for ident in before:
            if ident is None or ident not in (self.active(minion), self.previous(minion)):
                _lead(place, PREVIOUS, ident)
        _lead(place, _OLDER, None)
        _lead(place, _LEFT, None)

    def step_out(self, minion: str) -> None:
        """Make no slot active, and keep the former one until the update ends. Idempotent."""
        place = self._place(minion)
        if self.active(minion) is not None:
            # One of the links exists at each moment. On a full disk the minion leaves nevertheless.
            with contextlib.suppress(OSError):
                os.replace(os.path.join(place, ACTIVE), os.path.join(place, _LEFT))
                sync_directory(place)
        _lead(place, ACTIVE, None)

    def leave(self, minion: str) -> None:
        """Remove all links. Idempotent."""
        place = self._place(minion)
        for name in _ALL:
            _lead(place, name, None)
        with contextlib.suppress(OSError):
            os.rmdir(place)

    def needed(self) -> set[str]:
        """Return the slots that a link of a minion leads to."""
        try:
            minions = filter(_NAME.fullmatch, os.listdir(self._directory))
        except FileNotFoundError:
            return set()
        found = {self._leads_to(minion, name) for minion in minions for name in _ALL}
        return {ident for ident in found if ident is not None}

    def _leads_to(self, minion: str, name: str) -> str | None:
        try:
            target = os.readlink(os.path.join(self._place(minion), name))
        except FileNotFoundError:
            return None
        except OSError as err:
            raise SafeUpdateError(
                f"It is not known which slot {minion} has: {err}. Nothing was changed; check that "
                "path, and ask again as root."
            ) from err
        found = _TARGET.fullmatch(target)
        return found[1] if found else None

    def _place(self, minion: str) -> str:
        if not self.can_have(minion):
            raise InputError(f"{minion!r} is not the name of a unit. Nothing was changed.")
        return os.path.join(self._directory, minion)


def _lead(place: str, name: str, ident: str | None) -> None:
    """Make a link lead to a slot, at once; None: remove the link."""
    path, new = os.path.join(place, name), os.path.join(place, f".{name}.new")
    if ident is None:
        remove(path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink(os.path.join("..", "..", "slots", ident, "tree"), new)
    os.replace(new, path)
    sync_directory(place)
