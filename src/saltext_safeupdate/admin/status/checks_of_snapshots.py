"""Problems in the snapshots of a transactional system."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.record.phase import Phase
from ...this_host import Host
from .checks_of_files import Problem


def applied(host: Host) -> Iterator[Problem]:
    """Yield that somebody has put the files of an update below the minion before its boot."""
    manager = host.manager
    if manager is None or not host.activation.by_boot or not host.store.exists():
        return
    last = host.store.latest()
    if last is None or not last.awaits_boot or last.phase is not Phase.WAITING_FOR_BOOT:
        return
    if last.brought and manager.running(list(last.versions_to)) == last.versions_to:
        named = ", ".join(f"{name} {version}" for name, version in sorted(last.brought.items()))
        yield Problem(
            "applied",
            f"'transactional-update apply' has put {named} below the minion, which still runs the "
            f"previous version. Update {last.id} waits for the reboot, so a restart would not be "
            "watched.",
            "Reboot the host: then the new minion is watched.",
        )
