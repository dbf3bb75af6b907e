"""
Services inside a transaction, where systemd does not run.

Before Salt asks whether a service runs, or restarts it, it checks whether a unit file in
``/etc/systemd/system`` is new. That needs systemd, so states with such a unit failed. When the
transaction is closed, systemd reads all unit files again before the service is restarted.

``service.running`` and ``service.dead`` do nothing without systemd, and report success. Their
wishes for the boot (``enable``, ``unmask``) only need files, so they are fulfilled here. The
outside learns whether a unit is enabled, because a boot starts only enabled units.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import salt.loader.lazy
import salt.utils.data

from .. import patches
from ..core.transactional import inside, services
from ..patches import Patch
from . import loaders

_FUNCTIONS = (
    *("available", "disable", "enable", "force_reload", "mask", "missing", "reload", "restart"),
    *("start", "status", "stop", "unmask"),
)
_STATES = ("dead", "running")
# Salt calls this first in each of the functions, to see whether there is such a unit.
_LOOK = "_check_for_unit_changes"
_AVAILABLE = "_check_available"
_NOTHING = "Nothing to do"
# Salt's answer for a service that it did not check.
_NOT_SEEN = (", and is in the desired state", ", but the service was already running")


def install(function: Any) -> None:
    """
    Do so in every loader of this process, including the loader of *function*.

    Raises UnknownSaltError, with nothing changed.
    """
    replace = loaders.around_load_module(
        {f"service.{name}": _without_looking for name in _FUNCTIONS},
        {f"service.{name}": _also_for_the_boot for name in _STATES},
    )
    patches.apply([Patch(salt.loader.lazy.LazyLoader, "_load_module", ("self", "name"), replace)])
    loaders.adopt(function)


def _without_looking(
    fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    module = inspect.unwrap(original).__globals__
    if _LOOK in module:
        module[_LOOK] = _nothing
    if _AVAILABLE in module:
        module[_AVAILABLE] = functools.partial(_has_file, module)
    return original(*args, **kwargs)


def _has_file(module: dict[str, Any], name: str) -> bool:
    """Tell whether the snapshot has a unit of that name: systemctl knows its state then."""
    argv = module["_systemctl_cmd"]("is-enabled", name)
    told = module["__salt__"]["cmd.run_all"](argv, python_shell=False, ignore_retcode=True)
    return told["stdout"].strip() not in ("", "not-found")


def _nothing(name: str) -> None:
    """Stand for the look at the unit file."""


def _also_for_the_boot(
    fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    ret = original(*args, **kwargs)
    if services.OFFLINE not in str(ret.get("comment")):
        return ret
    module = inspect.unwrap(original).__globals__
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    name, enable, more = given["name"], given.get("enable"), given.get("kwargs", {})
    told = []
    if more.get("unmask"):
        told.append(module["unmasked"](name, more.get("unmask_runtime", False)))
    if enable is not None:
        state = "enabled" if salt.utils.data.is_true(enable) else "disabled"
        told.append(module[state](name, **more))
    for each in told:
        ret["changes"].update(each.get("changes") or {})
        if ret["result"] is not False and each["result"] is not True:
            ret["result"] = each["result"]
    if told:
        ret["comment"] = ret["comment"].replace(_NOTHING, ". ".join(map(_said, told)))
    if not module["__opts__"]["test"]:
        enabled = bool(module["__salt__"]["service.enabled"](name))
        wish = {"action": services.AT_BOOT, "units": [name], "enabled": enabled}
        inside.ask(os.environ, wish)
    return ret


def _said(ret: dict[str, Any]) -> str:
    comment = str(ret["comment"])
    for words in _NOT_SEEN:
        comment = comment.replace(words, "")
    return comment
