"""Times in ISO 8601 next to the numbers, in the answers of a minion."""

import os
from datetime import datetime, timedelta

import pytest

from saltext_safeupdate import hooks
from saltext_safeupdate.admin.status import dated, drains, jobs, status, wait
from saltext_safeupdate.admin.updates import updating
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.host import drained
from saltext_safeupdate.core.record.phase import Phase
from tests.support.this_host import record

ZONES = pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("Asia/Kolkata", 5.5)])


@pytest.fixture(autouse=True)
def _hooked(monkeypatch):
    """This is the process of a job whose minion has the hooks."""
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})


@pytest.fixture
def made(made):
    made.opts["master"] = "m"
    return made


def _is_dated(row, keys, hours=0):
    """Programs read the numbers, and people the same times in that zone."""
    assert row["times"].keys() == set(keys)
    for key, text in row["times"].items():
        told = datetime.fromisoformat(text)
        assert told.timestamp() == int(row[key]) > 1e9
        assert told.utcoffset() == timedelta(hours=hours)


@ZONES
def test_of_an_update(made, zone, hours):
    record(made, Phase.COMMITTED, created=1795377600.5)
    both = ("created", "changed")
    _is_dated(status.status(made, zone), both, hours)
    (found,) = status.history(made, 1, zone)
    _is_dated(found, both, hours)
    (phase,) = found["phases"]
    _is_dated(phase, ["at"], hours)
    _is_dated(wait.wait(made, None, 1), both)


def test_without_an_update_there_is_no_time(made):
    assert "times" not in status.status(made)


@ZONES
def test_of_jobs(made, zone, hours):
    made.ledger.accept("5", jid="5", fun="state.apply", master="m", call=b"x", owner="boot:1:1")
    made.ledger.begin("5", "boot:1:1")
    made.ledger.finish("5", b"return")
    found = jobs.listed(made, zone)
    (row,) = found["undelivered"]
    _is_dated(row, ["since"], hours)
    (row,) = found["recorded"]
    _is_dated(row, ["accepted"], hours)


@ZONES
def test_of_revisions(made, zone, hours):
    made.store.quarantine({"salt-minion": "3008.3-1"}, "u1", "no answer")
    found = dated.revisions(updating.revisions(made), zone)
    (row,) = found["skipped"]
    assert (row["version"], row["reason"]) == ("3008.3-1", "no answer")
    _is_dated(row, ["at"], hours)
    (row,) = dated.revisions({"slots": [{"slot": "s", "staged": 1795377600.0}]}, zone)["slots"]
    _is_dated(row, ["staged"], hours)


@ZONES
def test_of_a_drain(made, zone, hours):
    _is_dated(drains.drain(made, 60, "disk", zone)["drained"], ["until"], hours)
    _is_dated(status.status(made, zone)["drained"], ["until"], hours)
    _is_dated(status.status(made)["drained"], ["until"])


@pytest.mark.parametrize(
    "call",
    [
        lambda made: status.status(made, "Mars"),
        lambda made: status.history(made, 1, "Mars"),
        lambda made: jobs.listed(made, "Mars"),
        lambda made: dated.revisions(updating.revisions(made), "Mars"),
        lambda made: drains.drain(made, 60, "", "Mars"),
    ],
)
def test_without_such_a_zone_it_is_refused_and_nothing_changes(made, call):
    with pytest.raises(InputError, match=r"no time zone 'Mars'.*Nothing was changed"):
        call(made)
    assert drained.look(made.settings.run_dir) is None
