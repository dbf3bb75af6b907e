"""An update of this extension: what it comes to, its download, and what speaks against it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from salt.exceptions import SaltException

from ..core.errors import InputError, SafeUpdateError
from ..core.extensions import ourselves
from ..core.host import locks
from ..core.prepare import resolution
from ..core.prepare.own_extension import NAME, OwnExtension
from ..core.prepare.resolution import Resolved, Resolver
from ..core.prepare.staging import EXTENSION
from ..factory import Factory
from .updates import Functions

_BUSY = (
    "An update of the minion is under way, or a download. Nothing was changed; wait for its end "
    "('safeupdate.status')."
)


def stage(factory: Factory, functions: Functions, version: str) -> Resolved:
    """
    Download that version and verify it; return what the request for it comes to.

    Raise SafeUpdateError if anything speaks against it.
    """
    resolver = _resolver(factory, functions, version)
    wanted = replace(resolution.request(version, when="now"), extension=True)
    resolved = resolver.resolve(wanted)
    resolver.refuse(resolved)
    if not resolved.in_place:
        lock = locks.acquire(factory.settings.run_dir, "update", _BUSY)
        try:
            staging = factory.staging(resolver.installer)
            staging.drop_altered(resolved.targets)
            staging.stage(resolved.targets)
        finally:
            lock.close()
    return resolved


def runs(version: str) -> bool:
    return ourselves.running_version() == version


def is_there(factory: Factory, version: str) -> bool:
    """Tell whether the version is staged, or installed."""
    if ourselves.version_in(ourselves.home()) == version:
        return True
    staged = factory.store.fact(EXTENSION)
    return staged is not None and staged.targets == {NAME: version}


def initiator(factory: Factory, jid: str) -> Any:
    """Return what begins an update of this extension."""
    by, home = factory.initiator(jid), ourselves.home()
    roots = by.installation.roots
    if not any(home.startswith(root + os.sep) for root in roots):
        roots = (*roots, home)
    installation = replace(by.installation, own=(NAME,), roots=roots)
    return replace(by, manager=None, pip=factory.extension(), installation=installation)


def _resolver(factory: Factory, functions: Functions, version: str) -> Resolver:
    installer = factory.extension()
    _refuse(factory, installer)
    source = factory.settings.extension_source
    if source.startswith("salt://"):
        installer = factory.extension(_fetched(functions, source, version))
    return Resolver(
        installer=installer,
        own=(NAME,),
        store=factory.store,
        revisions=factory.revisions,
        staged={},
        steps_dir=factory.settings.steps_dir,
    )


def _refuse(factory: Factory, installer: OwnExtension) -> None:
    manager = factory.manager
    if manager is not None and manager.snapshots is not None:
        raise SafeUpdateError(
            "On a transactional system the extension is installed in a transaction. Nothing was "
            "changed; use 'transactional_update.pip_install' or a state, and reboot."
        )
    unowned = manager.unowned([installer.file]) if manager is not None else [installer.file]
    problem = installer.problem(unowned)
    if problem:
        raise SafeUpdateError(f"{problem} Nothing was changed; update it in the way it came.")


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
