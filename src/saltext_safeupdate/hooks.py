"""
Install the hooks in this process: all of them, or none.


The first part of this extension that Salt loads calls :func:`install`. If this Salt is not known,
or the database belongs to another minion of the host, nothing is replaced: jobs run as with plain
Salt, the log says so once, and ``safeupdate.check`` reports it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from . import patches
from .core.errors import SafeUpdateError
from .core.settings import of_minion
from .patches import Patch, UnknownSaltError
from .this_host import Host, enabled, is_salt_call

log = logging.getLogger(__name__)

OWN_PLACES = (
    "Give each minion of the host its own 'safeupdate:state_dir' and 'safeupdate:run_dir', or "
    "leave both out."
)

_installed: dict[str, int] = {}
_replaced: list[Patch] = []
_stood_down: list[str] = []
_foreign: list[str] = []


def install(opts: Mapping[str, Any]) -> bool:
    """
    Install the hooks if this minion is set up for them; return whether they are there.

    A child process has the hooks of its parent. An invalid setting is logged, and its default
    applies: an error would fail every job.
    """
    if _installed:
        return True
    if _stood_down or _foreign or not enabled(opts):
        return False
    for problem in of_minion(opts)[1]:
        log.error("%s The default applies until that is corrected.", problem)
    host = Host(opts)
    if _is_foreign(host):
        return False
    try:
        replaced = _table(host)
        from .minion import stacks

        patches.apply(replaced)
    except UnknownSaltError as err:
        _stood_down.append(str(err))
        log.error(
            "safeupdate: %s Install a version of saltext-safeupdate that knows this Salt.", err
        )
        return False
    stacks.leave_out_sources()
    _installed["pid"] = os.getpid()
    _replaced[:] = replaced
    log.debug("safeupdate: hooks installed")
    return True


def start(opts: Mapping[str, Any]) -> None:
    """Keep this process, the main one of a minion, and its children at one version of the code."""
    from .minion import ready

    ready.engines_end_with_it()
    if installed_by() != os.getpid():
        return
    ready.begin()
    ready.meanwhile(partial(_take_own_code, opts))
    ready.meanwhile(_import_for_jobs)
    ready.meanwhile(partial(_before_jobs, opts))


def _take_own_code(opts: Mapping[str, Any]) -> None:
    from .minion import own_code
    from .ordering import old_tree

    own_code.take(Host(opts), partial(old_tree.redirect, beside=True))


def _import_for_jobs() -> None:
    """Import most of what jobs need, also later: they may replace it."""
    from .minion import built, executor  # noqa: F401
    from .ordering import built as ordering_built  # noqa: F401
    from .ordering import of_packages, resume  # noqa: F401


def _before_jobs(opts: Mapping[str, Any]) -> None:
    """Note the code of the main process of a minion while no job has replaced any of it."""
    if installed_by() != os.getpid():
        return
    from .minion import own_code

    own_code.remember(opts, more=True)


def _once_ready() -> None:
    """Do the work in the main process of a minion that its start does not wait for."""
    if installed_by() != os.getpid():
        return
    from .minion import own_code, ready

    ready.end()
    own_code.read()
    ready.give_back()


def announce(opts: Mapping[str, Any]) -> None:
    """Tell the earlier minion of a handover that this one, the next, has the hooks."""
    if installed_by() != os.getpid():
        return
    from .minion import handing_over

    host = Host(opts)
    try:
        handing_over.announce(host.settings, host.store)
    except SafeUpdateError as err:
        # Then the earlier one takes no job.
        log.error("safeupdate: %s", err)


def table() -> list[Patch]:
    """Return the functions that are replaced in this process; empty if none are."""
    return list(_replaced)


def adopt(function: Any) -> None:
    """Guard the functions that the loader of *function* had loaded before :func:`install`."""
    if _installed:
        from .ordering import loaders

        loaders.adopt(function)


def returners(opts: Mapping[str, Any], functions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Salt's returners, for returns on behalf of a job."""
    from .ordering import loaders

    return loaders.returners(opts, functions)


def installed_by() -> int:
    """Return the PID of the process that installed the hooks for this one; 0 if none did."""
    return _installed.get("pid", 0)


def minion_has_them(opts: Mapping[str, Any]) -> bool:
    """Return whether the minion's main process has the hooks, and so its children have them."""
    if is_salt_call(opts) or not opts.get("multiprocessing", True):
        return installed_by() != 0
    # If the minion has none, the executor installs them in the job's own process.
    return installed_by() not in (0, os.getpid())


def is_late() -> bool:
    """
    Return whether this child of a minion is the first process with the hooks.

    The extension could not be loaded when the minion started: its main process has none.
    """
    return installed_by() == os.getpid()


def stood_down() -> str:
    """Return why this process has no hooks although it is set up; empty if it has."""
    return _stood_down[0] if _stood_down else ""


def foreign() -> str:
    """Return why the directories in this minion's settings are another minion's; empty if not."""
    return _foreign[0] if _foreign else ""


def _is_foreign(host: Host) -> bool:
    try:
        reason = host.claim()
    except SafeUpdateError as err:
        # Jobs run without a database as well.
        log.error("safeupdate: %s", err)
        return False
    if reason:
        _foreign.append(reason)
        log.error("safeupdate: %s %s", reason, OWN_PLACES)
    return bool(reason)


def _hands_over(host: Host) -> bool:
    from .minion import handing_over

    return handing_over.is_set_up(host.opts, host.settings)


def _table(host: Host) -> list[Patch]:
    """Return the functions to replace. Raise UnknownSaltError if Salt lacks even their modules."""
    try:
        # Imports Salt, so not at the top of this module.
        from .minion import patches as minion
        from .ordering import old_tree
        from .ordering import patches as ordering

        settings = host.settings
        later = ordering.Later(host, settings)
        serves = not is_salt_call(host.opts)
        return [
            *ordering.patches(later),
            *minion.patches(
                settings,
                old_tree.redirect,
                hands_over=serves and _hands_over(host),
                serves=serves,
                threads=not host.opts.get("multiprocessing", True),
                before_jobs=[partial(_before_jobs, host.opts)],
                when_ready=[later.build, _once_ready],
            ),
        ]
    except Exception as err:
        if _is_ours(err):
            # A part of this package is missing or cut short: it is only partly installed.
            raise
        # Any other error while ours is loaded leaves Salt as it is.
        if not isinstance(err, ImportError | AttributeError):
            patches.tell("the table of functions", err)
        raise patches.unknown([str(err) or type(err).__name__]) from err


def _is_ours(err: Exception) -> bool:
    package = __name__.partition(".")[0]
    if isinstance(err, SyntaxError):
        return os.path.dirname(os.path.abspath(__file__)) in str(err.filename)
    return isinstance(err, ImportError) and str(err.name).startswith(package)
