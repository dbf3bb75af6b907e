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
    assert update_wait.is_over(store, {"arg": arguments}, 1000.0, 1100.0) is expected


def test_the_default_is_an_hour(store):
    for now, expected in ((4599.0, False), (4600.0, True)):
        assert update_wait.is_over(store, {}, 1000.0, now) is expected


def test_without_any_update_there_is_nothing_to_wait_for(tmp_path):
    assert update_wait.is_over(Store(str(tmp_path / "none.db")), {}, 0.0, 0.0)


def test_the_default_is_that_of_the_function():
    parameter = inspect.signature(safeupdate.wait).parameters["timeout"]
    assert parameter.default == update_wait.DEFAULT_TIMEOUT
