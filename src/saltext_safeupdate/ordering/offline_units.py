"""
Inside a transaction: functions of services that do not ask systemd about unit files.

Before Salt asks whether a service runs, or restarts it, it looks whether a unit file in
``/etc/systemd/system`` is new. That needs systemd, which cannot be reached inside: so
``service.running`` with ``watch`` failed for such a unit. When the transaction is closed, systemd
reads all unit files anew before the service is restarted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import salt.loader.lazy

from .. import patches
from ..patches import Patch
from . import loaders

_FUNCTIONS = ("force_reload", "reload", "restart", "start", "status", "stop")
# What Salt calls first in each of these.
_LOOK = "_check_for_unit_changes"


def install(function: Any) -> None:
    """
    Have it so in every loader of this process, that of *function* included.

    Raises UnknownSaltError, with nothing changed.
    """
    handlers = {f"service.{name}": _without_looking for name in _FUNCTIONS}
    replace = loaders.around_load_module(handlers)
    patches.apply([Patch(salt.loader.lazy.LazyLoader, "_load_module", ("self", "name"), replace)])
    loaders.adopt(function)


def _without_looking(
    fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    module = inspect.unwrap(original).__globals__
    if _LOOK in module:
        module[_LOOK] = _nothing
    return original(*args, **kwargs)


def _nothing(name: str) -> None:
    """Stand for the look at the unit file."""
