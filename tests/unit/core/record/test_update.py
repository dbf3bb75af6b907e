import dataclasses
import itertools

import pytest

from saltext_safeupdate.core.errors import TransitionError
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import ALLOWED, Phase
from saltext_safeupdate.core.record.update import Update

# Written out once more, by hand: a change of the table is a decision, not an accident.
EDGES = {
    "requested": "checking waiting cancelled failed",
    "checking": "staging waiting committed cancelled failed",
    "staging": "waiting cancelled failed",
    "waiting": "installing delivering postponed cancelled failed",
    "installing": "delivering committed rolling_back failed",
    "delivering": "repairing stepping waiting_for_boot restarting rolling_back failed",
    "repairing": "stepping rolling_back failed",
    "stepping": "restarting rolling_back failed",
    "waiting_for_boot": "stepping rolling_back failed",
    "restarting": "watching rolling_back failed",
    "watching": "committed rolling_back failed",
    "rolling_back": "rolled_back failed",
    "committed": "",
    "rolled_back": "",
    "postponed": "",
    "cancelled": "",
    "failed": "",
}


def _update(phase):
    return Update(id="u1", kind="update", phase=phase)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Phase, Phase)))
def test_every_pair_of_phases(old, new):
    if new.value in EDGES[old.value].split():
        assert _update(old).advance(new).phase is new
    else:
        with pytest.raises(TransitionError, match=f"u1 is {old.value}.*become {new.value}"):
            _update(old).advance(new)


def test_every_phase_is_in_the_table():
    assert {phase.value for phase in Phase} == set(EDGES)


@pytest.mark.parametrize("phase", Phase)
def test_final_means_no_way_out(phase):
    assert phase.final == (EDGES[phase.value] == "")


def _ways_out(phase):
    reached, todo = set(), [phase]
    while todo:
        for following in ALLOWED.get(todo.pop(), ()):
            if following not in reached:
                reached.add(following)
                todo.append(following)
    return reached


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_every_phase_can_fail_and_none_comes_again(phase):
    assert Phase.FAILED in ALLOWED[phase]
    assert phase not in _ways_out(phase)


def test_after_the_point_of_no_return_nothing_is_cancelled_or_postponed():
    assert not {Phase.CANCELLED, Phase.POSTPONED} & _ways_out(Phase.INSTALLING)


def test_advance_changes_what_it_is_told_and_nothing_else():
    old, progress = _update(Phase.WAITING), Progress(master=True)
    new = old.advance(Phase.POSTPONED, reason="later", progress=progress)
    assert new == dataclasses.replace(old, phase=Phase.POSTPONED, reason="later", progress=progress)
    assert old.phase is Phase.WAITING


def test_a_record_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        _update(Phase.WAITING).phase = Phase.FAILED
