"""Rows of the database that nobody can read: they end no engine, and hold up no other job."""

import contextlib
import sqlite3
from types import SimpleNamespace

import pytest
import salt.payload
import salt.utils.event

from saltext_safeupdate.core.errors import RecordError, UnreadableError
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.ticker import Ticker
from saltext_safeupdate.core.record.facts import LEAVING, STEPS_SINCE
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import queues
from saltext_safeupdate.minion.delivery import Delivery

BAD, GOOD = "20260101000000000001", "20260101000000000002"
REPORT = Report(at=1.0, version="3008.3")
SAYS = {"cmd": "_return", "jid": GOOD, "return": "it"}


class Bus:
    """The minion's own, behind which a master takes every return."""

    def __init__(self):
        self.taken = []

    def fire_event(self, load, tag, timeout=None):
        self.taken.append(load)

    def get_event(self, tag, wait):
        return {"ret": None}


class World:
    """An engine with the real delivery, and a clock."""

    def __init__(self, tmp_path, bus):
        self.now, self.bus, self.events = 1e9, bus, []
        settings = Settings(state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run"))
        self.settings = settings
        self.opts = {"id": "m1", "cachedir": str(tmp_path / "cache"), "master": "m"}
        self.ledger = Ledger(settings.database, clock=lambda: self.now)
        masters = SimpleNamespace(in_charge_of=lambda master, what: master, working=lambda: ["m"])
        functions = {"event.send": self.told_of}
        self.store = Store(settings.database)
        self.generations = Generations(self.store)
        self.ticker = Ticker(
            settings=settings,
            store=self.store,
            ledger=self.ledger,
            delivery=Delivery(self.opts, functions, masters, reaches=bool),
            launch=lambda: None,
            owner="main",
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def told_of(self, tag, data):
        self.events.append(data["phase"])
        return True

    def finished(self, jid):
        self.ledger.add_undelivered(
            jid, jid=jid, fun="cmd.run", master="m", payload=salt.payload.dumps(SAYS)
        )

    def held(self, jid, fun="cmd.run"):
        call = salt.payload.dumps({"jid": jid, "fun": fun, "arg": []})
        self.ledger.hold(jid, jid=jid, fun=fun, master="m", call=call, owner="x:1:1")

    def damage(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self.ledger.path)) as db, db:
            assert db.execute(f"{statement} WHERE key = '{BAD}'", values).rowcount == 1

    def run(self, looks=12):
        for _ in range(looks):
            self.now += 5
            self.ticker.tick()

    def told(self, jid):
        return [load for load in self.bus.taken if load["jid"] == jid]


@pytest.fixture
def world(tmp_path, monkeypatch):
    bus = Bus()
    monkeypatch.setattr(
        salt.utils.event, "get_event", lambda *args, **kwargs: contextlib.nullcontext(bus)
    )
    return World(tmp_path, bus)


ODD = {
    "no msgpack": b"\xc1\xc1",
    "cut short": salt.payload.dumps({**SAYS, "long": "x" * 99})[:20],
    "a list": salt.payload.dumps([1]),
    "nothing": None,
    "a number": 5,
    "text": "text",
}


@pytest.mark.parametrize("stored", [*ODD.values(), b"\x00zlib x"], ids=[*ODD, "not packed"])
def test_a_return_that_cannot_be_read_is_told_and_the_others_arrive(world, stored):
    world.finished(BAD)
    world.finished(GOOD)
    world.damage("UPDATE contents SET payload = ?", stored)
    world.run()
    assert [load["return"] for load in world.told(GOOD)] == ["it"]
    (told,) = world.told(BAD)
    assert (told["retcode"], told["id"]) == (1, "m1")
    assert "its data in the database is damaged" in told["return"]
    assert world.ledger.open() == []


@pytest.mark.parametrize(
    "stored",
    [*ODD.values(), salt.payload.dumps({"fun": "cmd.run"}), salt.payload.dumps({"jid": "../../x"})],
    ids=[*ODD, "no jid", "another jid"],
)
def test_a_held_job_that_cannot_be_read_is_told_and_not_run_and_the_others_run(world, stored):
    world.held(BAD)
    world.held(GOOD)
    world.damage("UPDATE contents SET call = ?", stored)
    world.run()
    assert queues.jids(world.opts) == {GOOD}
    (told,) = world.told(BAD)
    assert "was held on this minion" in told["return"]
    assert [job.jid for job in world.ledger.open()] == [GOOD]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("state", "martian"), ("state", 5), ("accepted", "then"), ("changed", b"x")),
        *(("attempts", "many"), ("fun", b"x"), ("jid", 5.5)),
    ],
)
def test_a_row_that_no_version_writes_is_left_alone_and_said_once(world, caplog, column, value):
    world.held(BAD)
    world.finished(GOOD)
    world.damage(f"UPDATE jobs SET {column} = ?", value)
    world.run()
    assert world.ledger.outcome(GOOD) == (State.DELIVERED, 0)
    said = [line for line in caplog.text.splitlines() if "of the ledger cannot be read" in line]
    assert len(said) <= 1
    if column != "jid":
        # SQLite makes text of a number there.
        assert world.ledger.find(BAD) == []
        assert world.told(BAD) == []


@pytest.mark.parametrize("value", ["{", "5", "{}", '{"at": "then", "boot": "", "uptime": 0}'])
def test_a_ledger_that_cannot_read_since_when_it_records_knows_nothing_and_begins_anew(
    world, value
):
    with world.ledger.transaction() as db:
        db.execute("INSERT INTO facts (name, value) VALUES ('recorded_from', ?)", (value,))
    world.finished(GOOD)
    world.ticker.recording = True
    assert world.ledger.known([BAD]) == {BAD: "unknown"}
    world.run()
    assert world.ledger.outcome(GOOD) == (State.DELIVERED, 0)
    with world.ledger.transaction() as db:
        assert world.ledger._recorded_from(db) is not None


UNREADABLE = {
    "extra": "{",
    "unit": "5",
    "versions_from": b"\xff",
    "phase": "martian",
}


@pytest.mark.parametrize("column", UNREADABLE)
def test_an_update_that_cannot_be_read_keeps_no_job_and_no_return_back(world, column):
    """Nothing of the jobs was looked at, and no return was sent, until somebody mended it."""
    world.store.save(Update(id="u1", kind="update", phase=Phase.WATCHING, created=1.0))
    with world.ledger.transaction() as db:
        db.execute(f"UPDATE updates SET {column} = ?", (UNREADABLE[column],))
    world.finished(GOOD)
    world.held(BAD, fun="safeupdate.wait")
    for _ in range(12):
        world.now += 5
        with pytest.raises(UnreadableError, match="u1"):
            world.ticker.tick()
    assert [load["return"] for load in world.told(GOOD)] == ["it"]
    assert queues.jids(world.opts) == {BAD}
    assert world.events == ["watching"]


@pytest.mark.parametrize("value", ["{", "5", "{}"])
@pytest.mark.parametrize("fact", [STEPS_SINCE, LEAVING], ids=lambda fact: fact.name)
def test_a_fact_that_cannot_be_read_ends_no_engine(world, fact, value):
    with world.ledger.transaction() as db:
        db.execute("INSERT INTO facts (name, value) VALUES (?, ?)", (fact.name, value))
    world.finished(GOOD)
    world.ticker.started(REPORT)
    world.run()
    assert [load["return"] for load in world.told(GOOD)] == ["it"]
    assert world.generations.report() == REPORT
    # It is not taken for one that is not there.
    with pytest.raises(UnreadableError):
        world.store.fact(fact)


@pytest.mark.parametrize("value", ["{", "5", "{}"])
@pytest.mark.parametrize("column", ["report", "masters", "probe", "refused", "idle", "changed"])
def test_what_cannot_be_read_of_a_generation_ends_no_engine(world, column, value):
    """Only the probe is what its engine reads, and says."""
    world.generations.reports("main", REPORT)
    with world.ledger.transaction() as db:
        db.execute(f"UPDATE generations SET {column} = ?", (value,))
    world.finished(GOOD)
    supervisor = locks.acquire(world.settings.run_dir, "supervisor", "")
    world.ticker.started(REPORT)
    needed = column == "probe"
    with pytest.raises(UnreadableError, match="main") if needed else contextlib.nullcontext():
        world.run()
    supervisor.close()
    assert [load["return"] for load in world.told(GOOD)] == ["it"]
    # The next minion is not held up by it.
    world.ticker.owner = "next"
    world.ticker.started(REPORT)
    assert world.generations.report() == REPORT


@pytest.mark.parametrize("value", ["{", "5", '{"number": "7", "update": "u1"}'])
def test_a_minion_that_cannot_read_its_newest_request_takes_none_and_says_so(world, value):
    with world.ledger.transaction() as db:
        db.execute("INSERT INTO facts (name, value) VALUES ('request', ?)", (value,))
    with pytest.raises(RecordError, match="is not readable"):
        world.store.taken()
    with pytest.raises(RecordError, match="is not readable"):
        world.store.take(8, "u2")
