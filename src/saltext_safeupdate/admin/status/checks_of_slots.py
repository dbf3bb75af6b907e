"""What is not right with the slot of this minion."""

from __future__ import annotations

from collections.abc import Iterator

from ... import factory
from ...core.errors import SafeUpdateError
from ...this_host import Host
from .checks_of_files import Problem


def slot(host: Host) -> Iterator[Problem]:
    """Yield a problem if what the minion starts from next is not the slot that it should be."""
    name = host.settings.unit_name
    if host.services.name != "systemd":
        return
    try:
        linked = factory.slots(host).active(name)
        active = factory.active_slot(host)
    except SafeUpdateError as err:
        yield Problem(
            "slot",
            f"The slot that the minion is to run from cannot be used: {err}",
            f"Before the minion restarts: remove {factory.slot_unit(host).drop_in}, run 'systemctl "
            "daemon-reload', and ask for an update again.",
        )
        return
    if linked is not None and active is None:
        yield Problem(
            "slot",
            f"The slot {linked} is active for {name}, and the unit starts something else: its "
            "drop-in '40-safeupdate-slot.conf' is gone, or another one comes behind it.",
            "If that is meant, the next update to a slot puts it in order; otherwise remove the "
            "other drop-in.",
        )
