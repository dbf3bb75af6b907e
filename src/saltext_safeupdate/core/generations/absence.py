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
# The main process of each generation, and the age of the boot when its absence began and ended, in
# seconds. It did not begin (None) if no job can have been missed.
_Noted = tuple[tuple[str, float | None, float], ...]
_NOTED: Fact[_Noted] = Fact("absences", _Noted)


class Absence(NamedTuple):
    """It *began* and *ended* so many seconds ago."""

    began: float
    ended: float

    def covers(self, age: float) -> bool:
        """Tell whether it was under way so many seconds ago."""
        return self.ended - _SLACK <= age <= self.began + _SLACK


def note(store: Store, services: Services, unit: str, main: str) -> None:
    """Note the absence before this generation: masters may ask, also the next one. As of()."""
    noted = _recent(store, main)
    if all(each != main for each, *_ in noted):
        store.set_fact(_NOTED, (*noted, _now(store, services, unit, main)))


def of(store: Store, services: Services, unit: str, main: str) -> list[Absence]:
    """
    Return the latest absences of the minion with the main process *main*.

    May raise SafeUpdateError: then they are not known.
    """
    noted = _recent(store, main)
    if all(each != main for each, *_ in noted):
        # Its engine has not begun.
        noted = (*noted, _now(store, services, unit, main))
    now = processes.since_boot()
    return [Absence(now - began, now - ended) for _, began, ended in noted if began is not None]


def _recent(store: Store, main: str) -> _Noted:
    boot, oldest = f"{processes.boot()}:", processes.since_boot() - _KEPT
    noted = store.fact(_NOTED) or ()
    ours = (row for row in noted if row[0].startswith(boot))
    return tuple(row for row in ours if row[2] > oldest or row[0] == main)


def _now(store: Store, services: Services, unit: str, main: str) -> tuple[str, float | None, float]:
    ago, now = before(store, services, unit, main), processes.since_boot()
    return main, None if ago is None else now - ago, now


def before(store: Store, services: Services, unit: str, main: str) -> float | None:
    """
    Return how long ago the absence before the generation with the main process *main* began.

    None if it missed no job. May raise SafeUpdateError: then it is not known.
    """
    age = processes.age(processes.pid(main))
    if age is None or age > _KEPT or Generations(store).follows_overlapping(main):
        return None
    return _began(store, services, unit, main, age)


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
