"""Which versions of Salt this minion could be updated to, and where each of them is."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import salt.utils.url
from salt.exceptions import SaltException

from ...core.errors import InputError, SafeUpdateError, one_line
from ...core.extensions import ourselves
from ...core.host import command
from ...core.prepare import versions
from ...core.prepare.removed_modules import series
from ...core.slots.manifest import ANY_MACHINE, Manifest
from ...core.slots.offers import Directory, Offer, Source, offers
from ...this_host import Host
from .updating import Functions, refresh_index

_PACKAGES = "packages"
_FILE = "file://"
_SALT = "salt://"


class MasterFiles:
    """A directory of the master's file server."""

    def __init__(self, place: str, functions: Functions) -> None:
        self.place = place
        self._functions = functions
        self._top, self._saltenv = salt.utils.url.parse(place.rstrip("/"))
        self._top = self._top.strip("/")

    def names(self) -> Sequence[str]:
        prefix = f"{self._top}/" if self._top else ""
        where = {"saltenv": self._saltenv} if self._saltenv else {}
        try:
            found = self._functions["cp.list_master"](prefix=prefix, **where)
        except SaltException as err:
            raise SafeUpdateError(
                f"The builds in {self.place} cannot be listed: {err}. Nothing was changed; ask "
                "again when the master can be reached."
            ) from err
        below = [str(path).removeprefix(prefix) for path in found or ()]
        return [path for path in below if path and "/" not in path]

    def path(self, name: str) -> str:
        url = salt.utils.url.create(posixpath.join(self._top, name), self._saltenv)
        try:
            found = self._functions["cp.cache_file"](url)
        except SaltException as err:
            raise SafeUpdateError(f"{url} cannot be fetched: {err}. Nothing was changed.") from err
        if not found:
            raise SafeUpdateError(f"The master does not have {url}. Nothing was changed.")
        return str(found)


def avail(
    host: Host, functions: Functions, source: object = None, *, refresh: bool = True
) -> dict[str, Any]:
    """Return what the package manager and the source of builds offer, by series, newest first."""
    place = _place(host, source)
    entries = list(_of_packages(host, refresh=refresh))
    problems = []
    for offer in _offers(host, functions, place):
        if offer.manifest is None:
            problems.append(one_line(f"{offer.file}: {offer.problem}"))
        else:
            entries.append(_of_build(offer, offer.manifest, place))
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(entries, key=lambda each: versions.key(each["version"]), reverse=True):
        found.setdefault(series(entry["version"].rpartition(":")[2]) or "other", []).append(entry)
    newest_first = sorted(found, key=versions.key, reverse=True)
    return {"versions": {name: found[name] for name in newest_first}, "problems": problems}


def _place(host: Host, source: object) -> str:
    if source is None:
        return host.settings.slots_source
    if not isinstance(source, str) or not source.startswith(("/", _FILE + "/", _SALT)):
        raise InputError(
            "'source' must be an absolute path, or a salt:// path of a directory. Nothing was done."
        )
    return source


def _offers(host: Host, functions: Functions, place: str) -> Sequence[Offer]:
    if not place:
        return ()
    source: Source
    if place.startswith(_SALT):
        source = MasterFiles(place, functions)
    else:
        source = Directory(place.removeprefix(_FILE))
    return offers(source, keyring=host.settings.slots_keyring, run=command.run)


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
        yield {"version": version, "source": _PACKAGES, "installed": is_installed}


def _of_build(offer: Offer, build: Manifest, place: str) -> dict[str, Any]:
    return {
        "version": build.version,
        "source": place,
        "build": build.name,
        "kind": build.kind,
        "machine": build.machine,
        "size": build.size,
        "signed_by": offer.signed_by,
        "problem": _misfit(build),
    }


def _misfit(build: Manifest) -> str:
    """Say why a build does not fit this host; empty if it does."""
    machine, ours = os.uname().machine, ourselves.running_version()
    if build.machine not in (ANY_MACHINE, machine):
        return f"It is for {build.machine}, and this host is {machine}."
    if build.python and not shutil.which(f"python{build.python}"):
        return f"It needs Python {build.python}, which this host does not have."
    if versions.key(build.extension) > versions.key(ours):
        return f"It needs version {build.extension} of safeupdate, and this is {ours}."
    return ""
