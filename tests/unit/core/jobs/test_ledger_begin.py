"""A ledger knows nothing of the time before itself."""

import os

import pytest

from saltext_safeupdate.core.jobs.ledger import UNKNOWN, Ledger
from tests.support import simulated
from tests.support.jids import jid_of


class Clock(simulated.Clock):
    boot = 0.0


def accept(ledger, jid):
    ledger.accept(jid, jid=jid, fun="cmd.run", master="m", call=b"", owner="main")


BEGIN = 1_767_225_600.0


@pytest.fixture
def clock():
    return Clock(BEGIN)


@pytest.fixture
def ledger(tmp_path, clock):
    return Ledger(str(tmp_path / "db"), clock=clock, uptime=lambda: clock.now - clock.boot)


def knows(ledger, at, **more):
    """Tell what it says of a job that it does not have: missed, or unknown."""
    jid = jid_of(at)
    found = ledger.known([jid], **more)
    assert found in ({}, {jid: UNKNOWN})
    return not found


def test_before_it_is_told_to_record_it_knows_nothing(ledger, clock):
    assert not knows(ledger, clock.now + 3600)


def test_it_knows_what_is_younger_than_itself(ledger, clock):
    ledger.record_from_now()
    clock.sleep(600)
    ledger.record_from_now()
    assert not knows(ledger, BEGIN - 3600)
    assert not knows(ledger, BEGIN + 1), "clocks differ a little"
    assert knows(ledger, BEGIN + 60)


def test_what_it_has_it_knows_whenever_that_was_made(ledger):
    jid = jid_of(BEGIN - 3600)
    accept(ledger, jid)
    assert ledger.known([jid, "req"]) == {jid: "accepted", "req": UNKNOWN}


def test_a_gap_is_not_known(ledger, clock):
    ledger.record_from_now()
    clock.sleep(600)
    assert not knows(ledger, BEGIN + 60, blind=True)
    ledger.record_anew(None)
    assert not knows(ledger, BEGIN + 60)
    assert knows(ledger, BEGIN + 660)


def test_what_is_younger_than_the_last_job_without_a_record_is_known(ledger, clock):
    ledger.record_from_now()
    clock.sleep(600)
    last = clock.now - clock.boot
    clock.sleep(600)
    ledger.record_anew(last)
    assert not knows(ledger, BEGIN + 590)
    assert knows(ledger, BEGIN + 660)
    ledger.record_anew(last - 300)
    assert not knows(ledger, BEGIN + 590), "it knows no more than before"


def test_a_last_job_makes_nothing_known_that_was_not(ledger, clock):
    last = clock.now - clock.boot
    clock.sleep(600)
    ledger.record_anew(last)
    assert not knows(ledger, BEGIN + 300)


def test_a_minion_without_hooks_records_no_more(ledger, clock):
    ledger.record_from_now()
    ledger.record_no_more()
    clock.sleep(600)
    assert not knows(ledger, BEGIN + 300)
    ledger.record_from_now()
    assert not knows(ledger, BEGIN + 300)


def test_a_master_whose_clock_is_ahead(ledger):
    ledger.record_from_now()
    # It published this a minute before the ledger began.
    assert not knows(ledger, BEGIN + 240, ahead=300)
    assert knows(ledger, BEGIN + 360, ahead=300)


def test_a_master_whose_clock_is_behind_loses_redelivery_and_nothing_runs_twice(ledger):
    ledger.record_from_now()
    assert not knows(ledger, BEGIN + 60 - 300, ahead=-300)


def test_a_clock_that_was_wrong_when_it_began_and_has_been_set_since(ledger, clock):
    clock.now -= 86400
    clock.boot = clock.now - 30
    ledger.record_from_now()
    clock.now += 86400
    clock.boot += 86400
    clock.sleep(60)
    assert not knows(ledger, BEGIN - 3600)
    assert knows(ledger, BEGIN + 30)


def test_it_knows_nothing_of_the_time_of_what_it_has_forgotten(ledger, clock):
    ledger.record_from_now()
    for _ in range(10):
        clock.sleep(60)
        jid = jid_of(clock.now)
        accept(ledger, jid)
        ledger.forget(jid)
    assert ledger.prune(keep=4) == 6
    forgotten = jid_of(BEGIN + 60)
    assert ledger.known([forgotten]) == {forgotten: UNKNOWN}
    assert not knows(ledger, BEGIN + 330)
    assert knows(ledger, BEGIN + 390)
    assert ledger.prune(keep=4) == 0


def test_another_file_begins_anew(ledger, clock, tmp_path):
    ledger.record_from_now()
    clock.sleep(600)
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    assert not knows(ledger, BEGIN + 300)
