"""Upgrade steps of the master: fetched in advance, while it can be reached."""

from __future__ import annotations

from salt.exceptions import SaltException

from ...core.errors import SafeUpdateError
from ...core.prepare.upgrade_steps import Steps
from ...this_host import Host
from .circumstances import Functions


def fetch(host: Host, functions: Functions) -> None:
    """
    Fetch the steps in 'safeupdate:steps_source' again, if it is set.

    An update that has begun keeps those that it began with. Raise SafeUpdateError if the steps
    cannot be fetched: an update without them may be worse than none.
    """
    source = host.settings.steps_source
    last = host.store.latest() if source and host.store.exists() else None
    begun = last is not None and not last.phase.final and not last.may_be_cancelled
    if not source or begun:
        return
    try:
        paths = functions["cp.cache_dir"](source)
        if not paths:
            raise SafeUpdateError(
                f"The master has nothing in {source}, where the upgrade steps should be. Nothing "
                "was changed; put a file there, or leave 'safeupdate:steps_source' out."
            )
        Steps(host.settings.steps_dir, host.store).keep(map(str, paths))
    except (SaltException, OSError) as err:
        raise SafeUpdateError(
            f"The upgrade steps in {source} cannot be fetched: {err}. Nothing was changed."
        ) from err
