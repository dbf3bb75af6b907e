"""Put the hooks into this process, once. Called by whatever Salt loads of us first."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from .core.settings import effective
from .factory import Factory, enabled

log = logging.getLogger(__name__)

_installed: dict[str, int] = {}


def install(opts: Mapping[str, Any]) -> bool:
    """
    Install the hooks where this minion is set up for them; say whether they are there.

    A child process has the hooks of its parent. What is not valid in the configuration is
    logged, and its default holds: an error would fail every job.
    """
    if _installed:
        return True
    if not enabled(opts):
        return False
    # Salt is imported here, and not by whoever only reads this module.
    from .minion import acks
    from .minion import intake as intake_hook
    from .ordering import hook as ordering_hook
    from .ordering import loaders, resume
    from .ordering.guard import Guard

    factory = Factory(opts)
    settings, problems = effective(opts.get("safeupdate"))
    for problem in problems:
        log.error("%s The default holds until that is corrected.", problem)
    guard = Guard(factory)
    ordering = ordering_hook.install(guard, resume.install(settings))
    loaders.install({**guard.handlers(), **ordering.handlers()})
    acks.install()
    if intake_hook.supported():
        intake_hook.install(settings)
    _installed["pid"] = os.getpid()
    log.debug("safeupdate: hooks installed")
    return True


def adopt(function: Any) -> None:
    """Guard the functions that the loader of *function* had loaded before :func:`install`."""
    if _installed:
        from .ordering import loaders

        loaders.adopt(function)


def installed_by() -> int:
    """Return the PID of the process that installed them for this one; 0 where none did."""
    return _installed.get("pid", 0)
