"""One generation of the minion: a main process, from its start to its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..errors import UnreadableError
from ..frozen import frozen
from ..host.reach import Address
from ..record import typed


class Standing(Enum):
    """What a generation is to the minion now."""

    # Its main process works, and its engine has not reported yet.
    STARTING = "starting"
    SERVING = "serving"
    # It is handed over, and takes jobs until the next one is ready.
    OVERLAPPING = "overlapping"
    # It takes no job any more, and stays until its jobs have ended.
    LEAVING = "leaving"
    # It has ended, or another one has reported since.
    GONE = "gone"


@frozen
class Report:
    """
    What the engine says when it begins its work.

    ``at`` is when, in epoch seconds, ``boot`` the name of that boot of the host. ``master`` tells
    whether the return of a job shows that a master hears of this minion, ``masters`` has the
    addresses that the configuration names, and ``port`` is where each other master listens; 0: not
    known. ``hooked`` tells whether the main process has our hooks; None: not yet, it is to restart
    for that. ``took`` is how many seconds it took from its start to the report; None: not known.
    ``startup_delay`` is up to how many seconds Salt sleeps at first. ``hands_over`` tells whether
    it is set up so that its restart waits for no job, and ``own_tree`` that it reads copies of its
    roots of code, so that these may change while it runs. ``version`` is that of Salt,
    ``extension`` that of this extension.
    """

    at: float
    boot: str = ""
    version: str = ""
    extension: str = ""
    master: bool = False
    masters: tuple[Address, ...] = ()
    port: int = 0
    hooked: bool | None = True
    took: float | None = None
    startup_delay: float = 0.0
    hands_over: bool = False
    own_tree: bool = False


@frozen
class Probe:
    """A job that the supervisor has a generation do, as if its master had published it."""

    jid: str
    fun: str
    arg: tuple[Any, ...] = ()


class Generation:
    """
    What is known of one: *said* has it as JSON, by name.

    Each is read when it is asked for, so that what nobody asks for may be damaged; then it raises
    UnreadableError.
    """

    def __init__(self, process: str, said: Mapping[str, Any]) -> None:
        # The identity of its main process.
        self.process = process
        self._said = said

    @property
    def standing(self) -> Standing:
        try:
            return Standing(self._said["standing"])
        except ValueError as err:
            raise self._unreadable(err) from err

    @property
    def report(self) -> Report | None:
        """What its engine has reported; None if it has not."""
        found: Report | None = self._read("report", Report | None)
        return found

    @property
    def masters(self) -> tuple[tuple[str, bool], ...] | None:
        """Those that it works for, each with whether it is connected; None: it has noted none."""
        found: tuple[tuple[str, bool], ...] | None = self._read(
            "masters", tuple[tuple[str, bool], ...] | None
        )
        return found

    @property
    def probe(self) -> Probe | None:
        """The job that it is asked for."""
        found: Probe | None = self._read("probe", Probe | None)
        return found

    @property
    def refused(self) -> str | None:
        """The JID of the probe whose return its master could not store, though it was there."""
        found: str | None = self._read("refused", str | None)
        return found

    @property
    def idle(self) -> str | None:
        """
        That no job of it ran any more when a restart ended it, but the one with this JID.

        None: not that it is known.
        """
        found: str | None = self._read("idle", str | None)
        return found

    @property
    def changed(self) -> str | None:
        """What was replaced on the disk of the code that it runs from; None: nothing is known."""
        found: str | None = self._read("changed", str | None)
        return found

    def _read(self, name: str, kind: Any) -> Any:
        try:
            return typed.read(kind, json.loads(self._said[name]))
        except (TypeError, ValueError) as err:
            raise self._unreadable(err) from err

    def _unreadable(self, err: Exception) -> UnreadableError:
        return UnreadableError(
            f"What is recorded of the minion's process {self.process} cannot be read ({err}). It "
            "was left as it is; a restart of the minion writes it anew."
        )
