"""Who orders something of this master: what history and events tell of a person."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Any

import salt.utils.user

from ..core.errors import one_line
from . import rollouts
from .account import Account, path_of
from .targets import accepted

# Characters of it that are kept.
LONGEST = 200
# What Salt says of a caller that it does not know.
_UNKNOWN = ("", "UNKNOWN")
_SUDO = "sudo_"


def told(user: str, opts: Mapping[str, Any]) -> str:
    """
    Return who calls in this process: the user, the host, and the terminal if there is one.

    *user* is whom Salt has authenticated, such as the name at salt-api; if that is nobody, it is
    the user of this process. *opts* are those that Salt has given to the runner. It is told, and
    decides nothing.
    """
    name = str(salt.utils.user.get_specific_user()) if user in _UNKNOWN else user
    if name.startswith(_SUDO):
        name = f"{name.removeprefix(_SUDO)} (sudo)"
    if minion := _minion(opts):
        name = f"the minion {minion} (peer_run)"
    parts = [f"{name} on {socket.gethostname()}", *filter(None, (_terminal(),))]
    return one_line(", ".join(parts))[:LONGEST]


def _minion(opts: Mapping[str, Any]) -> str:
    """
    Return the minion that has this master call the runner; empty if it is none.

    ``peer_run`` of the master allows it. Salt names the user of the master as the caller then, and
    puts the ID of the minion in the place of the master's.
    """
    name = str(opts["id"])
    if name not in accepted(opts):
        return ""
    # A master that has only an address for a name may have a minion of that name beside it.
    owner, _, _ = Account(path_of(opts)).fact(rollouts.OWNER).rpartition("/")
    return "" if name == owner else name


def _terminal() -> str:
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            return os.ttyname(descriptor)
    return ""
