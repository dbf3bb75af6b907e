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
# With these arguments the functions do not touch the running system.
_HARMLESS = ("downloadonly", "download_only", "list_only", "test", "root", "installroot")
_PLAIN_VERSION = re.compile(r"^[A-Za-z0-9.+~:_-]+$")


def requested(
    fun: str, original: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Request | None:
    """Return what the call asks of the package manager; None if it changes nothing here."""
    if fun not in ACTIONS or any(salt.utils.data.is_true(kwargs.get(key)) for key in _HARMLESS):
        return None
    if any(kwargs.get(key) for key in ("root", "installroot")):
        return None
    try:
        bound = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    except TypeError:
        # The call will fail with the same complaint.
        return None
    given = {**bound, **bound.get("kwargs", {})}
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
    refresh_db = original.__globals__.get("refresh_db")
    if refresh_db is None or not salt.utils.data.is_true(kwargs.get("refresh", default)):
        return kwargs
    refresh_db()
    return {**kwargs, "refresh": False}
