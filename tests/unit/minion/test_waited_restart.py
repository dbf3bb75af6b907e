"""A restart that waits for jobs although it was not to is told of once."""

import pytest

from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion.waited_restart import WaitedRestart


class Minion:
    """What an engine finds, and what its master takes."""

    def __init__(self, path):
        self.path, self.told, self.takes = path, [], True
        self.store = Store(str(path / "db"))
        self.starts()

    def starts(self):
        waited = WaitedRestart(str(self.path), self.store, self._send)
        self.looks, self.is_current = waited.look, waited.is_current

    def waits(self, why):
        (self.path / "waited").write_text(why)

    def _send(self, why):
        self.told.append(why)
        return self.takes


@pytest.fixture
def minion(tmp_path):
    return Minion(tmp_path)


def test_without_one_nothing_is_told(minion):
    minion.looks()
    assert minion.told == []
    assert not minion.store.exists()


def test_one_is_told_once_also_by_the_next_minion(minion, caplog):
    minion.waits("it did not answer in time\n")
    for _ in range(3):
        minion.looks()
    minion.starts()
    minion.looks()
    assert minion.told == ["it did not answer in time"]
    assert caplog.text.count("has waited for jobs") == 1


def test_until_a_master_takes_it_there_is_something_to_do(minion):
    assert not minion.is_current(), "it has not looked yet"
    minion.looks()
    assert minion.is_current()
    minion.takes = False
    minion.waits("a")
    minion.looks()
    assert not minion.is_current()
    minion.takes = True
    minion.looks()
    assert minion.is_current()
    minion.waits("b")
    assert not minion.is_current()


def test_another_reason_and_the_same_one_later_are_new(minion):
    for why in ("a", "b", "", "b"):
        minion.waits(why)
        minion.looks()
    assert minion.told == ["a", "b", "b"]


def test_a_master_that_is_away_is_told_later(minion):
    minion.waits("a")
    minion.takes = False
    minion.looks()
    minion.takes = True
    minion.looks()
    minion.looks()
    assert minion.told == ["a", "a"]


def test_what_somebody_else_writes_there_is_cut(minion):
    minion.waits("x" * 1000)
    minion.looks()
    assert minion.told == ["x" * 300]
