"""The table of the functions that the hooks of a minion replace."""

import pytest

from saltext_safeupdate.core.generations import replaced
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.replaced import Row
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.record.store import Store

METHOD = Row("salt.minion", "Minion", "handle", ("self", "data"))
WAITING = Row("salt.channel", "", "connect", (), True)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "safeupdate.db"))


def test_it_comes_back_as_it_was_written(store):
    Generations(store).reports("main", Report(at=1.0, hooked=True))
    replaced.note(store, [METHOD, WAITING])
    assert replaced.noted(store) == [METHOD, WAITING]


def test_a_minion_that_stands_down_already_is_kept_from_nothing(store):
    replaced.note(store, [METHOD])
    Generations(store).reports("main", Report(at=1.0, hooked=False))
    assert replaced.noted(store) == []


def test_without_a_database_there_is_none(store):
    assert replaced.noted(store) == []
