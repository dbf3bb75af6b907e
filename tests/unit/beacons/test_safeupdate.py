import pytest

from saltext_safeupdate.beacons import safeupdate as beacon
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update


@pytest.fixture
def store(tmp_path, monkeypatch):
    opts = {"safeupdate": {"state_dir": str(tmp_path / "state")}}
    monkeypatch.setattr(beacon, "__opts__", opts, raising=False)
    monkeypatch.setattr(beacon, "__context__", {}, raising=False)
    return Store(str(tmp_path / "state" / "safeupdate.db"))


def _record(store, phase, identity="u1", created=1.0, **changes):
    store.save(Update(id=identity, kind="restart", phase=phase, created=created, **changes))


def _event(phase, pending, identity="u1", reason=""):
    return {"pending": pending, "phase": phase, "update": identity, "reason": reason}


def test_nothing_is_told_where_nothing_ever_was(store):
    assert beacon.beacon([]) == []
    assert not store.exists()


def test_one_event_for_each_transition(store):
    assert beacon.beacon([]) == []
    _record(store, Phase.WAITING, reason="config")
    assert beacon.beacon([]) == [_event("waiting", True, reason="config")]
    assert beacon.beacon([]) == []
    _record(store, Phase.RESTARTING)
    assert beacon.beacon([]) == [_event("restarting", True)]
    _record(store, Phase.COMMITTED)
    assert beacon.beacon([]) == [_event("committed", False)]
    assert beacon.beacon([]) == []


def test_what_is_pending_at_the_first_look_is_told(store):
    _record(store, Phase.WAITING)
    assert beacon.beacon([]) == [_event("waiting", True)]


def test_what_ended_before_the_first_look_is_not(store):
    _record(store, Phase.COMMITTED)
    assert beacon.beacon([]) == []


def test_the_next_update_is_another_one(store):
    _record(store, Phase.COMMITTED)
    beacon.beacon([])
    _record(store, Phase.COMMITTED, "u2", 2.0)
    assert beacon.beacon([]) == [_event("committed", False, "u2")]


def test_a_database_that_cannot_be_read_is_told_once(store, tmp_path):
    _record(store, Phase.WAITING)
    beacon.beacon([])
    with store.transaction() as db:
        db.execute("UPDATE updates SET phase = 'hibernating'")
    (event,) = beacon.beacon([])
    assert event["phase"] == "unknown"
    assert "u1" in event["reason"]
    assert beacon.beacon([]) == []


@pytest.mark.parametrize("config", [[], [{"interval": 10}]])
def test_a_list_is_a_configuration(store, config):
    assert beacon.validate(config)[0] is True


@pytest.mark.parametrize("config", [{}, None, "x"])
def test_anything_else_is_none(store, config):
    valid, why = beacon.validate(config)
    assert not valid
    assert "list" in why


def test_it_is_always_there(store):
    assert beacon.__virtual__() == "safeupdate"
