"""Problems with the slot of this minion."""

from __future__ import annotations

from collections.abc import Iterator

from ... import factory
from ...core.errors import SafeUpdateError
from ...this_host import Host
from .checks_of_files import Problem


def slot(host: Host) -> Iterator[Problem]:
    """Yield a problem if what the minion starts from next is not the slot that it should be."""
    name = host.settings.unit_name
    try:
        linked = factory.slots(host).active(name)
        active = factory.active_slot(host)
        elsewhere = factory.slot_unit(host).elsewhere
    except SafeUpdateError as err:
        yield Problem(
            "slot",
            f"The active slot of the minion cannot be used: {err}",
            f"Before the minion restarts: {factory.slot_unit(host).without_slot}, and ask for an "
            "update again.",
        )
        return
    if elsewhere:
        yield Problem(
            "slot",
            f"{name} starts {elsewhere}, a slot that is not below 'safeupdate:slots_dir'.",
            "Set that back to what it was. To move, leave the slot with 'safeupdate.rollback "
            "to=without_slot' before.",
        )
        return
    if linked is not None and active is None:
        yield Problem(
            "slot",
            f"The slot {linked} is active for {name}, and something else is started: the unit has "
            "lost its drop-in '40-safeupdate-slot.conf', or another drop-in overrides it; or, "
            "without systemd, the keeper does not start the minion any more.",
            "If that is intended, the next update to a slot solves this; otherwise remove the "
            "other drop-in, or put the keeper in place again.",
        )
