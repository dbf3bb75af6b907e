"""The commands that administrators type: links to the programs of the active slot."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..host.files import remove, sync_directory

# A shell searches this directory before the directories of packages.
_PLACE = "/usr/local/bin"
_NAMES = ("salt-call", "salt-pip")


class Commands:
    """
    Links in the directory *place* to the programs in *programs*, a directory of the active slot.

    Files of others there stay. Each method may be repeated, and raises OSError.
    """

    def __init__(self, programs: str, place: str = _PLACE) -> None:
        self._programs = programs
        self._place = place

    def follow(self) -> None:
        """Create a link for each program that the slot has, and remove the other links."""
        for link, program in self._links():
            if not os.access(program, os.X_OK):
                self._remove(link, program)
            elif not os.path.lexists(link) and os.path.isdir(self._place):
                os.symlink(program, link)
                sync_directory(self._place)

    def leave(self) -> None:
        """Remove the links: a shell then finds the programs of the package, or any others."""
        for link, program in self._links():
            self._remove(link, program)

    def _links(self) -> Iterator[tuple[str, str]]:
        for name in _NAMES:
            yield os.path.join(self._place, name), os.path.join(self._programs, name)

    def _remove(self, link: str, program: str) -> None:
        if os.path.islink(link) and os.readlink(link) == program:
            remove(link)
