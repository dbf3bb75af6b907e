"""The state of a minion's keeper, on a host without systemd, and orders to it."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Sequence
from typing import Any

from ..frozen import frozen
from . import processes
from .files import remove, write_atomic

# The directory with the state of a host's keepers, each in a directory named after its minion.
PLACE = "/var/lib/salt-keeper"
# The same as in the keeper itself.
START, STOP = signal.SIGRTMIN + 1, signal.SIGRTMIN + 2
_STATE, _WATCHDOGS = "state.json", "watchdogs"
_WORDS = {
    **{"keeper": str, "pid": int, "active": str, "invocation": str, "status": int},
    **{"slot": str, "before": str, "arguments": list},
}


@frozen
class Kept:
    """
    A minion that a keeper has started.

    ``keeper`` is the identity of that process, ``pid`` the minion's, 0 if none runs. ``active`` and
    ``invocation`` are as systemd has them, and ``status`` is the last exit status. ``slot`` is the
    program of the active slot, ``before`` the one that is started without, with ``arguments``.
    """

    keeper: str
    pid: int
    active: str
    invocation: str
    status: int
    slot: str
    before: str
    arguments: tuple[str, ...]

    @property
    def follows(self) -> bool:
        """Whether its next start is from a slot."""
        return os.access(self.slot, os.X_OK)

    @property
    def program(self) -> str:
        """The path of the program that its next start runs."""
        return self.slot if self.follows else self.before

    @property
    def config_dir(self) -> str:
        """The directory of the configuration that it was told; empty if none."""
        for place, each in enumerate(self.arguments):
            name, is_told, value = each.partition("=")
            if len(name) > 3 and "--config-dir".startswith(name):
                return value if is_told else "".join(self.arguments[place + 1 : place + 2])
            if each.startswith("-c"):
                return each[2:] or "".join(self.arguments[place + 1 : place + 2])
        return ""

    def told(self, order: int) -> None:
        """Give the keeper an order. A keeper that has just ended ignores it."""
        if processes.alive(self.keeper):
            os.kill(processes.pid(self.keeper), order)


def look(place: str, unit: str) -> Kept | None:
    """Return the minion of a living keeper; None without one."""
    given = _read(os.path.join(_directory(place, unit), _STATE))
    if given is None or given.keys() != _WORDS.keys():
        return None
    if not all(isinstance(given[key], kind) for key, kind in _WORDS.items()):
        return None
    kept = Kept(**{**given, "arguments": tuple(map(str, given["arguments"]))})
    return kept if processes.alive(kept.keeper) else None


def any_lives(place: str) -> bool:
    """Return whether a minion of this host has a keeper."""
    try:
        return any(look(place, unit) for unit in os.listdir(place))
    except OSError:
        return False


def watch(place: str, name: str, argv: Sequence[str]) -> None:
    """Let the keepers run *argv* at their start and every minute. Idempotent. Raises OSError."""
    path = _watchdog(place, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_atomic(path, json.dumps({"argv": list(argv)}))


def watched(place: str, name: str) -> str:
    """Return the command that they run under that name; empty without one."""
    given = _read(_watchdog(place, name))
    return "" if given is None else json.dumps(given)


def unwatch(place: str, name: str) -> None:
    """Let them run nothing under that name any more. Idempotent. Raises OSError."""
    remove(_watchdog(place, name))


def _watchdog(place: str, name: str) -> str:
    return os.path.join(place, _WATCHDOGS, f"{name}.json")


def _directory(place: str, unit: str) -> str:
    return os.path.join(place, unit.removesuffix(".service"))


def _read(path: str) -> dict[str, Any] | None:
    """Return a mapping that nobody else could have written; None without one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            seen = os.fstat(file.fileno())
            if seen.st_uid not in (0, os.geteuid()) or stat.S_IMODE(seen.st_mode) & 0o022:
                return None
            given = json.load(file)
    except (OSError, ValueError):
        return None
    return given if isinstance(given, dict) else None
