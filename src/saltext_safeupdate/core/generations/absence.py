"""
When no generation of this minion heard its masters, although nobody had stopped it.

That is between two generations: in a restart, in an update, and after a crash from which the
supervisor, the unit or Salt's own parent process has brought the minion back. A host that was off
or unreachable, and a minion that somebody had stopped, were away for another reason.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ..host import processes
from ..host.service import Services
from ..record.store import Store
from ..record.typed import Fact
from .table import Generations

# Seconds by which times may be wrong: the question of the master took as long to arrive, and a
# minion that dies leaves the last messages unread.
_SLACK = 5.0
# The most seconds that Salt's parent process waits until it starts a minion that has failed again
# (12 in salt.scripts.salt_minion), and that the failed one took for its end.
_BY_PARENT = 15.0
# Seconds for which absences are remembered: the longest time that a master looks back.
_KEPT = 900.0
# The boot of each, and the age of the boot when it began and ended, in seconds.
_Noted = tuple[tuple[str, float, float], ...]
_NOTED: Fact[_Noted] = Fact("absences", _Noted)


class Absence(NamedTuple):
    """It *began* and *ended* so many seconds ago."""

    began: float
    ended: float

    def covers(self, age: float) -> bool:
        """Tell whether it was under way so many seconds ago."""
        return self.ended - _SLACK <= age <= self.began + _SLACK


def note(store: Store, services: Services, unit: str, main: str) -> None:
    """Note the absence before this generation: a master may ask the next one. May raise as of()."""
    found, now = before(store, services, unit, main), processes.since_boot()
    if found is not None:
        noted = (processes.boot(), now - found.began, now - found.ended)
        store.set_fact(_NOTED, (*_recent(store, now), noted))


def of(store: Store, services: Services, unit: str, main: str) -> list[Absence]:
    """
    Return the latest absences of the minion with the main process *main*.

    May raise SafeUpdateError: then they are not known.
    """
    now = processes.since_boot()
    found = [Absence(now - began, now - ended) for _, began, ended in _recent(store, now)]
    own = before(store, services, unit, main)
    return found if own is None else [*found, own]


def _recent(store: Store, now: float) -> _Noted:
    noted = store.fact(_NOTED) or ()
    return tuple(
        (boot, began, ended)
        for boot, began, ended in noted
        if boot == processes.boot() and now - ended < _KEPT
    )


def before(store: Store, services: Services, unit: str, main: str) -> Absence | None:
    """
    Return the absence before the generation with the main process *main*, if there was such a one.

    May raise SafeUpdateError: then it is not known.
    """
    age = processes.age(processes.pid(main))
    generations = Generations(store)
    if age is None or generations.follows_overlapping(main):
        return None
    began = _began(store, services, unit, main, age)
    if began is None:
        return None
    found = generations.of(main)
    report = found.report if found else None
    took = age if report is None or report.took is None else report.took
    return Absence(began, max(0.0, age - took))


def _began(store: Store, services: Services, unit: str, main: str, age: float) -> float | None:
    if _has_earlier_parent(store, main):
        return age + _BY_PARENT
    found = services.interruption(unit)
    supervised = _supervised(store, age)
    if found is not None:
        return found.began if found.by_itself or supervised is not None else None
    return supervised


def _has_earlier_parent(store: Store, main: str) -> bool:
    """Tell whether the generation and the one before it have the same parent process."""
    before = Generations(store).before(main)
    parent = processes.parent(processes.pid(main))
    if before is None or parent <= 1 or processes.alive(before):
        return False
    return processes.began_before(processes.identity(parent), before)


def _supervised(store: Store, age: float) -> float | None:
    """Return how long ago the supervisor ended the minion that ran before, if it did."""
    update = store.latest()
    began = None if update is None else update.progress.restarted
    if update is None or began is None:
        return None
    now = time.time()
    over = update.changed if update.phase.final else now
    return now - began if began <= now - age <= over else None
