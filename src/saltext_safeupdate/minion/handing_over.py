"""Whether the minion of this host can be handed over when it is restarted."""

from __future__ import annotations

from ..this_host import Host
from . import succession


def obstacle(host: Host) -> str:
    """Return why a restart waits for jobs although it is not to; empty if it does not."""
    if host.settings.restart != "handover":
        return ""
    guard = host.stop_guard
    if guard is None:
        return f"the minion is no service of systemd, but of {host.services.name}"
    return succession.obstacle(host.opts) or guard.obstacle()


def is_possible(host: Host) -> bool:
    """Tell whether a restart waits for nobody."""
    return host.settings.restart == "handover" and not obstacle(host)
