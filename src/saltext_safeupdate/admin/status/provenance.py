"""Where Salt's code came from: only what packages brought can be updated by packages."""

from __future__ import annotations

import os

import salt

from ...core.errors import InputError
from ...this_host import Host


def not_from_packages(host: Host) -> str:
    """Return the sentence that no package owns Salt's code; empty if one does."""
    if host.manager is None or host.own().configured:
        return ""
    code = os.path.dirname(os.path.abspath(str(salt.__file__)))
    if host.manager.owners([os.path.join(code, "version.py")]):
        return ""
    return f"No package owns Salt's code in {code}: it was installed in another way, such as pip."


def refuse_others(host: Host) -> None:
    """Raise InputError if packages cannot update Salt."""
    problem = not_from_packages(host)
    if problem:
        raise InputError(
            f"{problem} Nothing was changed. Update it to a slot: name a 'source' of builds, or "
            "set 'safeupdate:slots_source'. Or update it in that way and restart the minion with "
            "'safeupdate.restart', or name its packages in 'safeupdate:packages' if it has some."
        )
