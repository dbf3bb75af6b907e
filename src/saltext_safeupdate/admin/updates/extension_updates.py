"""An update of this extension: its result, its download, and the reasons against it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from salt.exceptions import SaltException

from ... import factory
from ...core.errors import InputError, SafeUpdateError
from ...core.extensions import ourselves
from ...core.host import locks
from ...core.prepare import resolution
from ...core.prepare.own_extension import NAME, OwnExtension
from ...core.prepare.resolution import Resolved, Resolver
from ...core.prepare.staging import EXTENSION
from ...this_host import Host
from .updating import Functions

_BUSY = (
    "An update of the minion is under way, or a download. Nothing was changed; wait for its end "
    "('safeupdate.status')."
)


def stage(host: Host, functions: Functions, version: str) -> Resolved:
    """
    Download that version and verify it; return what the request for it comes to.

    Raise SafeUpdateError if there is a reason against it.
    """
    resolver = _resolver(host, functions, version)
    wanted = replace(resolution.request(version, when="now"), extension=True)
    resolved = resolver.resolve(wanted)
    resolver.refuse(resolved)
    if not resolved.in_place:
        lock = locks.acquire(host.settings.run_dir, "update", _BUSY)
        try:
            staging = factory.staging(host, resolver.installer)
            staging.drop_altered(resolved.targets)
            staging.stage(resolved.targets)
        finally:
            lock.close()
    return resolved


def runs(version: str) -> bool:
    return ourselves.running_version() == version


def is_there(host: Host, version: str) -> bool:
    """Tell whether the version is staged, or installed."""
    if ourselves.version_in(ourselves.home()) == version:
        return True
    staged = host.store.fact(EXTENSION)
    return staged is not None and staged.targets == {NAME: version}


def initiator(host: Host, jid: str) -> Any:
    """Return what begins an update of this extension."""
    by, home = factory.initiator(host, jid), ourselves.home()
    roots = by.installation.roots
    if not any(home.startswith(root + os.sep) for root in roots):
        roots = (*roots, home)
    installation = replace(by.installation, own=(NAME,), roots=roots)
    return replace(by, manager=None, pip=factory.extension(host), installation=installation)


def _resolver(host: Host, functions: Functions, version: str) -> Resolver:
    installer = factory.extension(host)
    _refuse(host, installer)
    source = host.settings.extension_source
    if source.startswith("salt://"):
        installer = factory.extension(host, _fetched(functions, source, version))
    return Resolver(
        installer=installer,
        own=(NAME,),
        store=host.store,
        revisions=factory.revisions(host),
        staged={},
        steps_dir=host.settings.steps_dir,
    )


def _refuse(host: Host, installer: OwnExtension) -> None:
    manager = host.manager
    if host.activation.by_boot:
        raise SafeUpdateError(
            "On a transactional system the extension is installed in a transaction. Nothing was "
            "changed; use 'transactional_update.pip_install' or a state, and reboot."
        )
    unowned = manager.unowned([installer.file]) if manager is not None else [installer.file]
    problem = installer.problem(unowned)
    if problem:
        raise SafeUpdateError(
            f"{problem} Nothing was changed; update it in the way it was installed."
        )


def _fetched(functions: Functions, source: str, version: str) -> str:
    """Have the wheel in the minion's cache; return the directory of it."""
    if not source.endswith(".whl"):
        source = f"{source.rstrip('/')}/{NAME.replace('-', '_')}-{version}-py3-none-any.whl"
    try:
        path = functions["cp.cache_file"](source)
    except SaltException as err:
        raise SafeUpdateError(f"{source} cannot be fetched: {err}. Nothing was changed.") from err
    if not path:
        raise InputError(f"The master does not have {source}. Nothing was changed.")
    return os.path.dirname(str(path))
