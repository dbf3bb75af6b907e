"""The daemons of a master on a minion's host, and the signs that one of them works."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..errors import LockUnavailableError
from ..frozen import frozen
from .locks import held
from .reach import Address

MASTER = "salt-master"
# In the order in which they start: the others need the master.
PROGRAMS = (MASTER, "salt-syndic", "salt-api")
# Addresses that stand for all addresses, and their addresses on this host.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
_ENGINE = "safeupdate_redeliver"


@frozen
class Server:
    """
    A service of a master that runs from the minion's packages, and its *program*.

    A master listens for requests at ``host`` and ``port``, and ``greets`` tells whether it does so
    by ZeroMQ. ``engine`` is the directory with the lock of its engine if that ran, and
    ``keys`` the directory of the keys that it has accepted. Empty values are unknown or missing.
    """

    unit: str
    program: str
    host: str = ""
    port: int = 0
    greets: bool = False
    engine: str = ""
    keys: str = ""


def in_order(servers: Sequence[Server]) -> tuple[Server, ...]:
    """Return them in the order in which they start."""
    return tuple(sorted(servers, key=lambda each: (PROGRAMS.index(each.program), each.unit)))


def address(interface: str) -> str:
    """Return where somebody who listens at this interface is reached on this host."""
    return _LOOPBACK.get(interface, interface)


def engine_runs(directory: str) -> bool:
    """Tell whether an engine has its lock in this directory."""
    if not os.path.exists(os.path.join(directory, "engine.lock")):
        return False
    try:
        return held(directory, "engine")
    except LockUnavailableError:
        return False


def cannot_start(unit: str) -> str:
    """Return what to say of a unit that runs, and that systemd would not start again."""
    return (
        f"{unit} runs from the same packages, so it has to stop for the update, and it could not "
        f"be started again: 'systemctl show {unit} -p CanStart' says no. It may be masked, its "
        "unit may be gone, or it may have 'RefuseManualStart='. Nothing was changed; correct that, "
        "such as by 'systemctl unmask', or stop it."
    )


def missing(
    server: Server, reaches: Callable[[Sequence[Address]], bool], had_keys: Callable[[str], bool]
) -> str:
    """
    Return what a master that runs does not do, as the end of a sentence; empty if it works.

    *had_keys* tells whether there were keys in that directory before.
    """
    if server.host and not reaches([Address(server.host, server.port, server.greets)]):
        return f"does not answer at {server.host} port {server.port}"
    if server.engine and not engine_runs(server.engine):
        return f"its engine '{_ENGINE}' does not run, which it did before"
    if server.keys and not _names(server.keys) and had_keys(server.keys):
        return f"it has no accepted key any more in {server.keys}"
    return ""


def is_key(name: str) -> bool:
    """Tell whether a file has the name of a minion: a list of keys (``key_cache``) has a dot."""
    return not name.startswith(".")


def _names(directory: str) -> list[str]:
    try:
        return list(filter(is_key, os.listdir(directory)))
    except OSError:
        return []
