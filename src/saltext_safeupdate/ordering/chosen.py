"""The exact versions that Salt's package module chooses for patterns and comparisons."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import salt.utils.pkg
from salt.exceptions import CommandExecutionError

from ..core.packages.request import Request
from .package_calls import REPOSITORIES, Call

log = logging.getLogger(__name__)


def exactly(request: Request, call: Call) -> Request:
    """
    Return the request with the version that the call would choose for each of its packages.

    The package manager takes a remaining pattern or comparison unchanged, or refuses it.
    """
    if not any(version for _, version in request.targets):
        return request
    given = call.given
    functions = inspect.unwrap(call.original).__globals__
    return replace(
        request,
        targets=tuple(
            (name, _version(name, version, functions, given)) for name, version in request.targets
        ),
    )


def _version(
    name: str, asked: str | None, functions: Mapping[str, Any], given: Mapping[str, Any]
) -> str | None:
    """Return the newest version on offer that is meant, else what was asked for."""
    # Salt's modules give it to the package manager without the sign.
    version = (asked or "").lstrip("= ")
    if not version:
        return None
    compared = version[0] in "<>"
    # apt takes patterns itself.
    apt = str(functions.get("__name__", "")).endswith("aptpkg")
    if not compared and ("*" not in version or apt):
        return version
    offered = _on_offer(name, functions, given)
    if compared:
        found = salt.utils.pkg.match_version(
            version,
            offered,
            cmp_func=functions.get("version_cmp"),
            ignore_epoch=bool(given.get("ignore_epoch")),
        )
    else:
        # On rpm's systems, a pattern is seldom meant to name the epoch.
        found = next(
            (
                each
                for each in offered
                if fnmatch(each, version) or fnmatch(each.rpartition(":")[2], version)
            ),
            None,
        )
    return str(found) if found else version


def _on_offer(name: str, functions: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return the versions on offer in the repositories of the call, newest first."""
    list_repo_pkgs = functions.get("list_repo_pkgs")
    if list_repo_pkgs is None:
        return []
    options = {key: given[key] for key in REPOSITORIES if given.get(key)}
    try:
        return [str(each) for each in list_repo_pkgs(name, byrepo=False, **options).get(name, ())]
    except CommandExecutionError as err:
        # The call meets the same error, and says so.
        log.debug("the versions of %s cannot be listed: %s", name, err)
        return []
