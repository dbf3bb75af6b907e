"""
What the supervisor inherits of the minion's environment: its proxies, and apt's configuration.

A transient unit has the environment of the init system, without the environment of the minion's
unit. Proxies may contain passwords, so that neither an argument nor a unit can carry them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import MutableMapping

from .files import remove, write_atomic

log = logging.getLogger("salt-safeupdate")

_KINDS = ("all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy")
PROXIES = (*_KINDS, *(name.upper() for name in _KINDS))
APT = "APT_CONFIG"
NAMES = (*PROXIES, APT)
FILE = "environment.json"


def save(directory: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Write what this process has of it to *directory*, which only root can read."""
    found = {name: environment[name] for name in NAMES if environment.get(name)}
    path = os.path.join(directory, FILE)
    try:
        if found:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            write_atomic(path, json.dumps(found))
        else:
            remove(path)
    except OSError as err:
        # A restart needs none, and an update says what it could not download.
        log.warning("%s cannot be written, so downloads may go another way: %s", path, err)


def load(directory: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """
    Put it into the environment, unless that has it.

    A configuration of apt that is not there any more is left out: apt would refuse to work.
    """
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as err:
        log.warning("%s cannot be read, so downloads use no proxy of the minion: %s", path, err)
        return
    for name, value in found.items() if isinstance(found, dict) else ():
        if name not in NAMES or not isinstance(value, str) or "\0" in value:
            continue
        if name == APT and not os.access(value, os.R_OK):
            log.warning("%s cannot be read, so apt is used without this configuration", value)
            continue
        environment.setdefault(name, value)
