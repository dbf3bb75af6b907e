"""When a job that waits for an update has waited enough."""

import inspect

import pytest

from saltext_safeupdate.core.jobs import update_wait
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.modules import safeupdate


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "state" / "safeupdate.db"))
    store.save(Update(id="u1", kind="update", phase=Phase.COMMITTED, created=1.0))
    store.save(Update(id="u2", kind="update", phase=Phase.WATCHING, created=2.0))
    return store


def _kwargs(**kwargs):
    return {**kwargs, "__kwarg__": True}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], False),
        (["u2"], False),
        ([_kwargs(update="u2")], False),
        ([None, 101], False),
        ([_kwargs(timeout=101)], False),
        (["u1"], True),
        ([_kwargs(update="u1")], True),
        (["u9"], True),
        ([None, 100], True),
        (["u2", _kwargs(timeout=99.5)], True),
        # What the function does not take it says itself.
        ([None, "soon"], True),
        ([None, True], True),
    ],
)
def test_the_update_has_ended_or_the_time_is_up(store, arguments, expected):
    """The minion was started a while after the job was accepted."""
    waits = update_wait.Waits(store, lambda: 1100.0, lambda: 50.0)
    assert waits.is_over("1", {"arg": arguments}, 1000.0) is expected


class Clocks:
    """The time of day, which is *step* seconds wrong, and the clock that nobody sets."""

    def __init__(self):
        self.now, self.step = 0.0, 0.0

    def waits(self, store):
        return update_wait.Waits(store, lambda: 1000.0 + self.now + self.step, lambda: self.now)


def test_the_default_is_an_hour(store):
    clocks = Clocks()
    waits = clocks.waits(store)
    for now, expected in ((0.0, False), (3599.0, False), (3600.0, True)):
        clocks.now = now
        assert waits.is_over("1", {}, None) is expected


@pytest.mark.parametrize("step", [-600.0, 600.0])
def test_a_clock_that_is_set_ends_no_wait_and_prolongs_none(store, step):
    clocks, call = Clocks(), {"arg": [None, 100]}
    waits = clocks.waits(store)
    assert not waits.is_over("1", call, None)
    clocks.now, clocks.step = 99.0, step
    assert not waits.is_over("1", call, 1000.0)
    clocks.now = 100.0
    assert waits.is_over("1", call, 1000.0)
    # A process that is started now has the time of day only: set back, that tells nothing.
    assert clocks.waits(store).is_over("1", call, 1000.0) is (step > 0)


def test_what_is_over_is_forgotten(store):
    clocks = Clocks()
    waits = clocks.waits(store)
    for number in range(1000):
        clocks.now = float(number)
        waits.is_over(str(number), {"arg": [None, 10]}, None)
    assert len(waits._deadlines) < 12


def test_without_any_update_there_is_nothing_to_wait_for(tmp_path):
    assert update_wait.Waits(Store(str(tmp_path / "none.db"))).is_over("1", {}, None)


def test_the_default_is_that_of_the_function():
    parameter = inspect.signature(safeupdate.wait).parameters["timeout"]
    assert parameter.default == update_wait.DEFAULT_TIMEOUT
