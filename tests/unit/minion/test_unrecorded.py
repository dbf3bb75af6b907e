"""What runs while the ledger cannot be written."""

import os
import time
from unittest.mock import ANY

import pytest
import salt.payload

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.ledger import UNKNOWN, Ledger
from saltext_safeupdate.minion import kept_returns, unrecorded
from tests.support.jids import jid_of
from tests.support.synced import synced

from .conftest import JID, OTHER_JID

# Made a thousand years after every ledger.
YOUNG = "30260101000000000000"


@pytest.fixture
def full(world, monkeypatch):
    """Return a function that makes each write of these names fail, as on a full disk."""
    os.makedirs(world.minion.opts["cachedir"])

    def fail(self, *args, **kwargs):
        raise RecordError("disk full")

    def fill(*names):
        for name in names:
            monkeypatch.setattr(Ledger, name, fail)

    fill.over = monkeypatch.undo
    return fill


def bring_in(world):
    unrecorded.bring_in(world.minion.opts, world.ledger)
    assert not unrecorded.pending(world.minion.opts)


def test_a_job_that_ran_without_a_record_was_not_missed(world, full):
    world.ledger.record_from_now()
    full("accept")
    world.run(world.publish())
    full.over()
    blind = unrecorded.pending(world.minion.opts)
    assert world.ledger.known([JID], blind=blind) == {JID: UNKNOWN}
    bring_in(world)
    assert world.ledger.known([JID, YOUNG]) == {JID: UNKNOWN}


def test_a_note_is_on_the_disk_before_its_job_begins(world, full):
    """A power cut took it, and the job ran twice."""
    full("accept")
    note = unrecorded.paths(world.minion.opts)[0]
    with synced() as told:
        world.publish()
        assert told == {note: os.path.getsize(note), os.path.dirname(note): ANY}
        told.clear()
        world.publish(OTHER_JID)
        assert told == {note: os.path.getsize(note)}


HOUR, MINUTE, BOOT = 3600.0, 60.0, processes.boot()


@pytest.mark.parametrize(
    ("noted", "known"),
    [
        ([(BOOT, HOUR)], True),
        ([(BOOT, HOUR), ("another boot", 10**9)], True),
        ([("another boot", 10**9)], True),
        ([(BOOT, HOUR), (BOOT, MINUTE / 2)], False),
        ([(BOOT, MINUTE / 2), (BOOT, HOUR)], False),
        # By one that died as it wrote, by nobody, and by more jobs than are noted.
        ([], False),
        ([(BOOT, "?")], False),
        ([(BOOT, HOUR)] * 10_000, False),
    ],
)
def test_what_is_younger_than_the_last_of_them_was_missed(world, full, monkeypatch, noted, known):
    """The boot is a day old."""
    Ledger(
        world.settings.database,
        clock=lambda: time.time() - 20 * HOUR,
        uptime=lambda: 4 * HOUR,
    ).record_from_now()
    monkeypatch.setattr(processes, "since_boot", lambda: 24 * HOUR)
    unrecorded.note(world.minion.opts)
    (path,) = filter(os.path.exists, unrecorded.paths(world.minion.opts))
    with open(path, "w") as file:
        for boot, ago in noted:
            age = ago if isinstance(ago, str) else 24 * HOUR - ago
            file.write(f"\t{boot} {age}\n")
    ledger = Ledger(world.settings.database, uptime=lambda: 24 * HOUR)
    unrecorded.bring_in(world.minion.opts, ledger)
    jid = jid_of(time.time() - MINUTE)
    assert ledger.known([jid]) == ({} if known else {jid: UNKNOWN})


def test_so_many_jobs_fill_no_disk(world, full, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for _ in range(10_000):
        unrecorded.note(world.minion.opts)
    (path,) = filter(os.path.exists, unrecorded.paths(world.minion.opts))
    assert os.path.getsize(path) < 300_000
    bring_in(world)


def test_one_that_began_without_a_record_is_not_taken_for_one_that_never_began(world, full):
    data = world.publish()
    full("begin", "finish", "delivered")
    world.run(data)
    full.over()
    assert world.states() == {JID: "accepted"}, "the engine would start it anew"
    bring_in(world)
    assert world.states() == {JID: "delivered"}


def test_one_that_still_runs_is_known_to_run(world, full):
    world.publish()
    unrecorded.note(world.minion.opts, JID, processes.me())
    bring_in(world)
    (job,) = world.ledger.find(JID)
    assert (job.state.value, job.runner) == ("running", processes.me())


def test_nothing_is_lost_while_the_ledger_still_cannot_be_written(world, full):
    world.publish()
    unrecorded.note(world.minion.opts, JID, processes.me())
    full("record_anew")
    for _ in range(2):
        with pytest.raises(RecordError):
            unrecorded.bring_in(world.minion.opts, world.ledger)
        # And another one meanwhile.
        unrecorded.note(world.minion.opts)
    full.over()
    unrecorded.bring_in(world.minion.opts, world.ledger)
    assert unrecorded.pending(world.minion.opts), "the later ones are next"
    bring_in(world)
    assert world.states() == {JID: "running"}


def test_a_note_is_nobody_elses_business(world, full):
    unrecorded.note(world.minion.opts, JID, "runner")
    (name,) = os.listdir(world.minion.opts["cachedir"])
    assert os.stat(os.path.join(world.minion.opts["cachedir"], name)).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", [True, False], ids=["recorded", "not recorded"])
def test_a_return_that_nobody_takes_is_kept_until_the_ledger_can_be_written(world, full, key):
    """Else the job would be taken for an interrupted one, and might run again."""
    full(*("finish", "add_undelivered"), *(() if key else ("accept",)))
    world.minion.acknowledge = ""
    world.run(world.publish())
    (kept,) = kept_returns.paths(world.minion.opts)
    assert os.stat(kept).st_mode & 0o777 == 0o600
    with pytest.raises(RecordError):
        kept_returns.bring_in(world.minion.opts, world.ledger)
    full.over()
    kept_returns.bring_in(world.minion.opts, world.ledger)
    assert kept_returns.paths(world.minion.opts) == []
    (job,) = world.ledger.undelivered()
    assert job.jid == JID
    assert salt.payload.loads(world.ledger.full(job.key).payload)["return"] == "ok"


def test_a_kept_return_that_is_damaged_is_no_end(world, full):
    path = os.path.join(world.minion.opts["cachedir"], "safeupdate-return-1-1")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    kept_returns.bring_in(world.minion.opts, world.ledger)
    assert kept_returns.paths(world.minion.opts) == []
