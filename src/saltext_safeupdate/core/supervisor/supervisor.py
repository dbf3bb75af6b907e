"""
The program that updates and restarts the minion, outside its cgroup and without Salt.

It starts before anything changes, has everything it needs in memory, and holds the locks that keep
jobs from starting. If a job installs, the supervisor waits for the ``update`` lock, the baton of
that job. In an update by request, it installs by itself. In both cases it reads the record and
continues from there, whatever happened to the process that wrote it. Every step may be repeated.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..errors import (
    LockHeldError,
    LockUnavailableError,
    RecordError,
    SafeUpdateError,
    TransitionError,
)
from ..record.facts import RESTART, STEPS_BEGUN
from ..record.phase import BEFORE_INSTALLING, CHANGING, Phase
from ..record.update import Update
from . import (
    beside_jobs,
    drain,
    ending,
    installing,
    leaving,
    neighbours,
    requested,
    restarting,
    rollback,
    steps,
)
from .context import Context

log = logging.getLogger("salt-safeupdate")

# Attempts at a step whose program fails, and seconds between them.
_STEP_ATTEMPTS = 3
_STEP_INTERVAL = 1.0
# How many supervisors of one update, one after the other, may try before it is given up.
_MOST_SUPERVISORS = 12
# These errors do not count as a failure of a step: without the record and the locks no supervisor
# can continue or give up. The next supervisor may have them.
_OF_ALL = (LockHeldError, LockUnavailableError, RecordError, TransitionError)
# The action that continues from each phase.
_ACTIONS: dict[Phase, Callable[[Context, Update], Update]] = {
    Phase.INSTALLING: installing.carry_on,
    Phase.DELIVERING: restarting.deliver,
    Phase.REPAIRING: restarting.repair,
    Phase.STEPPING: restarting.step,
    Phase.WAITING_FOR_BOOT: restarting.wait_for_boot,
    Phase.RESTARTING: restarting.restart,
    Phase.WATCHING: restarting.judge,
    Phase.ROLLING_BACK: rollback.carry_on,
}


class Supervisor:
    """Completes the newest record."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def run(self) -> None:
        update = self._context.store.latest()
        while update is not None:
            _settle_former(self._context, update)
            with self._context.letting_go(), _joined(self._context, update) as context:
                update = _next(context, _to_its_end(context, update))
        leaving.finish(self._context)

    def let_go(self) -> None:
        """Release the locks that keep jobs and requests waiting."""
        self._context.let_jobs_start()
        self._context.locks.update.release()

    def is_needed(self) -> bool:
        """Tell whether there is work that arrived after the end of :meth:`run`."""
        store = self._context.store
        if not store.exists():
            return False
        latest = store.latest()
        open_ = latest is not None and not latest.phase.final and not latest.awaits_boot
        return open_ or store.fact(RESTART) is not None


@contextmanager
def _joined(context: Context, update: Update) -> Iterator[Context]:
    """Put in the installer of the update: this extension has its own, and so have slots."""
    if update.of_extension and context.extension is not None:
        context = replace(context, manager=None, pip=context.extension(update))
    if update.of_build:
        # Without slots, a later version made the update, and no package may change instead.
        slots = context.slots(update) if context.slots is not None else None
        context = replace(context, manager=None, pip=slots)
    with neighbours.joined(context, update) as joined:
        yield joined


def _settle_former(context: Context, update: Update) -> None:
    """Take back the steps of an earlier update that has ended without doing that."""
    begun = context.store.fact(STEPS_BEGUN)
    former = context.store.get(begun.update) if begun is not None else None
    if former is not None and former.id != update.id and former.phase.final:
        with _joined(context, former) as joined:
            steps.settle(joined, former)


def _to_its_end(context: Context, update: Update) -> Update:
    """Advance an update as far as possible now."""
    update = _take_over(context, update)
    if not update.phase.final:
        return _carry_on(context, update)
    ending.clean(context, update)
    if update.may_be_half_done:
        # It has failed in a job, or under an earlier version of this extension.
        done, _ = ending.complete(context, update)
        update = context.store.save(done)
    ending.tidy(context, update)
    return update


def _take_over(context: Context, update: Update) -> Update:
    """Get the baton; for a restart or a request, also wait until no job runs."""
    if update.phase.final:
        context.locks.update.exclusive()
        return context.reread(update)
    if update.kind == "restart" and update.phase in (Phase.REQUESTED, Phase.WAITING):
        drain.let_pass(context, update)
        if context.hands_over:
            update = drain.take_baton(context, update)
        else:
            # The obstacle may go: somebody ends a job of an earlier minion, or changes the unit.
            update = drain.wait_until_idle(context, update, lambda: context.hands_over)
        return update if update.phase.final else _begin_restart(context, update)
    if update.request is not None and update.phase in BEFORE_INSTALLING:
        return requested.prepare(context, update)
    if not update.beside_jobs:
        context.locks.drain.exclusive()
    context.locks.update.exclusive()
    update = context.reread(update)
    if update.beside_jobs and update.phase in CHANGING:
        beside_jobs.take_over(context)
    if update.phase.final or update.phase in BEFORE_INSTALLING:
        return update
    return context.note_progress(update, supervisors=(update.progress.supervisors or 0) + 1)


def _begin_restart(context: Context, update: Update) -> Update:
    store = context.store
    if update.phase is Phase.REQUESTED:
        update = store.save(update.advance(Phase.WAITING))
    return store.save(update.advance(Phase.DELIVERING))


def _carry_on(context: Context, update: Update) -> Update:
    """Continue, and retry if a program failed; after that, give the update up."""
    if (update.progress.supervisors or 0) > _MOST_SUPERVISORS:
        update = _give_up(context, update, f"{_MOST_SUPERVISORS} supervisors did not complete it.")
    attempts = _STEP_ATTEMPTS
    while not update.phase.final:
        phase = update.phase
        try:
            update = _step(context, update)
        except _OF_ALL:
            raise
        except SafeUpdateError as err:
            update = context.reread(update)
            attempts -= 1
            if attempts:
                log.warning("update %s: %s; trying again", update.id, err)
                context.sleep(_STEP_INTERVAL)
                continue
            update = _give_up(context, update, str(err))
        if update.phase is not phase:
            attempts = _STEP_ATTEMPTS
        elif update.awaits_boot:
            break
    return update


def _step(context: Context, update: Update) -> Update:
    """Advance by one phase."""
    action = _ACTIONS.get(update.phase)
    if action is None:
        reason = "The run ended before the update began; nothing was changed."
        return ending.end(context, update, Phase.FAILED, reason)
    return action(context, update)


def _give_up(context: Context, update: Update, problem: str) -> Update:
    """Roll back if there is a way back, otherwise say what to do."""
    if update.phase is Phase.ROLLING_BACK:
        return ending.end(context, update, Phase.FAILED, rollback.by_hand(update, problem))
    began = update.request is not None and update.phase is Phase.INSTALLING
    if began and _is_untouched(context, update):
        return ending.end(context, update, Phase.FAILED, requested.unchanged(problem))
    if update.has_way_back:
        return rollback.begin(context, update, problem)
    return ending.end(
        context,
        update,
        Phase.FAILED,
        f"{problem.removesuffix('.')}. The installed version may not be the running one: fix "
        "that, then restart the minion with 'safeupdate.restart'.",
    )


def _is_untouched(context: Context, update: Update) -> bool:
    """Tell whether nothing was changed; false if unknown."""
    try:
        return installing.is_untouched(context, update)
    except SafeUpdateError as err:
        log.error("update %s: cannot tell whether it has changed anything: %s", update.id, err)
        return False


def _next(context: Context, update: Update) -> Update | None:
    """Return the next record: a newer request, or a restart that is still owed."""
    latest = context.store.latest()
    found = latest if latest and latest.id != update.id and not latest.phase.final else None
    found = found or _owed_restart(context, update)
    if found is not None:
        context.let_jobs_start()
        context.locks.update.release()
    return found


def _owed_restart(context: Context, update: Update) -> Update | None:
    """Return the restart that this update superseded, or one requested while the update ended."""
    waits = update.awaits_boot
    owed = update.owed if waits or update.progress.restarted is None else None
    asked = context.store.fact(RESTART)
    owed = owed or asked
    if owed is None:
        return None
    restart = context.store.save(
        Update(
            id=uuid.uuid4().hex[:12],
            kind="restart",
            phase=Phase.WAITING,
            reason=owed.reason,
            jid=owed.jid,
            pid=os.getpid(),
            created=context.clock(),
            unit=update.unit,
            processes=owed.processes,
        )
    )
    if waits:
        context.note(update, owed=None)
    if asked:
        context.store.drop_fact(RESTART)
    return restart
