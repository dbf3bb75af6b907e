"""The person who gives an order to this master, as history and events name them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Any

import salt.utils.user

from ..core.errors import InputError, one_line
from . import rollouts
from .account import Account, path_of
from .targets import accepted

# The most characters of a name.
LONGEST = 200
# Salt's names of a caller that it does not know.
_UNKNOWN = ("", "UNKNOWN")
_SUDO = "sudo_"


def at_shell(opts: Mapping[str, Any]) -> bool:
    """
    Tell whether somebody has started ``salt-run`` with the rights of its user.

    Then its options are among the *opts* of the runner. Nobody else can put them there: for callers
    at salt-api or with ``--auth``, for reactors, for the schedule and for ``peer_run``, the master
    itself calls the runner, with its own configuration. If it is not known, it is no shell.
    """
    return "skip_grains" in opts and "async" in opts and not opts.get("eauth")


def refuse_elsewhere(opts: Mapping[str, Any], **given: object) -> None:
    """Raise InputError for given arguments that are only for a shell of the master."""
    named = ", ".join(f"'{name}'" for name, value in given.items() if value)
    if named and not at_shell(opts):
        raise InputError(
            f"{named}: only for 'salt-run' in a shell of the master, because it works with the "
            "rights of the master's user. Nothing was done; leave that out, or call it there."
        )


def told(user: str, opts: Mapping[str, Any]) -> str:
    """
    Return the caller of this process: the user, the host, and the terminal if there is one.

    *user* is the user that Salt has authenticated, such as the name at salt-api; without one, it is
    the user of this process. *opts* are the runner's. The name is only shown; it decides nothing.
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
    Return the minion that lets this master call the runner; empty if no minion does.

    ``peer_run`` of the master allows it. Then Salt names the user of the master as the caller, and
    replaces the ID of the master by the minion's.
    """
    name = str(opts["id"])
    if name not in accepted(opts):
        return ""
    # A master whose name is only an address may have a minion of the same name.
    owner, _, _ = Account(path_of(opts)).fact(rollouts.OWNER).rpartition("/")
    return "" if name == owner else name


def _terminal() -> str:
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            return os.ttyname(descriptor)
    return ""
