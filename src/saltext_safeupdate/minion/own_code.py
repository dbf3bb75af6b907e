"""
A minion that may be handed over reads its own copy of its code from its start on.

Then anybody may change packages while it runs, and neither the main process nor its jobs mix two
versions. Without the copy the minion works as usual. A minion that runs from a slot has its own
tree already: the slot is kept until the last of its processes has ended.

The copy is made while the minion waits for its master (:func:`take`). Redirecting a process to the
copy takes longer, so the main process does it when it is ready, or has waited for 5 seconds. Each
of its children that was forked before does it when it begins (:func:`read`).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import salt

from ..core.errors import SafeUpdateError
from ..core.extensions import ourselves
from ..core.extensions.upgrade import stamp
from ..core.generations import code, own_tree
from ..core.host import processes
from ..this_host import Host
from . import handing_over

log = logging.getLogger(__name__)

# Seconds between two checks for copies of generations that have ended.
_INTERVAL = 60.0
# Directories of a minion that it writes to and finds by their own paths.
_WRITTEN = ("cachedir", "extension_modules", "sock_dir", "pki_dir")

_tried: list[int] = []
# The functions that redirect this process to the copy; they run once.
_unread: list[Callable[[], None]] = []
# The stamp of this extension.
_extension: list[tuple[int, ...]] = []
# The directories whose code this process reads from a copy, and its slots.
_own: list[str] = []


def take(host: Host, redirect: Callable[[Mapping[str, str]], None]) -> None:
    """
    Copy the code, once in a process, if the minion may be handed over.

    *redirect* makes a process read the code below each root from its copy: :func:`read` calls it.
    """
    if _tried or not handing_over.is_set_up(host.opts, host.settings):
        return
    _tried.append(os.getpid())
    copies: dict[str, str] = {}
    try:
        roots = host.own_roots()
        if not roots:
            # Installing packages on a transactional system does not change the running code.
            return
        # The interpreter may be elsewhere.
        library = os.path.dirname(os.path.realpath(str(salt.__file__)))
        if slots := own_tree.slots_of([library], host.settings.slots_dir):
            # Nothing changes there, and a held slot is not removed.
            own_tree.hold(slots)
            _own[:] = slots
            return
        why_not = _obstacle(host, roots)
        if not why_not:
            copies = own_tree.make(roots, processes.me())
    except (OSError, SafeUpdateError) as err:
        why_not = str(getattr(err, "strerror", None) or err)
    if why_not:
        log.warning(
            "safeupdate: this minion reads no copy of its code (%s): jobs may fail while others "
            "change its packages",
            why_not,
        )
        return
    grains = host.opts.get("grains")
    if isinstance(grains, dict) and "pythonpath" in grains:
        # This list would change now.
        grains["pythonpath"] = list(sys.path)
    _own[:] = copies
    _unread.append(partial(redirect, copies))
    os.register_at_fork(after_in_child=read)
    log.debug("safeupdate: this minion reads its code from %s", ", ".join(copies.values()))


def read() -> None:
    """Make this process read its code from the copy, if it does not yet."""
    while _unread:
        _unread.pop()()


def has_ours() -> bool:
    """Tell whether this process reads the code of this extension from a copy, or from a slot."""
    home = os.path.realpath(ourselves.home())
    return not _unread and any(home.startswith(os.path.join(root, "")) for root in _own)


def remember(opts: Mapping[str, Any], *, more: bool = False) -> None:
    """
    Note the files that the main process of this minion has loaded, before it takes any job.

    Once some are noted, only *more* adds the ones that were loaded since.
    """
    # Others take care of files from the master, and of this extension.
    others = (opts.get("cachedir"), opts.get("extension_modules"), ourselves.home())
    code.remember((str(each or "") for each in others), more=more)
    if not _extension:
        _extension.append(stamp(ourselves.home()))


def loaded_extension() -> tuple[int, ...] | None:
    """Return the stamp of this extension when the main process has loaded it, if it is known."""
    return _extension[0] if _extension else None


def _obstacle(host: Host, roots: tuple[str, ...]) -> str:
    for name in _WRITTEN:
        place = os.path.realpath(str(host.opts.get(name) or "/"))
        if any(place.startswith(os.path.join(root, "")) for root in roots):
            return f"its {name} {place} is in the same directory"
    return ""


class Sweep:
    """Removes, now and then, the copies of generations that have ended."""

    def __init__(self, host: Host, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._monotonic = monotonic
        self._at = monotonic()

    def __call__(self) -> None:
        """Check for them if it is time. Raise OSError."""
        now = self._monotonic()
        if now >= self._at:
            self._at = now + _INTERVAL
            own_tree.sweep(self._host.own_roots())
