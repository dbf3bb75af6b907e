"""
Whether jobs came while no generation heard them, although nobody had stopped the minion.

| before this generation | the record of | missed |
| --- | --- | --- |
| a restart by systemd, or a crash that the unit brought back | the unit | yes |
| a stop by somebody, and later a start | the unit | no |
| an installation between a stop and a start | the supervisor | yes |
| the same, without systemd | the supervisor | yes |
| Salt's parent process has started it again | the processes | yes |
| a handover | the generation before | no, it took all of them |
| a boot | nothing | no |
"""

import os
import time
from dataclasses import replace

import pytest

from saltext_safeupdate.core.generations import absence
from saltext_safeupdate.core.generations.absence import Absence
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.host.service import Interruption
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update

ME, UNIT = processes.me(), "salt-minion"
EARLIER = f"{processes.boot()}:999999999:1"


class Unit:
    def __init__(self, found=None):
        self.found = found

    def interruption(self, unit):
        assert unit == UNIT
        return self.found


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "safeupdate.db"))


def age():
    return processes.age(os.getpid())


def note_update(store, phase, restarted, now=None):
    update = Update(id="u", kind="update", created=1.0)
    update = store.save(update)
    began = None if restarted is None else time.time() - restarted
    store.save(replace(update, phase=phase, progress=replace(update.progress, restarted=began)))


def asked(store, unit=None):
    return absence.before(store, Unit(unit), UNIT, ME)


def test_what_the_unit_did_by_itself_is_an_absence(store):
    assert asked(store, Interruption(age() + 7.0, True)) == pytest.approx(age() + 7.0, abs=1.0)


def test_what_somebody_has_stopped_was_away(store):
    assert asked(store, Interruption(age() + 60.0, False)) is None
    assert asked(store) is None, "and so was a host that was off"


@pytest.mark.parametrize("unit", [True, False])
def test_an_update_that_was_under_way_has_brought_it_back(store, unit):
    note_update(store, Phase.WATCHING, age() + 30.0)
    found = asked(store, Interruption(age() + 40.0, False) if unit else None)
    assert found == pytest.approx(age() + (40.0 if unit else 30.0), abs=1.0)


@pytest.mark.parametrize(
    ("phase", "restarted"), [(Phase.RESTARTING, None), (Phase.RESTARTING, 0.0)], ids=str
)
def test_an_update_that_has_not_restarted_it_says_nothing(store, phase, restarted):
    note_update(store, phase, restarted)
    assert asked(store, Interruption(age() + 40.0, False)) is None


def test_an_update_that_was_over_before_says_nothing(store):
    store = Store(store.path, clock=lambda: time.time() - age() - 5.0)
    note_update(store, Phase.COMMITTED, age() + 30.0)
    assert asked(store, Interruption(age() + 2.0, False)) is None


def test_salts_parent_process_has_brought_it_back(store):
    """The one before began after the parent of this one, and is gone."""
    began = int(processes.start_time(os.getppid()))
    Generations(store).reports(f"{processes.boot()}:999999999:{began + 1}", Report(at=1.0))
    assert asked(store) == pytest.approx(age() + 15.0, abs=1.0)


def test_the_parent_of_another_start_has_not(store):
    began = int(processes.start_time(os.getppid()))
    Generations(store).reports(f"{processes.boot()}:999999999:{began - 1}", Report(at=1.0))
    assert asked(store) is None


@pytest.mark.parametrize("reported", [False, True])
@pytest.mark.parametrize("standing", [Standing.OVERLAPPING, Standing.LEAVING])
def test_in_a_handover_the_one_before_took_all_jobs(store, standing, reported):
    generations = Generations(store)
    generations.reports(EARLIER, Report(at=1.0))
    generations.stands(EARLIER, standing)
    generations.begins(ME)
    if reported:
        generations.reports(ME, Report(at=2.0, took=1.0))
        generations.reports("another", Report(at=3.0))
    assert asked(store, Interruption(age() + 2.0, True)) is None


@pytest.mark.parametrize(
    ("seconds", "covered"), [(94.0, False), (96.0, True), (130.0, True), (146.0, False)]
)
def test_what_came_before_or_after_it_was_heard(seconds, covered):
    assert Absence(began=140.0, ended=100.0).covers(seconds) is covered


def test_of_a_process_that_is_gone_nothing_is_known(store):
    assert absence.before(store, Unit(Interruption(9.0, True)), UNIT, EARLIER) is None


def test_it_ends_when_the_engine_begins_and_systemd_is_asked_once(store, monkeypatch):
    """A question may come before that; Salt may start the engine again."""
    unit = Unit(Interruption(age() + 7.0, True))
    (found,) = absence.of(store, unit, UNIT, ME)
    assert found == pytest.approx((age() + 7.0, 0.0), abs=1.0)
    absence.note(store, unit, UNIT, ME)
    later = processes.since_boot() + 2000.0
    monkeypatch.setattr(processes, "since_boot", lambda: later)
    absence.note(store, None, UNIT, ME)
    (found,) = absence.of(store, None, UNIT, ME)
    assert found.ended == pytest.approx(2000.0, abs=1.0)


def test_the_absences_before_earlier_generations_are_remembered_for_a_while(store, monkeypatch):
    """A master may ask after the next restart only, and a minion that is handed over has none."""
    absence.note(store, Unit(Interruption(age() + 2.0, True)), UNIT, ME)
    absence.note(store, Unit(), UNIT, EARLIER)
    (found,) = absence.of(store, None, UNIT, EARLIER)
    assert found.began == pytest.approx(age() + 2.0, abs=1.0)
    later = processes.since_boot() + 900.0
    monkeypatch.setattr(processes, "since_boot", lambda: later)
    assert absence.of(store, None, UNIT, EARLIER) == []


def test_those_of_another_boot_are_not(store, monkeypatch):
    absence.note(store, Unit(Interruption(age() + 2.0, True)), UNIT, ME)
    monkeypatch.setattr(processes, "boot", lambda: "another")
    assert absence.of(store, Unit(), UNIT, ME) == []
