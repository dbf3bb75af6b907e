"""
Decide whether the own packages may change while jobs run, and wait for what has to end first.

They may change if every running minion reads its own tree. Two kinds of processes remain: those
that read code where packages put it, and the package manager. They have a share of the ``packages``
lock. No new process gets a share while packages change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..errors import SafeUpdateError
from ..generations import meeting, own_tree
from ..generations.activation import Activation
from ..generations.table import Generations
from ..host import processes
from ..host.minions import Minion
from ..host.wait import Wait
from ..prepare.upgrade_steps import Steps
from ..record.store import Store
from ..record.update import Update
from ..settings import Settings
from .context import Context

log = logging.getLogger("salt-safeupdate")

_INTERVAL = 0.2
# Seconds for which a supervisor that takes over waits for processes that began meanwhile.
_TAKEN_OVER = 10.0
# Seconds for which an end waits until no earlier minion takes jobs. Each looks at the record about
# once a second; one with a master to which the next one is not connected serves for longer.
_LEFT = 10.0


class Host(Protocol):
    """The parts that an initiator and a supervisor have in common."""

    @property
    def settings(self) -> Settings: ...
    @property
    def store(self) -> Store: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def obstacle_to_handover(self) -> Callable[[], str]: ...


def whose(
    host: Host,
    roots: Sequence[str],
    others: Sequence[Minion],
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    replaces: bool = True,
) -> tuple[str, ...]:
    """
    Return the main processes whose jobs may run while the code in *roots* changes; empty if none.

    *others* are the other minions that run from there. *after* are the new versions, empty if
    unknown. No upgrade step may be due between them and *before*, because no job runs during a
    step. *replaces* tells whether that code is replaced; a slot is put next to it instead.
    """
    nowhere = replaces and not roots
    if host.settings.restart != "handover" or host.activation.by_boot or others or nowhere:
        return ()
    try:
        steps = Steps(host.settings.steps_dir, host.store)
        if steps.due(before, after) if after else steps.names():
            return ()
        running = Generations(host.store).with_own_tree()
    except (SafeUpdateError, OSError) as err:
        # Then the update waits for jobs, or says why it cannot.
        log.warning("cannot tell whether jobs may run during the update: %s", err)
        return ()
    whole = all(own_tree.of(roots, each).keys() >= set(roots) for each in running)
    if not running or not whole or not meeting.can_be_asked(host.settings.run_dir, running[-1]):
        return ()
    why_not = host.obstacle_to_handover()
    if why_not:
        # Jobs would run during the change, and the restart after it would wait for them.
        log.info("the update waits for jobs: %s", why_not)
    return () if why_not else tuple(running)


def wait(context: Context, update: Update, timeout: float | None) -> Update | None:
    """
    Wait until no process reads what is to change, at most *timeout* seconds; None: without limit.

    Return the record with the ``packages`` and ``update`` locks held, or without any lock if the
    update has ended meanwhile. Return None if a process still reads it.
    """
    locks = context.locks
    waits = None if timeout is None else Wait(timeout, context.monotonic)
    while not locks.packages.try_exclusive():
        now = context.reread(update)
        if now.phase.final:
            return now
        if waits is not None and waits.over:
            return None
        context.sleep(_INTERVAL)
    locks.update.exclusive()
    now = context.reread(update)
    if now.phase.final:
        locks.update.release()
        locks.packages.release()
    return now


def take_over(context: Context) -> None:
    """Prevent new readers of the packages from starting, as the previous supervisor has."""
    held = context.locks.packages.wait_exclusive(
        _TAKEN_OVER, clock=context.monotonic, sleep=context.sleep
    )
    if not held:
        log.warning("a process that began without a supervisor reads what is about to change")


def outside(context: Context) -> bool:
    """Tell whether the minion before the restart still takes jobs, outside of its unit."""
    return bool(context.generations.overlapping())


def have_it_leave(context: Context, update: Update) -> Update:
    """
    Have the minion before leave all jobs to the new one, which has shown that it works.

    Otherwise it would answer with its old version although the record says that the update is
    committed. Wait for it, within a limit, and return the record.
    """
    if not update.beside_jobs:
        return update
    if update.progress.proven is None:
        update = context.note_progress(update, proven=context.clock())
    waits = Wait(_LEFT, context.monotonic)
    while set(update.progress.beside).intersection(context.generations.overlapping()):
        if waits.over:
            log.warning("the minion before still takes jobs, and so does the new one")
            break
        context.sleep(_INTERVAL)
    return update


def is_kept(context: Context, update: Update) -> bool:
    """Tell whether nothing has been restarted, and the minion continues with its own tree."""
    if not update.beside_jobs or update.progress.restarted is not None:
        return False
    serving = context.generations.serving()
    return (
        serving is not None
        and serving.process in update.progress.beside
        and processes.alive(serving.process)
    )
