"""Returns kept beside the ledger: one that cannot be brought in keeps nothing else back."""

import itertools
import os

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.jobs.ticker import Ticker
from saltext_safeupdate.minion import engine, kept_returns
from tests.support.this_host import opts

from .conftest import JID, OTHER_JID


@pytest.fixture
def given(tmp_path):
    (tmp_path / "cache").mkdir()
    made = opts(tmp_path)
    made["safeupdate"]["tick_interval"] = 0.01
    return {**made, "id": "m1", "master": "m"}


@pytest.fixture
def run(given, monkeypatch):
    """Return a function that has the engine tick twice; it returns how often it did."""

    def run():
        ticks, parent = [], os.getpid()
        looks = itertools.count()

        def tick(self):
            ticks.append(self)

        monkeypatch.setattr(Ticker, "tick", tick)
        # It ends at last also if it never ticks.
        monkeypatch.setattr(
            engine.os, "getppid", lambda: parent if len(ticks) < 2 and next(looks) < 50 else 1
        )
        engine.run(given, {"event.send": None}, hooked=True)
        return len(ticks)

    return run


@pytest.fixture
def ledger(given):
    return Ledger(os.path.join(given["safeupdate"]["state_dir"], "safeupdate.db"))


def keep(given, jid):
    before = kept_returns.paths(given)
    described = {"jid": jid, "fun": "test.echo", "master": "m", "retcode": 0}
    assert kept_returns.keep(given, b"return of " + jid.encode(), key="", **described)
    (path,) = set(kept_returns.paths(given)) - set(before)
    return path


@pytest.mark.parametrize("text", ["[]\nx", "{\nx", '{"key": ""}\nx', "\nx", "\xff\nx"])
def test_a_damaged_one_is_set_aside_and_said_once(given, run, ledger, caplog, text):
    damaged = os.path.join(given["cachedir"], "safeupdate-return-0-0")
    with open(damaged, "w", encoding="latin-1") as file:
        file.write(text)
    keep(given, JID)
    assert run() == 2
    assert [job.jid for job in ledger.undelivered()] == [JID]
    assert kept_returns.paths(given) == []
    (aside,) = kept_returns.damaged(given)
    with open(aside, encoding="latin-1") as file:
        assert file.read() == text
    assert caplog.text.count("is damaged") == 1


def test_one_that_cannot_be_stored_stays_and_is_told_of(given, run, ledger, caplog, monkeypatch):
    first, store = keep(given, JID), kept_returns.store
    keep(given, OTHER_JID)

    def fail(ledger, payload, **described):
        if described["jid"] == JID:
            raise RecordError("string or blob too big")
        store(ledger, payload, **described)

    monkeypatch.setattr(kept_returns, "store", fail)
    assert run() == 2
    assert [job.jid for job in ledger.undelivered()] == [OTHER_JID]
    assert kept_returns.paths(given) == [first]
    assert "too big" in caplog.text


def test_one_that_cannot_be_read_stays_and_is_told_of(given, run, ledger, caplog):
    # Also root cannot read a directory as a file.
    unread = os.path.join(given["cachedir"], "safeupdate-return-0-0")
    os.mkdir(unread)
    keep(given, JID)
    assert run() == 2
    assert [job.jid for job in ledger.undelivered()] == [JID]
    assert kept_returns.paths(given) == [unread]
    assert f"{unread} cannot be read" in caplog.text


def test_the_keys_of_what_is_kept_are_known(given):
    assert kept_returns.keys(given) == set()
    described = {"jid": JID, "fun": "test.echo", "master": "m", "retcode": 0}
    assert kept_returns.keep(given, b"\xff\n", key="a/b:c", **described)
    keep(given, OTHER_JID)
    for number, text in enumerate(("[]", "{", '{"key": []}', "\xff", "")):
        path = os.path.join(given["cachedir"], f"safeupdate-return-0-{number}")
        with open(path, "w", encoding="latin-1") as file:
            file.write(text)
    os.mkdir(os.path.join(given["cachedir"], "safeupdate-return-1-0"))
    assert kept_returns.keys(given) == {"a/b:c"}
