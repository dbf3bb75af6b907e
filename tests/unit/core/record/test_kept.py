"""A connection that is kept for the next transaction."""

import os
import sqlite3
import threading

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record import kept
from tests.support.forked import forked


@pytest.fixture
def path(tmp_path):
    """The database of a minion, which is there before any job."""
    path = str(tmp_path / "state" / "safeupdate.db")
    Ledger(path).find("")
    return path


def accept(path, key="1"):
    return Ledger(path).accept(key, jid=key, fun="f", master="m", call=b"c", owner="o")


def give_up(path):
    with Ledger(path).transaction() as db:
        db.execute("DELETE FROM jobs")
        raise KeyError


def opened(path):
    """Return how often this process has the file open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}") == path
        except FileNotFoundError:
            # It was that of the list itself.
            continue
    return found


def keys(path):
    db = sqlite3.connect(path)
    try:
        return [key for (key,) in db.execute("SELECT key FROM jobs ORDER BY key")]
    finally:
        db.close()


def test_without_being_asked_nothing_stays_open(path):
    accept(path)
    assert opened(path) == 0


def test_one_connection_does_until_the_end(path):
    kept.begin()
    for key in ("1", "2"):
        accept(path, key)
        assert opened(path) == 1
    kept.end()
    assert opened(path) == 0
    accept(path, "3")
    assert opened(path) == 0
    assert keys(path) == ["1", "2", "3"]


def test_what_is_written_by_it_is_there_for_others_at_once(path):
    kept.begin()
    accept(path)
    assert keys(path) == ["1"]


def test_each_transaction_is_as_durable_as_it_asks(path):
    kept.begin()
    ledger = Ledger(path)
    for durable, expected in ((True, 2), (False, 1), (True, 2)):
        with ledger.connection(durable=durable) as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (expected,)


def test_each_transaction_waits_as_long_as_it_wants(path):
    kept.begin()
    for seconds in (30.0, 0.5):
        with Ledger(path, busy_timeout=seconds).connection() as db:
            assert db.execute("PRAGMA busy_timeout").fetchone() == (seconds * 1000,)


def test_a_transaction_within_another_has_its_own_connection(path):
    kept.begin()
    ledger = Ledger(path)
    with ledger.transaction() as db:
        assert ledger.find("1") == []
        db.execute("DELETE FROM jobs")
    assert opened(path)
    kept.end()
    assert opened(path) == 0


def test_a_file_that_was_moved_away_is_not_written_any_more(path):
    kept.begin()
    accept(path, "1")
    for suffix in ("", "-wal", "-shm"):
        os.rename(path + suffix, path + ".old" + suffix)
    accept(path, "2")
    assert keys(path) == ["2"]
    assert keys(path + ".old") == ["1"]


def test_after_an_error_it_is_opened_anew(path):
    kept.begin()
    accept(path)
    with pytest.raises(RecordError), Ledger(path).transaction() as db:
        db.execute("nonsense")
    assert opened(path) == 0
    with pytest.raises(KeyError):
        give_up(path)
    assert opened(path) == 0
    accept(path, "2")
    assert keys(path) == ["1", "2"]


def test_no_child_has_it(path):
    """SQLite must not be carried over a fork: locks would get lost."""
    kept.begin()
    accept(path)

    def work(hear, say):
        say(f"{opened(path)} {accept(path, '2')} {keys(path)}")

    with forked(work) as child:
        assert child.hear() == "0 None ['1', '2']"
        assert child.wait() == 0
    assert opened(path) == 0
    accept(path, "3")
    assert keys(path) == ["1", "2", "3"]


def test_another_thread_has_its_own(path):
    kept.begin()
    accept(path, "1")
    found = []
    thread = threading.Thread(target=lambda: found.append(accept(path, "2")))
    thread.start()
    thread.join()
    accept(path, "3")
    assert found == [None]
    assert keys(path) == ["1", "2", "3"]
