"""
The daemons of a master that run from the packages of an update: the update is for them, too.

They have no tree of their own, so they stop before packages change. The API and the syndic stop
first, so that nobody asks a master that stops; then the master, which completes what it has begun.
They start in the opposite order, each when the one before it works, and before the minion, which
needs them to prove itself. If one does not work, all of them are rolled back.

A state run may need its master until its end. If it changes the packages, the daemons continue to
run, nobody else may restart them, and they restart when its return is delivered.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import CommandError, VerificationError
from ..host import backup
from ..host import servers as hosts
from ..host.backup import Manifest
from ..host.servers import MASTER, Server
from ..record.update import Update
from . import dependents, other_units
from .context import Context

log = logging.getLogger("salt-safeupdate")

# Seconds that the caller of the update gets to receive an answer, and between two checks of that.
_ANSWER_TIMEOUT = 30.0
_INTERVAL = 0.2


def note(context: Context, update: Update) -> Update:
    """
    Write down which run now and what ends with them, before any of it is done; return the record.

    After a power cut, the boot may not have come to them yet when they are to be stopped.
    """
    if not update.code.servers:
        return update
    found = other_units.starts(context, (each.unit for each in update.code.servers))
    update = context.note_progress(update, servers=found)
    return dependents.note(context, update, [unit for unit, start in found.items() if start])


def stop(context: Context, update: Update, *, at_once: bool = False) -> Update:
    """
    Stop them; return the record. Idempotent.

    They have the time of their units to end their work, unless it is to be *at_once*. A
    CommandError is also raised if one of them could not be started again; then none is stopped.
    """
    if not update.code.servers:
        return update
    update = _note(context, update)
    running = [each.unit for each in _ran(update) if context.services.state(each.unit).running]
    update = dependents.note(context, update, running)
    if running and not at_once:
        _refuse_what_cannot_start(context, running)
        _let_answer(context, update.jid)
    for each in reversed(_ran(update)):
        if not context.services.state(each.unit).running:
            continue
        log.info("stopping %s", each.unit)
        try:
            (context.services.end if at_once else context.services.stop)(each.unit)
        except CommandError as err:
            if not at_once:
                raise
            log.error("%s could not be stopped: %s", each.unit, err)
    return update


def are_down(update: Update) -> bool:
    """Tell whether the update has stopped the daemons and not started them yet."""
    progress = update.progress
    asked = update.request is not None
    return asked and progress.restarted is None and any(progress.servers.values())


def restart(context: Context, update: Update) -> tuple[Update, str]:
    """
    Start them on the new code; return the record, and which of them does not work.

    If there is a way back, stop at the first one that does not.
    """
    if not update.code.servers:
        return update, ""
    # It may give them another start.
    context.inhibitor.release(context.unit)
    update = _note(context, update)
    problem = ""
    for each in _ran(update):
        other_units.renew(context, each.unit, update.progress.servers[each.unit])
        problem = problem or _not_up(context, update, each)
        if problem and update.has_way_back:
            return update, problem
    dependents.start(context, update)
    return update, problem


def start(context: Context, update: Update) -> CommandError | None:
    """
    Start all daemons that have run again, even after a failure; return the first error. Idempotent.
    """
    first = None
    for each in _ran(update):
        try:
            other_units.renew(context, each.unit, update.progress.servers[each.unit])
        except CommandError as err:
            log.error("%s could not be started: %s", each.unit, err)
            first = first or err
    return first


def note_again(context: Context, update: Update) -> Update:
    """
    Record the start that runs now, if it is another one than the start that has to end.

    Scriptlets of packages, and other people, may start or restart a daemon while packages change.
    """
    if not _ran(update):
        return update
    context.inhibitor.resume(context.unit)
    found = dict(update.progress.servers)
    for each in _ran(update):
        state = context.services.state(each.unit)
        if state.running and state.invocation:
            found[each.unit] = state.invocation
    if found == update.progress.servers:
        return update
    return context.note(update, progress=replace(update.progress, servers=found))


def come_up(context: Context, update: Update) -> str:
    """
    Wait until the daemons that have run work and stay up; return which does not, or nothing.

    Then units that have ended with them are started.
    """
    problems = (_not_up(context, update, each) for each in _ran(update))
    problem = next(filter(None, problems), "")
    dependents.start(context, update)
    return problem


def start_again(context: Context, update: Update) -> None:
    """Start what a failed update has stopped. Idempotent; failures are logged."""
    if other_units.start(context, (each.unit for each in _ran(update))):
        log.error("update %s has stopped units that cannot be started again", update.id)
    dependents.start(context, update)


def grows(update: Update) -> list[str]:
    """Return the directories in which a rollback keeps new files: new minions have new keys."""
    return [os.path.dirname(each.keys) for each in update.code.servers if each.keys]


def bereft(update: Update, before: Manifest, present: Manifest | None) -> set[str]:
    """
    Return the directories of keys that have lost all their keys between *before* and *present*.

    Somebody may have deleted single keys on purpose. If all are gone, the new version has done it
    at some time: they are put back.
    """
    had, has = _with_keys(before), _with_keys(present) if present is not None else set()
    keys = [each.keys for each in update.code.servers if each.keys]
    lost = [each for each in keys if os.path.realpath(each) in had - has]
    return {os.path.dirname(each) for each in lost}


def taken_away(update: Update, before: Manifest, present: Manifest | None) -> set[str]:
    """
    Return the keys that somebody has deleted between *before* and *present*.

    Packages never delete a single key. A key that is put back would admit a minion that somebody
    has shut out. If all keys of a directory are gone, nobody has deleted them on purpose.
    """
    if present is None:
        return set()
    there = {each.path for each in present.entries}
    keys = {os.path.realpath(each.keys) for each in update.code.servers if each.keys}
    files = (each.path for each in before.entries if stat.S_ISREG(each.mode))
    had = {path for path in files if _holds(keys, path)}
    left = {os.path.dirname(path) for path in had & there}
    return {path for path in had - there if os.path.dirname(path) in left}


# -- how -----------------------------------------------------------------------------------


def _ran(update: Update) -> Sequence[Server]:
    ran = update.progress.servers
    return [each for each in hosts.in_order(update.code.servers) if ran.get(each.unit)]


def _let_answer(context: Context, jid: str) -> None:
    """Wait, within a time limit, until the master has the return of the requesting job."""
    deadline = context.monotonic() + _ANSWER_TIMEOUT
    while context.monotonic() < deadline:
        found = context.outcome(jid) if jid else None
        if found is None or (found.ended and not context.undelivered(jid)):
            return
        context.sleep(_INTERVAL)


def _note(context: Context, update: Update) -> Update:
    """Record once which of their starts have to end: they are the same after a crash."""
    if update.progress.servers:
        return update
    found = other_units.starts(context, (each.unit for each in update.code.servers))
    return context.note(update, progress=replace(update.progress, servers=found))


def _refuse_what_cannot_start(context: Context, units: Sequence[str]) -> None:
    for unit in units:
        if not context.services.can_start(unit):
            raise CommandError(("systemctl", "start", unit), hosts.cannot_start(unit))


def _not_up(context: Context, update: Update, server: Server) -> str:
    """Return what is wrong with it; empty if it works."""
    former, settings = update.progress.servers[server.unit], context.settings
    # As long as a new minion may take to prove itself: the daemon may have much to read.
    timeout = max(settings.watch_timeout, settings.restart_timeout)
    works = _works(context, update, server)
    found = other_units.not_up(context, server.unit, former, works, timeout)
    if not found:
        return ""
    return (
        f"{server.unit} ({server.program}), which runs from the same packages, is {found}. "
        f"'journalctl -u {server.unit}' and its log say why."
    )


def _works(context: Context, update: Update, server: Server) -> Callable[[], str]:
    if server.program != MASTER:
        return lambda: ""
    return lambda: hosts.missing(server, context.reaches, lambda keys: _had(update, keys))


def _had(update: Update, directory: str) -> bool:
    """Tell whether a directory contained something when it was backed up."""
    if not update.way_back.backup:
        return False
    try:
        before = backup.load(update.way_back.backup)
    except VerificationError as err:
        log.warning("update %s: %s", update.id, err)
        return False
    return os.path.realpath(directory) in _with_keys(before)


def _holds(directories: set[str], path: str) -> bool:
    """Tell whether a path is the path of a key in one of these, after following links."""
    directory, name = os.path.split(path)
    return hosts.is_key(name) and os.path.realpath(directory) in directories


def _with_keys(manifest: Manifest) -> set[str]:
    """Return the directories that contain a key, after following links."""
    files = (each.path for each in manifest.entries if stat.S_ISREG(each.mode))
    found = {os.path.dirname(path) for path in files if hosts.is_key(os.path.basename(path))}
    return {os.path.realpath(each) for each in found}
