"""The start of a minion from its active slot without systemd: its keeper does it by itself."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..errors import CommandError, SafeUpdateError
from ..host.keeper import Kept


class KeptUnit:
    """
    A minion with a keeper, which starts the program of the slot if it exists.

    *look* returns the minion, or None if no keeper has started it. *program* is the path of its
    program by the link of its slot. It raises the errors of :class:`.unit.Unit`.
    """

    def __init__(self, unit: str, program: str, look: Callable[[], Kept | None]) -> None:
        self._unit = unit
        self._program = program
        self._look = look

    @property
    def program(self) -> str:
        return self._kept().program

    @property
    def arguments(self) -> list[str]:
        return list(self._kept().arguments)

    @property
    def follows(self) -> bool:
        kept = self._look()
        return kept is not None and kept.slot == self._program and kept.follows

    @property
    def named(self) -> str:
        return self._kept().before

    @property
    def elsewhere(self) -> str:
        kept = self._look()
        return kept.slot if kept is not None and kept.slot != self._program and kept.follows else ""

    @property
    def drop_in(self) -> str:
        # The keeper needs only the link itself.
        return os.path.dirname(os.path.dirname(self._program))

    @property
    def without_slot(self) -> str:
        return f"remove the link {self.drop_in}"

    def check(self) -> None:
        kept = self._kept()
        if kept.slot != self._program:
            raise SafeUpdateError(
                f"The keeper of {self._unit} starts {kept.slot}, and slots are elsewhere now. "
                "Nothing was changed; install it again, with '--slots-dir'."
            )

    def follow(self) -> None:
        if not self.follows:
            raise CommandError(
                ("keeper",), f"the keeper of {self._unit} does not start {self._program}"
            )

    def leave(self) -> None:
        # The keeper starts the program that exists.
        return

    def _kept(self) -> Kept:
        kept = self._look()
        if kept is None:
            raise SafeUpdateError(
                f"Neither systemd nor a keeper has started {self._unit}, so nothing here would "
                "start it from a slot. Nothing was changed; put a keeper in place of the program "
                "that starts it ('python3 -m saltext_safeupdate.core.slots.keep "
                "PATH_OF_SALT_MINION'), and start it again as usual, in the foreground."
            )
        return kept
