"""The daemons of Salt on this host that systemd has started from the same code as us."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from .service import Services

_PATTERN = "*salt*.service"
_PROGRAMS = ("salt-minion", "salt-proxy", "salt-master", "salt-syndic", "salt-api")
_CONFIG = re.compile(r" (?:-c|--config-dir)[ =]?(/\S+)")
# A virtual environment that also loads modules next to the interpreter (the documentation of venv).
_SHARING = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
# The jobs of these run in the daemon itself.
_WITH_JOBS = ("salt-minion", "salt-proxy")


class Daemon(NamedTuple):
    """
    A running service, the program of Salt that it is, and its main process.

    *config* is the directory of its configuration if it was started with one; empty: the usual.
    """

    unit: str
    program: str
    pid: int
    config: str = ""

    @property
    def has_jobs(self) -> bool:
        return self.program in _WITH_JOBS


def running_from(
    services: Services, roots: Iterable[str], ours: str, proc: str = "/proc"
) -> list[Daemon]:
    """
    Return those that run from one of these directories, or with the interpreter *ours*.

    *ours* is empty if the directories hold the interpreter, too.
    """
    places = tuple(os.path.join(root, "") for root in roots)
    found = []
    for unit, pid in sorted(services.running(_PATTERN).items()):
        words = _words(f"{proc}/{pid}/cmdline")
        names = {os.path.basename(word) for word in words}
        program = next((each for each in _PROGRAMS if any(each in name for name in names)), "")
        interpreters = {_target(f"{proc}/{pid}/exe"), *words[:1]}
        alone = bool(words) and _has_own_code(words[0])
        same = any(
            each.startswith(places) or (each == ours and not alone) for each in interpreters if each
        )
        if program and same:
            found.append(Daemon(unit.removesuffix(".service"), program, pid, _config(words)))
    return found


def _has_own_code(python: str) -> bool:
    """Tell whether it belongs to a virtual environment that loads nothing from next to it."""
    try:
        path = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return _SHARING.search(file.read()) is None
    except OSError:
        return False


def _config(words: list[str]) -> str:
    found = _CONFIG.search(" ".join(words))
    return found[1] if found else ""


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            # A process that has given itself a title has all in one word.
            return file.read().replace("\0", " ").split()
    except OSError:
        return []


def _target(path: str) -> str:
    try:
        return os.path.realpath(os.readlink(path))
    except OSError:
        return ""
