"""A minion that runs from a slot is started by the unit of its package: that has to stay."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import SafeUpdateError
from ..core.packages.request import Change
from ..this_host import Host
from .chunks import listed


def refuse(host: Host, changes: Mapping[str, Change]) -> None:
    """
    Raise SafeUpdateError if the changes would leave a slot that nothing starts any more.

    A unit of the administrator stays, whatever happens to packages. Without slots this costs a look
    at a link, and only where a package of the minion is removed.
    """
    gone = {name for name, change in changes.items() if change.old and not change.new}
    if not gone:
        return
    from .. import factory

    slot = factory.active_slot(host)
    unit = host.services.unit_file(host.settings.service) if slot is not None else None
    if slot is None or unit is None or not gone & host.known_manager().owners([unit]):
        return
    raise SafeUpdateError(
        f"The minion runs from the slot {slot.ident}, which is started by {unit}, and that would "
        f"go with {listed(gone)}: this host would be without a minion. Nothing was changed; leave "
        "the slot first, with 'safeupdate.rollback to=without_slot', or copy the unit to "
        "/etc/systemd/system."
    )
