"""Builds of Salt: their place, the build for a request, and whether it fits this host."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import salt.utils.url
from salt.exceptions import SaltException

from ...core.errors import InputError, SafeUpdateError, one_line
from ...core.extensions import ourselves
from ...core.extensions.interpreter import named_by
from ...core.host import command
from ...core.packages.choice import matches, of_series
from ...core.prepare import versions
from ...core.record.facts import UNSLOTTED
from ...core.slots import index
from ...core.slots.manifest import ANY_MACHINE, Manifest
from ...core.slots.offers import Directory, Offer, Source, offers
from ...this_host import Host

Functions = Mapping[str, Callable[..., Any]]

# The source that stands for the package manager.
PACKAGES = "packages"
_FILE = "file://"
_SALT = "salt://"
# The number of reasons in an error.
_MOST_NAMED = 3


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


def place(host: Host, source: object) -> str:
    """
    Return the place of builds, as requested or as set. Raise InputError if it is not allowed.

    A build runs as root. So the configuration of this minion lists the places of builds, and a
    caller chooses among them.
    """
    if source is None:
        return host.settings.slots_source
    allowed = (host.settings.slots_source, *host.settings.slots_sources)
    if not isinstance(source, str) or _plain(source) not in map(_plain, filter(None, allowed)):
        known = ", ".join(dict.fromkeys(filter(None, (PACKAGES, *allowed))))
        raise InputError(
            one_line(
                f"The 'source' {str(source)[:200]!r} is not one that this minion allows ({known}). "
                "Nothing was done; name one of these, or add it to 'safeupdate:slots_sources' in "
                "the configuration of the minion."
            )
        )
    return source


def _plain(source: str) -> str:
    """Return a place in the form in which it is compared."""
    return source.removeprefix(_FILE).rstrip("/")


def offered(host: Host, functions: Functions, where: str) -> Sequence[Offer]:
    """Return the offers of a source. Raise SafeUpdateError if it cannot be read."""
    if not where or where == index.NAME:
        return ()
    return offers(source(where, functions), keyring=host.settings.slots_keyring, run=command.run)


def source(where: str, functions: Functions) -> Source:
    if where.startswith(_SALT):
        return MasterFiles(where, functions)
    return Directory(where.removeprefix(_FILE))


def chosen(host: Host, functions: Functions, where: str, version: str | None) -> Manifest:
    """
    Return the build for a request: the newest of that version, or series, that fits.

    Among builds of one version, the one with its own Python comes first. Raise InputError, which
    lists the available ones, if no build fits, and SafeUpdateError if the source is unreadable.
    """
    found = offered(host, functions, where)
    sound = [each.manifest for each in found if each.manifest is not None]
    wanted = [each for each in sound if names(each.version, version)]
    fitting = [each for each in wanted if not misfit(each)]
    if not fitting:
        raise InputError(_none(where, version, found, wanted))
    return max(fitting, key=lambda each: (versions.key(each.version), not each.python, each.name))


def names(version: str, asked: str | None) -> bool:
    """Return whether a request names the version of a build; a series names all its versions."""
    return asked is None or matches(version, asked) or of_series(version, asked)


def _none(
    where: str, version: str | None, found: Sequence[Offer], wanted: Sequence[Manifest]
) -> str:
    reasons = [f"{each.name}: {misfit(each)}" for each in wanted]
    reasons += [f"{each.file}: {each.problem}" for each in found if each.problem]
    known = sorted({each.manifest.version for each in found if each.manifest}, key=versions.key)
    told = "".join(f" {one_line(reason)}" for reason in reasons[:_MOST_NAMED])
    return (
        f"{where} has no build of Salt {version or '(any version)'} for this host (on offer: "
        f"{', '.join(reversed(known)) or 'none'}).{told} Nothing was changed; put one there, or "
        "ask for one that is there."
    )


@contextlib.contextmanager
def fetched(
    host: Host, functions: Functions, where: str, build: Manifest
) -> Iterator[dict[str, str]]:
    """
    Provide the files of a build on this host, by their names; fetched ones are removed afterwards.

    If a manifest has no files next to it, they come from an index. Raise SafeUpdateError if a file
    is not available.
    """
    origin = source(where, functions)
    if build.files.keys().isdisjoint(origin.names()):
        with _index(host, build.python).files_of(build, host.settings.state_dir) as found:
            yield found
        return
    paths: dict[str, str] = {}
    try:
        for name in build.files:
            paths[name] = origin.path(name)
        yield paths
    finally:
        if isinstance(origin, MasterFiles):
            # The slot has a copy, and nothing else empties the cache of a minion.
            for path in paths.values():
                with contextlib.suppress(OSError):
                    os.unlink(path)


def misfit(build: Manifest) -> str:
    """Return why a build does not fit this host; empty if it does."""
    machine, ours = os.uname().machine, ourselves.running_version()
    if build.machine not in (ANY_MACHINE, machine):
        return f"It is for {build.machine}, and this host is {machine}."
    if build.python and not interpreter(build.python):
        return f"It needs Python {build.python}, which this host does not have."
    if versions.key(build.extension) > versions.key(ours):
        return f"It needs version {build.extension} of safeupdate, and this is {ours}."
    return ""


def of_index(host: Host) -> index.Index:
    """
    Return the index that pip is configured for. Raise SafeUpdateError if it cannot be used.

    Its wheels are for the Python that Salt runs with now, which has to be the host's own.
    """
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if host.settings.slots_keyring:
        raise SafeUpdateError(
            "'safeupdate:slots_keyring' requires signed builds, and nobody has signed the files of "
            "an index. Nothing was changed; use a directory of builds."
        )
    if not interpreter(minor):
        raise SafeUpdateError(
            f"Wheels of an index need Python {minor} outside of Salt, which this host lacks. "
            "Nothing was changed; install it, or use a build of the kind 'onedir'."
        )
    return _index(host, minor)


def _index(host: Host, minor: str) -> index.Index:
    """Return the index that pip is configured for: Salt's own pip, or the previous Salt's."""
    noted = host.store.fact(UNSLOTTED) if host.store.exists() else None
    before = named_by(noted.program) if noted is not None else None
    return index.Index([sys.executable, *([before] if before else [])], minor, command.run)


def newest_of_index(host: Host, version: str | None) -> str:
    """Return the newest requested version. Raise SafeUpdateError if the index has no such."""
    offered = of_index(host).versions()
    found = [each for each in offered if names(each, version)]
    if not found:
        raise InputError(
            f"The index that pip is configured for has no wheel of Salt {version} (on offer: "
            f"{', '.join(offered) or 'none'}). Nothing was changed; put one there, or ask for one "
            "that is there."
        )
    return max(found, key=versions.key)


def interpreter(version: str) -> str:
    """
    Return the path of that version of Python for wheels; empty if this host does not have it.

    The Python of a virtual environment does not count, although it comes first if one is
    activated: a slot would lose its interpreter with the environment.
    """
    places = (os.path.realpath(place) for place in os.get_exec_path() if os.path.isabs(place))
    lasting = (
        place
        for place in places
        if not os.path.exists(os.path.join(os.path.dirname(place), "pyvenv.cfg"))
    )
    return shutil.which(f"python{version}", path=os.pathsep.join(lasting)) or ""
