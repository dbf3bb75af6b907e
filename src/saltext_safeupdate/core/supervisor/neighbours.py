"""
The other minions that run from the packages of an update: the update is for all of them.

It also waits for their jobs, holds new ones, keeps their services from being restarted while
packages change, restarts all of them on the new code, and rolls all of them back. Their locks are
always taken in the order of their configuration files. :mod:`.one_at_a_time` makes sure that no two
of them update the same packages at once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import CommandError
from ..host.locks import Lock
from ..host.minions import Minion, registered
from ..host.service import Inhibitor
from ..record.update import Update
from ..settings import Settings
from . import other_units
from .context import Context

log = logging.getLogger("salt-safeupdate")


def of(settings: Settings, roots: Iterable[str]) -> tuple[Minion, ...]:
    """Return the other minions of this host that run from one of these directories."""
    wanted = set(roots)
    found = registered(settings.registry_dir) if wanted else []
    others = [each for each in found if each.state_dir != settings.state_dir]
    return tuple(
        sorted((each for each in others if wanted & set(each.roots)), key=lambda each: each.config)
    )


# -- locks -----------------------------------------------------------------------------


class Together(Lock):
    """A lock of this minion together with the same locks of others: all of them or none."""

    def __init__(self, own: Lock, others: Sequence[Lock]) -> None:
        self.name, self.path = own.name, own.path
        self.own, self.others = own, others

    @property
    def fd(self) -> int:
        return self.own.fd

    def try_exclusive(self) -> bool:
        taken: list[Lock] = []
        for lock in (*self.others, self.own):
            if not lock.try_exclusive():
                for each in taken:
                    each.release()
                return False
            taken.append(lock)
        return True

    def exclusive(self) -> None:
        # Our own comes last: a process that has it has all of them.
        for lock in (*self.others, self.own):
            lock.exclusive()

    def release(self) -> None:
        for lock in (self.own, *self.others):
            lock.release()

    def close(self) -> None:
        for lock in (*self.others, self.own):
            lock.close()


@contextlib.contextmanager
def joined(context: Context, update: Update) -> Iterator[Context]:
    """Make the locks and the service stand for all minions that the update is for."""
    others = context.others(update.code.roots) if update.kind == "update" else ()
    units = [*(each.unit for each in others), *(each.unit for each in update.code.servers)]
    if not units:
        yield context
        return
    context = replace(
        context, neighbours=tuple(others), inhibitor=with_units(context.inhibitor, units)
    )
    with context.letting_go(), contextlib.ExitStack() as stack:

        def together(own: Lock) -> Together:
            theirs = (contextlib.closing(Lock(each.run_dir, own.name)) for each in others)
            return Together(own, [stack.enter_context(lock) for lock in theirs])

        locks = context.locks
        yield replace(
            context,
            locks=replace(locks, jobs=together(locks.jobs), drain=together(locks.drain)),
        )


def take_jobs(
    others: Sequence[Minion], wait: Callable[[Callable[[], bool]], bool]
) -> tuple[list[Lock], str]:
    """
    Take the jobs locks of others exclusively; return them, or the minion whose jobs did not end.

    *wait* waits for a condition and tells whether it came true.
    """
    taken: list[Lock] = []
    for each in others:
        lock = Lock(each.run_dir, "jobs")
        taken.append(lock)
        if not wait(lock.try_exclusive):
            for other in taken:
                other.close()
            return [], str(each)
    return taken, ""


# -- services --------------------------------------------------------------------------


def with_units(inhibitor: Inhibitor, units: Sequence[str]) -> Inhibitor:
    """Return an inhibitor that inhibits *units* together with our own unit."""
    return _Inhibitors(inhibitor, units) if units else inhibitor


@dataclass
class _Inhibitors:
    own: Inhibitor
    units: Sequence[str]

    def inhibit(self, unit: str) -> None:
        for each in (*self.units, unit):
            self.own.inhibit(each)

    def resume(self, unit: str) -> None:
        for each in (*self.units, unit):
            self.own.resume(each)

    def release(self, unit: str) -> None:
        for each in (*self.units, unit):
            self.own.release(each)

    def inhibited(self, unit: str) -> bool:
        return any(self.own.inhibited(each) for each in (*self.units, unit))


# -- restart ---------------------------------------------------------------------------


def restart(context: Context, update: Update) -> tuple[Update, str]:
    """
    Restart them on the new code; return the record, and the first that does not come up.

    They restart before our own minion, which has the record. Their jobs are held until ours is up.
    """
    if not context.neighbours:
        return update, ""
    # It may give them another start.
    context.inhibitor.release(context.unit)
    update = _note(context, update)
    for each in _ran(context, update):
        other_units.renew(context, each.unit, update.progress.others[each.config])
    return update, comes_up(context, update)


def stop(context: Context, update: Update) -> Update:
    """Stop them, so that none runs the code that is rolled back; return the record."""
    if not context.neighbours:
        return update
    update = _note(context, update)
    for each in _ran(context, update):
        try:
            context.services.end(each.unit)
        except CommandError as err:
            log.error("%s could not be stopped: %s", each.unit, err)
    return update


def start(context: Context, update: Update) -> CommandError | None:
    """Start all that have run, even after a failure; return the first error. Idempotent."""
    return other_units.start(context, (each.unit for each in _ran(context, update)))


def comes_up(context: Context, update: Update) -> str:
    """Wait until all that have run are up and stay up; return which does not, or nothing."""
    problem = ""
    for each in _ran(context, update):
        found = other_units.not_up(context, each.unit, update.progress.others[each.config])
        if found:
            problem = problem or (
                f"{each.unit} of the minion {each}, which runs from the same packages, is "
                f"{found}. 'journalctl -u {each.unit}' says why."
            )
    return problem


def _note(context: Context, update: Update) -> Update:
    """Record once which of their starts have to end: they are the same after a crash."""
    if update.progress.others:
        return update
    starts = other_units.starts(context, (each.unit for each in context.neighbours))
    found = {each.config: starts[each.unit] for each in context.neighbours}
    return context.note(update, progress=replace(update.progress, others=found))


def _ran(context: Context, update: Update) -> list[Minion]:
    return [each for each in context.neighbours if update.progress.others.get(each.config)]
