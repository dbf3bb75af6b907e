"""
The daemons of a master that run from the packages of an update: for them it is the same update.

They have no tree of their own, so they stop before packages change: the API and the syndic first,
so that nobody asks a master that goes, then the master, which ends what it has begun. They start
in the other order, each when the one before it works, and before the minion, which needs them to
prove itself. What does not work is taken back, with all of them.

A state run may need its master until its end. If it changes the packages, they run on meanwhile,
nobody else may restart them, and they restart when its return is delivered.
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

# Seconds that whoever has asked for the update gets to be answered, and between two looks at that.
_ANSWER_TIMEOUT = 30.0
_INTERVAL = 0.2


def stop(context: Context, update: Update, *, at_once: bool = False) -> Update:
    """
    Stop them; return the record. Idempotent.

    They have the time of their units to end what they do, unless it is to be *at_once*. Raises
    CommandError, also if one of them could not be started again; then none is stopped.
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
    """Tell whether the update has stopped them and not started them yet."""
    progress = update.progress
    asked = update.request is not None
    return asked and progress.restarted is None and any(progress.servers.values())


def restart(context: Context, update: Update) -> tuple[Update, str]:
    """
    Bring them up on the new code; return the record, and which of them does not work.

    If there is a way back, the first that does not is enough.
    """
    if not update.code.servers:
        return update, ""
    update = _note(context, update)
    context.inhibitor.release(context.unit)
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
    Have those that have run start anew; return what has failed, which keeps none down. Idempotent.
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
    Write down what runs now, if it is another start than that which has to go.

    Somebody has started it while packages changed, as what another unit needs: systemd refuses no
    such start. It has old and new code in it.
    """
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
    Wait until those that have run work and stay so; return which does not, or nothing.

    What has ended with them is started then.
    """
    problems = (_not_up(context, update, each) for each in _ran(update))
    problem = next(filter(None, problems), "")
    dependents.start(context, update)
    return problem


def start_again(context: Context, update: Update) -> None:
    """Start what an update has stopped that has failed. Idempotent; what fails is logged."""
    if other_units.start(context, (each.unit for each in _ran(update))):
        log.error("update %s has stopped what cannot be started again", update.id)
    dependents.start(context, update)


def grows(update: Update) -> list[str]:
    """Return the directories in which a way back leaves what came since: minions have new keys."""
    return [os.path.dirname(each.keys) for each in update.code.servers if each.keys]


def bereft(update: Update, before: Manifest, present: Manifest | None) -> set[str]:
    """
    Return the directories of keys that have lost all of them since *before*, as of *present*.

    Whoever takes single ones away has decided so. That all are gone is the new version's doing,
    whenever it was: they come back.
    """
    had, has = _with_keys(before), _with_keys(present) if present is not None else set()
    keys = [each.keys for each in update.code.servers if each.keys]
    lost = [each for each in keys if os.path.realpath(each) in had - has]
    return {os.path.dirname(each) for each in lost}


def taken_away(update: Update, before: Manifest, present: Manifest | None) -> set[str]:
    """
    Return the keys that somebody has taken away since *before*, as of *present*.

    Whatever packages do, they take no single key away: one that is put back would let a minion in
    that somebody has shut out. If none of them is there any more, that was not somebody.
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
    """Wait, bounded, until the master has the return of the job that has asked."""
    deadline = context.monotonic() + _ANSWER_TIMEOUT
    while context.monotonic() < deadline:
        found = context.outcome(jid) if jid else None
        if found is None or (found.ended and not context.undelivered(jid)):
            return
        context.sleep(_INTERVAL)


def _note(context: Context, update: Update) -> Update:
    """Write down once which of their starts have to go: they are the same after a crash."""
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
    # As long as a new minion has to prove itself: it may have much to read.
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
    """Tell whether something was in a directory when it was backed up."""
    if not update.way_back.backup:
        return False
    try:
        before = backup.load(update.way_back.backup)
    except VerificationError as err:
        log.warning("update %s: %s", update.id, err)
        return False
    return os.path.realpath(directory) in _with_keys(before)


def _holds(directories: set[str], path: str) -> bool:
    """Tell whether a path is that of a key in one of these, wherever links lead to it."""
    directory, name = os.path.split(path)
    return hosts.is_key(name) and os.path.realpath(directory) in directories


def _with_keys(manifest: Manifest) -> set[str]:
    """Return the directories with a file in them, wherever links lead to them."""
    files = (each.path for each in manifest.entries if stat.S_ISREG(each.mode))
    found = {os.path.dirname(path) for path in files if hosts.is_key(os.path.basename(path))}
    return {os.path.realpath(each) for each in found}
