"""
The proxies of the minion's environment, for the supervisor.

A transient unit has the environment of the init system, where those of the minion's unit are
missing. They may contain passwords, so that neither an argument nor a unit can carry them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import MutableMapping

from .files import remove, write_atomic

log = logging.getLogger("salt-safeupdate")

_KINDS = ("all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy")
NAMES = (*_KINDS, *(name.upper() for name in _KINDS))
_FILE = "proxies.json"


def save(directory: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Write the proxies of this process to *directory*, which only root can read."""
    found = {name: environment[name] for name in NAMES if name in environment}
    path = os.path.join(directory, _FILE)
    try:
        if found:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            write_atomic(path, json.dumps(found))
        else:
            remove(path)
    except OSError as err:
        # A restart needs none, and an update says what it could not download.
        log.warning("%s cannot be written, so downloads may use another proxy: %s", path, err)


def load(directory: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Put the proxies into the environment, unless it has them."""
    path = os.path.join(directory, _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as err:
        log.warning("%s cannot be read, so downloads use no proxy: %s", path, err)
        return
    for name, value in found.items() if isinstance(found, dict) else ():
        if name in NAMES and isinstance(value, str) and "\0" not in value:
            environment.setdefault(name, value)
