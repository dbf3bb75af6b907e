"""A run that cannot continue after a boot leaves its changes of the own packages to the boot."""

from __future__ import annotations

from collections.abc import Iterable

from .. import factory
from ..core.errors import SafeUpdateError
from ..core.packages.request import REMOVALS, File
from ..core.prepare import resolution
from ..core.supervisor import asking
from ..this_host import Host
from .runs import Pending

_REASON = "A state run asked for it, and for a reboot."


def leave(host: Host, pending: Iterable[Pending], jid: str) -> None:
    """
    Request an update to exactly what was taken for the deferred states, after the boot.

    Raise SafeUpdateError, and change nothing, if that is not all that they need.
    """
    files: dict[str, File] = {}
    for entry in pending:
        request = entry.deferral.request
        if request is not None and request.action in REMOVALS:
            raise SafeUpdateError("this run removes packages")
        if entry.secured is not None:
            files.update({file.package: file for file in entry.secured.files})
        elif entry.deferral.changes:
            raise SafeUpdateError(entry.not_secured or "what it installs was not taken")
    own = host.own().names
    targets = {name: file.version for name, file in files.items() if name in own}
    if not targets:
        raise SafeUpdateError("nothing of it is an own package")
    # One version, if they agree: it tells this request from others.
    versions = set(targets.values())
    wanted = resolution.request(
        versions.pop() if len(versions) == 1 else None, allow_downgrade=True
    )
    by = factory.initiator(host, jid)
    resolved = resolution.Resolved(request=wanted, installed=by.versions(), targets=targets)
    factory.staging(host).keep(targets, files.values())
    asking.update(by, resolved, jid=jid, reason=_REASON, at_boot=True)
