"""The record of the updates and what belongs to it."""

from dataclasses import replace

import pytest

from saltext_safeupdate.core.errors import UnreadableError
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.parts import Code, Owed
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.typed import Fact
from saltext_safeupdate.core.record.update import Update

OWED: Fact[Owed] = Fact("owed", Owed)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "state" / "safeupdate.db"))


def test_a_record_comes_back_as_it_was(store):
    update = Update(
        id="1",
        kind="update",
        jid="j",
        pid=5,
        reason="why",
        created=3.0,
        versions_from={"salt-minion": "1"},
        versions_to={"salt-minion": "2"},
        unit={"active": "active"},
        code=Code(roots=("/a",)),
        unknown={"new": [1]},
    )
    store.save(update)
    found = store.get("1")
    assert replace(found, changed=0.0) == update
    assert store.latest() == found


def test_the_newest_is_the_latest_even_at_the_same_time(store):
    for number in range(3):
        store.save(Update(id=str(number), kind="update", created=5.0))
    assert store.latest().id == "2"
    assert [update.id for update in store.updates(2)] == ["2", "1"]


def test_each_phase_is_told_of_once(store):
    update = store.save(Update(id="1", kind="update", created=1.0))
    store.save(replace(update, reason="again"))
    store.save(update.advance(Phase.WAITING))
    rows = store.unpublished()
    assert [row.phase for row in rows] == ["requested", "waiting"]
    store.mark_published(rows[0].seq)
    assert [row.phase for row in store.unpublished()] == ["waiting"]
    assert [row.phase for row in store.history("1")] == ["requested", "waiting"]


def test_old_records_go_and_what_nobody_was_told_of_stays(store):
    for number in range(103):
        store.save(Update(id=str(number), kind="update", created=number + 1.0))
        if number == 0:
            store.mark_published(store.unpublished()[0].seq)
    assert len(store.updates(1000)) == 100
    assert store.history("0") == []
    assert store.history("1") != []


def test_facts(store):
    assert store.fact(OWED) is None
    store.set_fact(OWED, Owed(jid="1", processes={"a": "b"}))
    store.set_fact(OWED, Owed(jid="2", processes={"a": "c"}))
    assert store.fact(OWED) == Owed(jid="2", processes={"a": "c"})


@pytest.mark.parametrize("value", ["{", "5", '{"jid": 5}', '{"processes": {"a": 1}}', b"\xff"])
def test_a_fact_of_another_type_is_not_taken_for_one_that_is_not_there(store, value):
    with store.transaction() as db:
        db.execute("INSERT INTO facts (name, value) VALUES ('owed', ?)", (value,))
    with pytest.raises(UnreadableError, match="'owed'"):
        store.fact(OWED)
    assert store.replaceable(OWED) is None


def test_what_a_newer_version_adds_to_a_fact_is_left_out(store):
    with store.transaction() as db:
        db.execute('INSERT INTO facts (name, value) VALUES (\'owed\', \'{"jid": "1", "x": 1}\')')
    assert store.fact(OWED) == Owed(jid="1")


def test_what_is_in_quarantine_until_it_is_cleared(store):
    store.quarantine({"salt": "2", "salt-minion": "2"}, "u1", "it died")
    store.quarantine({"salt": "2"}, "u2", "again")
    rows = store.quarantined()
    assert [(row.package, row.version, row.id) for row in rows] == [
        ("salt-minion", "2", "u1"),
        ("salt", "2", "u2"),
    ]
    store.clear(rows[:1])
    assert [row.package for row in store.quarantined()] == ["salt"]


def test_a_fact_that_is_dropped(store):
    store.set_fact(OWED, Owed())
    store.drop_fact(OWED)
    store.drop_fact(OWED)
    assert store.fact(OWED) is None


@pytest.fixture
def newer(store):
    """The database of a newer schema: every table has a column that is not known here."""
    with store.transaction() as db:
        for (table,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            db.execute(f"ALTER TABLE {table} ADD COLUMN newer TEXT NOT NULL DEFAULT 'x'")
        db.execute("PRAGMA user_version = 99")
    return store


def test_a_record_of_a_newer_version_is_read_and_kept_whole(newer):
    """As in elastic-agent #3947: what is not known is no reason for a rollback."""
    update = Update(id="1", kind="update", unknown={"of a newer version": [1]})
    newer.save(update)
    with newer.transaction() as db:
        db.execute("UPDATE updates SET newer = 'theirs'")
    newer.save(newer.get("1").advance(Phase.WAITING))
    assert newer.get("1").unknown == {"of a newer version": [1]}
    with newer.connection() as db:
        assert db.execute("SELECT newer FROM updates").fetchone() == ("theirs",)
    assert [row.phase for row in newer.history("1")] == ["requested", "waiting"]


def test_everything_else_can_be_written_there_as_well(newer):
    newer.set_fact(OWED, Owed(jid="1"))
    assert newer.fact(OWED) == Owed(jid="1")
    newer.quarantine({"salt": "1"}, "u1", "why")
    assert newer.quarantined()[0][:4] == ("salt", "1", "u1", "why")
    ledger = Ledger(newer.path)
    job = {"jid": "1", "fun": "state.apply", "master": "m", "call": b"c", "owner": "main"}
    assert ledger.accept("1", **job) is None
    assert ledger.begin("1", "child") == 1
    ledger.add_chunk("1", "tag", "digest", b"result")
    assert ledger.chunks("1") == {"tag": ("digest", b"result")}
    assert ledger.finish("1", b"p")
    assert ledger.full("1").payload == b"p"
    assert ledger.hold("2", **{**job, "jid": "2"}) is None
    ledger.add_undelivered("3", jid="3", fun="test.echo", master="m", payload=b"q")
    assert [row.key for row in ledger.open()] == ["1", "2", "3"]
