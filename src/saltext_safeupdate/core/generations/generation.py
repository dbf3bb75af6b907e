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
    """The standing of a generation: its part in the minion now."""

    # Its main process works, and its engine has not reported yet.
    STARTING = "starting"
    SERVING = "serving"
    # It is handed over, and takes jobs until the next one is ready.
    OVERLAPPING = "overlapping"
    # It takes no more jobs, and stays until its jobs have ended.
    LEAVING = "leaving"
    # It has ended, or another one has reported since then.
    GONE = "gone"


@frozen
class Report:
    """
    The report of the engine when it begins its work.

    ``at`` is the time, in epoch seconds, and ``boot`` the name of the boot of the host. ``master``
    tells whether the return of a job proves that a master hears from this minion. ``masters`` has
    the addresses in the configuration, and ``port`` is the port of each other master; 0: unknown.
    ``hooked`` tells whether the main process has our hooks; None: not yet, it will restart for
    that. ``took`` is the seconds from its start to the report; None: unknown. ``startup_delay`` is
    the most seconds that Salt sleeps first. ``hands_over`` tells whether it is set up so that its
    restart waits for no job. ``own_tree`` tells whether it reads copies of its roots of code, so
    that these may change while it runs. ``follows`` tells that the one before took jobs until this
    one was ready. ``version`` is the version of Salt, ``extension`` the
    version of this extension.
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
    follows: bool = False


@frozen
class Probe:
    """A job that the supervisor gives a generation, as if its master had published it."""

    jid: str
    fun: str
    arg: tuple[Any, ...] = ()


class Generation:
    """
    The record of a generation: *said* has it as JSON, by name.

    Each value is read when it is needed, so that an unneeded one may be damaged. A damaged value
    raises UnreadableError.
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
        """The report of its engine, or None."""
        found: Report | None = self._read("report", Report | None)
        return found

    @property
    def masters(self) -> tuple[tuple[str, bool], ...] | None:
        """Its masters, each with whether it is connected; None: it has noted none."""
        found: tuple[tuple[str, bool], ...] | None = self._read(
            "masters", tuple[tuple[str, bool], ...] | None
        )
        return found

    @property
    def probe(self) -> Probe | None:
        """The job that the supervisor gives it."""
        found: Probe | None = self._read("probe", Probe | None)
        return found

    @property
    def refused(self) -> str | None:
        """The JID of the probe whose return its master got and could not store."""
        found: str | None = self._read("refused", str | None)
        return found

    @property
    def idle(self) -> str | None:
        """
        The JID of the only job that may still have run when a restart ended it; empty: none ran.

        None: other jobs may have run, too.
        """
        found: str | None = self._read("idle", str | None)
        return found

    @property
    def changed(self) -> str | None:
        """The code that it runs from and that was replaced on the disk; None: none is known."""
        found: str | None = self._read("changed", str | None)
        return found

    def _read(self, name: str, kind: Any) -> Any:
        try:
            return typed.read(kind, json.loads(self._said[name]))
        except (TypeError, ValueError) as err:
            raise self._unreadable(err) from err

    def _unreadable(self, err: Exception) -> UnreadableError:
        return UnreadableError(
            f"The record of the minion's process {self.process} cannot be read ({err}). It "
            "was left as it is; a restart of the minion writes it again."
        )
