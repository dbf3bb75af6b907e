"""
The versions on this minion, in the form in which a master keeps them for thousands.

It is asked often, so the package manager answers only if its database has changed.
"""

from __future__ import annotations

import importlib.metadata
import logging
from dataclasses import dataclass
from typing import Any

import salt.version

from ... import factory
from ...core.errors import RecordError, SafeUpdateError
from ...core.extensions import ourselves
from ...core.generations.generation import Report
from ...core.prepare import upgrade_steps
from ...core.record.phase import Phase
from ...core.record.typed import Fact
from ...core.record.update import Update
from ...this_host import Host
from ..status import check, provenance, status

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Installed:
    """The answer of the package manager while its database had this *stamp*."""

    stamp: tuple[Any, ...]
    installed: str
    build: str
    way: str


_INSTALLED: Fact[_Installed] = Fact("installed", _Installed)


def running() -> dict[str, Any]:
    """Return what this process can tell without looking anything up."""
    version = str(salt.version.__version__)
    return {
        "version": version,
        "running": version,
        "installed": "",
        "intended": "",
        "extension": ourselves.running_version(),
        "extension_on_disk": ourselves.version_in(ourselves.home()),
        "build": "",
        "way": "unknown",
        "last_result": "",
        "quarantined": [],
        "problems": [],
    }


def known(host: Host) -> dict[str, Any]:
    """Return what is installed, what was asked for, and what is wrong. Raise RecordError."""
    exists = host.store.exists()
    updates = host.store.updates() if exists else []
    asked = [each for each in updates if each.kind == "update"]
    ended = next((each.phase.value for each in asked if each.phase.final), "")
    rows = host.store.quarantined() if exists else []
    return {
        **_serving(status.serving(host, updates[0] if updates else None)),
        **installed(host),
        "intended": next(filter(None, map(_intended, asked)), ""),
        "last_result": ended,
        "quarantined": sorted({row.version for row in rows}),
        "problems": check.quick(host),
    }


def _serving(report: Report | None) -> dict[str, str]:
    if report is None:
        return {}
    return {"version": report.version, "running": report.version, "extension": report.extension}


def _intended(update: Update) -> str:
    """Return the version that an update was to bring; empty if it was called off."""
    if update.of_extension or update.phase in (Phase.CANCELLED, Phase.POSTPONED):
        return ""
    asked = update.request.version if update.request is not None else None
    target = upgrade_steps.of_salt(update.versions_from, update.versions_to)[1]
    return without_epoch(target) or asked or ""


def installed(host: Host) -> dict[str, str]:
    """Return the version that is on disk, its package, and how it came there."""
    try:
        return _installed(host)
    except RecordError:
        raise
    except SafeUpdateError as err:
        log.warning("safeupdate: what is installed is not known: %s", err)
        return {"installed": "", "build": "", "way": "unknown"}


def _installed(host: Host) -> dict[str, str]:
    manager, slot = host.manager, factory.active_slot(host)
    if slot is not None:
        return {"installed": slot.build_version, "build": slot.build_version, "way": "slot"}
    if manager is None:
        return _by_pip()
    stamp = (manager.name, *host.settings.packages, *manager.stamp())
    cached = host.store.replaceable(_INSTALLED)
    if cached is not None and cached.stamp == stamp:
        return {key: getattr(cached, key) for key in ("installed", "build", "way")}
    found = _by_pip()
    if not provenance.not_from_packages(host):
        versions = manager.installed(host.own().names)
        build = upgrade_steps.of_salt(versions, versions)[1]
        found = {"installed": without_epoch(build), "build": build, "way": manager.name}
    if host.store.exists():
        host.store.set_fact(_INSTALLED, _Installed(stamp=stamp, **found))
    return found


def _by_pip() -> dict[str, str]:
    """Return the version in the metadata next to Salt's code."""
    try:
        found = importlib.metadata.distribution("salt")
    except importlib.metadata.PackageNotFoundError:
        return {"installed": "", "build": "", "way": "unknown"}
    installer = (found.read_text("INSTALLER") or "").strip()
    way = "pip" if installer in ("pip", "uv") else "unknown"
    return {"installed": found.version, "build": "", "way": way}


def without_epoch(version: str) -> str:
    epoch, _, rest = version.partition(":")
    return rest if epoch.isdigit() and rest else version
