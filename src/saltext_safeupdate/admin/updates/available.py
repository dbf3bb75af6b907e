"""Which versions of Salt this minion could be updated to, and where each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import SafeUpdateError, one_line
from ...core.prepare import versions
from ...core.prepare.removed_modules import series
from ...core.slots import index
from ...core.slots.manifest import Manifest
from ...core.slots.offers import Offer
from ...this_host import Host
from . import builds
from .updating import Functions, refresh_index


def avail(
    host: Host, functions: Functions, source: object = None, *, refresh: bool = True
) -> dict[str, Any]:
    """Return what the package manager and the source of builds offer, by series, newest first."""
    place = builds.place(host, source)
    entries = list(_of_packages(host, refresh=refresh))
    problems = []
    if place == index.NAME:
        try:
            entries += [_of_index(each) for each in builds.of_index(host).versions()]
        except SafeUpdateError as err:
            problems.append(one_line(str(err)))
    for offer in builds.offered(host, functions, place):
        if offer.manifest is None:
            problems.append(one_line(f"{offer.file}: {offer.problem}"))
        else:
            entries.append(_of_build(offer, offer.manifest, place))
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(entries, key=lambda each: versions.key(each["version"]), reverse=True):
        found.setdefault(series(entry["version"].rpartition(":")[2]) or "other", []).append(entry)
    newest_first = sorted(found, key=versions.key, reverse=True)
    return {"versions": {name: found[name] for name in newest_first}, "problems": problems}


def _of_packages(host: Host, *, refresh: bool) -> Iterator[dict[str, Any]]:
    """Yield the versions in which each of the own packages is on offer, or installed."""
    manager, own = host.manager, sorted(host.own().names)
    if manager is None or not own:
        # Salt is from no package, as with pip.
        return
    if refresh:
        refresh_index(manager)
    installed = manager.installed(own)
    offered = [
        {*each, *([installed[name]] if name in installed else [])}
        for name, each in manager.candidates(own).items()
    ]
    for version in set.intersection(*offered):
        is_installed = all(installed.get(name) == version for name in own)
        yield {"version": version, "source": builds.PACKAGES, "installed": is_installed}


def _of_index(version: str) -> dict[str, Any]:
    return {"version": version, "source": index.NAME, "kind": "wheels", "problem": ""}


def _of_build(offer: Offer, build: Manifest, place: str) -> dict[str, Any]:
    return {
        "version": build.version,
        "source": place,
        "build": build.name,
        "kind": build.kind,
        "machine": build.machine,
        "size": build.size,
        "signed_by": offer.signed_by,
        "problem": builds.misfit(build),
    }
