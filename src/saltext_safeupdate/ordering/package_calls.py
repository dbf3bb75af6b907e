"""What a call of ``pkg.install`` or its like asks of the package manager."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import salt.utils.data

from ..core.packages.request import Action, Request

ACTIONS = {
    "pkg.install": Action.INSTALL,
    "pkg.remove": Action.REMOVE,
    "pkg.purge": Action.PURGE,
    "pkg.upgrade": Action.UPGRADE,
    "pkg.update": Action.UPGRADE,
    "pkg.autoremove": Action.AUTOREMOVE,
}
# Arguments that leave the running system alone, in a function that has a parameter of that name:
# switches, and the directory of another system. Every other function ignores them.
_SWITCHES = ("downloadonly", "download_only", "dryrun", "list_only")
_ROOTS = ("installroot", "root")
# Functions that take switches from their keyword arguments, by the file of their module.
_TAKEN = {("aptpkg", "upgrade"): ("downloadonly", "download_only")}
# Those that make options of yum or dnf of them: of True a switch, of a text an option.
_OPTIONS = (("yumpkg", "update"), ("yumpkg", "upgrade"))
_PLAIN_VERSION = re.compile(r"^[A-Za-z0-9.+~:_-]+$")


def requested(
    fun: str, original: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Request | None:
    """Return what the call asks of the package manager; None if it changes nothing here."""
    if fun not in ACTIONS:
        return None
    try:
        bound = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    except TypeError:
        # The call will fail with the same complaint.
        return None
    given = {**bound, **bound.get("kwargs", {})}
    if _leaves_the_system_alone(original, given):
        return None
    targets = tuple(_targets(given))
    files = tuple(
        str(path)
        for source in given.get("sources") or ()
        for path in (source.values() if isinstance(source, dict) else (source,))
        if os.path.isabs(str(path))
    )
    sourced = tuple(
        (str(name), None)
        for source in given.get("sources") or ()
        if isinstance(source, dict)
        for name, path in source.items()
        if not os.path.isabs(str(path))
    )
    action = ACTIONS[fun]
    if given.get("advisory_ids"):
        # Nobody can say beforehand which packages a patch holds.
        action = Action.UPGRADE
    return Request(
        action=action,
        targets=targets + sourced,
        files=files,
        release=str(given["fromrepo"]) if given.get("fromrepo") else None,
        full=bool(given.get("dist_upgrade")),
    )


def _leaves_the_system_alone(original: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Tell whether the function only looks, downloads, or changes another system."""
    plain = inspect.unwrap(original)
    place = (str(plain.__globals__.get("__name__", "")).rpartition(".")[2], plain.__name__)
    honoured = {*inspect.signature(original).parameters, *_TAKEN.get(place, ())}
    if any(given.get(key) for key in _SWITCHES if key in honoured):
        return True
    if place in _OPTIONS:
        root = given.get("installroot")
        return given.get("downloadonly") is True or (isinstance(root, str) and _elsewhere(root))
    return any(_elsewhere(given.get(key)) for key in _ROOTS if key in honoured)


def _elsewhere(root: object) -> bool:
    return bool(root) and os.path.realpath(str(root)) != "/"


def _targets(given: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    if given.get("sources"):
        return
    pkgs = given.get("pkgs")
    if pkgs:
        for entry in pkgs if isinstance(pkgs, list | tuple) else [pkgs]:
            if isinstance(entry, dict):
                for name, version in entry.items():
                    yield str(name), _version(version)
            else:
                yield str(entry), None
    elif given.get("name"):
        names = str(given["name"]).split(",")
        version = _version(given.get("version")) if len(names) == 1 else None
        for name in names:
            yield name.strip(), version


def _version(given: Any) -> str | None:
    """Return a plain version; a condition or pattern is resolved by Salt's package module."""
    text = str(given or "")
    return text if _PLAIN_VERSION.match(text) and text != "latest" else None


def refresh_first(original: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """
    Refresh the metadata now if the call would; return the arguments for the call without that.

    So the simulation and the call see the same versions.
    """
    parameter = inspect.signature(original).parameters.get("refresh")
    default = parameter.default if parameter is not None else False
    refresh_db = inspect.unwrap(original).__globals__.get("refresh_db")
    if refresh_db is None or not salt.utils.data.is_true(kwargs.get("refresh", default)):
        return kwargs
    refresh_db()
    return {**kwargs, "refresh": False}
