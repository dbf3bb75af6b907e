"""The table of what replaces functions of Salt to order state runs, compared with this Salt."""

import sys

import pytest
import salt.state

from saltext_safeupdate import patches
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.ordering import loaders, names, package_calls
from saltext_safeupdate.ordering import patches as ordering
from saltext_safeupdate.ordering.built import Built
from saltext_safeupdate.patches import UnknownSaltError, unchanged
from saltext_safeupdate.this_host import Host


def _table():
    return ordering.patches(ordering.Later(Host({}), Settings()))


def _seen():
    """Return everything that the table may change."""
    owners = {patch.owner for patch in _table()}
    keywords = salt.state.STATE_INTERNAL_KEYWORDS
    return [dict(vars(owner)) for owner in owners], keywords, dict(loaders._handlers)


@pytest.fixture
def restored(monkeypatch):
    """Put back afterwards what the table replaces."""
    for patch in _table():
        monkeypatch.setattr(patch.owner, patch.name, vars(patch.owner)[patch.name])
    monkeypatch.setattr(salt.state, "STATE_INTERNAL_KEYWORDS", salt.state.STATE_INTERNAL_KEYWORDS)
    monkeypatch.setattr(loaders, "_handlers", {})


def test_this_salt_is_known():
    assert patches.differences(_table()) == []


def _takes_something_else(unexpected):
    raise AssertionError


@pytest.mark.parametrize("place", [patch.place for patch in _table()])
def test_if_one_function_is_missing_nothing_is_replaced(monkeypatch, place):
    table = _table()
    (patch,) = [patch for patch in table if patch.place == place]
    monkeypatch.delattr(patch.owner, patch.name)
    before = _seen()
    with pytest.raises(UnknownSaltError, match=f"{place} is not there"):
        patches.apply(table)
    assert _seen() == before


@pytest.mark.parametrize("place", [patch.place for patch in _table() if patch.parameters])
def test_if_one_function_takes_something_else_nothing_is_replaced(monkeypatch, place):
    table = _table()
    (patch,) = [patch for patch in table if patch.place == place]
    monkeypatch.setattr(patch.owner, patch.name, _takes_something_else)
    before = _seen()
    with pytest.raises(UnknownSaltError, match=rf"{place} takes \(unexpected\)"):
        patches.apply(table)
    assert _seen() == before


@pytest.mark.usefixtures("restored")
def test_otherwise_each_is_replaced():
    table = _table()
    before = {patch.place: vars(patch.owner)[patch.name] for patch in table}
    patches.apply(table)
    for patch in table:
        after = vars(patch.owner)[patch.name]
        assert type(after) is type(before[patch.place])
        assert (after is before[patch.place]) is (patch.replace is unchanged)
    assert names.KEYWORD in salt.state.STATE_INTERNAL_KEYWORDS
    assert {"pkg.install", "service.restart", "state.sls_id"} <= set(loaders._handlers)


@pytest.mark.usefixtures("restored")
def test_only_who_applies_the_table_changes_anything():
    before = _seen()
    _table()
    assert _seen() == before


def test_each_function_that_is_guarded_has_a_handler():
    assert set(Built(Host({}), Settings()).handlers) == {*names.GUARDED}
    assert set(names.PACKAGES) == {*package_calls.ACTIONS}


@pytest.mark.usefixtures("restored")
def test_a_part_that_cannot_be_loaded_leaves_states_to_salt(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "saltext_safeupdate.ordering.built", None)
    monkeypatch.setattr(patches, "_troubles", {})
    monkeypatch.setattr(salt.state.State, "call", lambda state, low, *rest, **more: (low, rest))
    monkeypatch.setattr(salt.state.State, "call_high", lambda state, high, *more: high)
    for patch in _table():
        if patch.place in ("salt.state.State.call", "salt.state.State.call_high"):
            setattr(patch.owner, patch.name, patch.replace(vars(patch.owner)[patch.name]))
    state = salt.state.State.__new__(salt.state.State)
    for _ in range(2):
        assert state.call({"state": "test"}, []) == ({"state": "test"}, ([],))
        assert state.call_high({"a": 1}) == {"a": 1}
    assert caplog.text.count("as with plain Salt") == 2
