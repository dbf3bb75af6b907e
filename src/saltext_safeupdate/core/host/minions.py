"""
The minions of this host: each notes where it has its things and what it runs from.

A minion writes one small file when it starts, in a directory that all of them have in common. There
an update finds the other minions that run from its packages.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from ..errors import SafeUpdateError
from ..frozen import frozen
from ..settings import name_of
from . import processes
from .files import make_private, remove, write_atomic

log = logging.getLogger(__name__)

_SUFFIX = ".json"


@frozen
class Minion:
    """
    One minion of this host.

    ``config`` is the path of its configuration file, which tells it from the others, and
    ``unit`` the name of its service. ``roots`` are the directories of code that it runs from,
    ``backup`` what a rollback restores of it. ``process`` is the identity of its main process.
    """

    config: str
    id: str
    unit: str
    state_dir: str
    run_dir: str
    process: str = ""
    roots: tuple[str, ...] = ()
    backup: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.id!r} ({self.config})"

    @property
    def database(self) -> str:
        return os.path.join(self.state_dir, "safeupdate.db")

    @property
    def is_there(self) -> bool:
        """Tell whether it has its configuration directory; it may have no file of its own."""
        return os.path.isdir(os.path.dirname(self.config))

    @property
    def runs(self) -> bool:
        """Tell whether the process that has registered it still runs."""
        return processes.alive(self.process)


def register(directory: str, minion: Minion) -> None:
    """
    Note the minion, in place of what was noted of it. Raises SafeUpdateError.

    What was noted of minions that are gone with their configuration directories is removed: each
    process of a minion reads all of it.
    """
    try:
        make_private(directory)
        write_atomic(path_of(directory, minion.config), json.dumps(asdict(minion)))
        for path, noted in _notes(directory):
            if noted is not None and not noted.is_there and not noted.runs:
                remove(path)
    except OSError as err:
        raise SafeUpdateError(
            f"This minion cannot be noted in {directory}: {err.strerror or err}. Updates by other "
            "minions of this host do not wait for its jobs; make that directory writable, or set "
            "'safeupdate:registry_dir' to the same other one for all of them."
        ) from err


def registered(directory: str) -> list[Minion]:
    """
    Return the minions that are registered and whose configuration directory is there, in order.

    An entry that is not valid, or that other users may have written, does not count and is logged.
    """
    try:
        return [each for _, each in _notes(directory) if each is not None and each.is_there]
    except OSError:
        return []


def _notes(directory: str) -> Iterator[tuple[str, Minion | None]]:
    """Give each path, and the minion of which it tells. Raises OSError."""
    for name in sorted(os.listdir(directory)):
        if name.endswith(_SUFFIX) and not name.startswith("."):
            path = os.path.join(directory, name)
            yield path, _read(path)


def find(directory: str, config: str) -> Minion | None:
    """Return what the minion of this configuration file has noted, or None."""
    path = path_of(directory, config)
    return _read(path) if os.path.exists(path) else None


def path_of(directory: str, config: str) -> str:
    """Return where the minion of this configuration file is noted."""
    return os.path.join(directory, name_of(config) + _SUFFIX)


def _read(path: str) -> Minion | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022:
                raise ValueError("other users may have written it")
            return _minion(json.load(file))
    except (OSError, ValueError, TypeError, RecursionError) as err:
        log.warning("safeupdate: %s does not describe a minion (%s); it is left out", path, err)
        return None


def _minion(value: Any) -> Minion:
    if not isinstance(value, dict):
        raise TypeError("no JSON object")
    # A newer version may have noted more.
    known = {each.name: each.default for each in fields(Minion)}
    given = {name: value[name] for name in known if name in value}
    for name, each in given.items():
        texts = each if isinstance(known[name], tuple) else [each]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name} is no text")
        paths = name in ("config", "state_dir", "run_dir", "roots", "backup")
        if paths and not all(os.path.isabs(text) and "\0" not in text for text in texts):
            raise ValueError(f"{name} is no absolute path")
        if isinstance(known[name], tuple):
            given[name] = tuple(texts)
    if not given.get("unit") or given["unit"].startswith("-"):
        raise ValueError("unit is no name")
    return Minion(**given)
