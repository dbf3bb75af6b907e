"""Who orders something of this master: what history and events tell of a person."""

from __future__ import annotations

import contextlib
import os
import socket

import salt.utils.user

from ..core.errors import one_line

# Characters of it that are kept.
LONGEST = 200
# What Salt says of a caller that it does not know.
_UNKNOWN = ("", "UNKNOWN")
_SUDO = "sudo_"


def told(user: str) -> str:
    """
    Return who calls in this process: the user, the host, and the terminal if there is one.

    *user* is whom Salt has authenticated, such as the name at salt-api; if that is nobody, it is
    the user of this process. It is told, and decides nothing.
    """
    name = str(salt.utils.user.get_specific_user()) if user in _UNKNOWN else user
    if name.startswith(_SUDO):
        name = f"{name.removeprefix(_SUDO)} (sudo)"
    parts = [f"{name} on {socket.gethostname()}", *filter(None, (_terminal(),))]
    return one_line(", ".join(parts))[:LONGEST]


def _terminal() -> str:
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            return os.ttyname(descriptor)
    return ""
