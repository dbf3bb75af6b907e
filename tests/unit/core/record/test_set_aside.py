"""What is left of databases that could not be read."""

import pathlib
import sqlite3

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record import set_aside
from saltext_safeupdate.master.account import Account
from tests.support.simulated import Clock

SECRET = b"a secret that was returned"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(tmp_path, clock):
    return Ledger(str(tmp_path / "state" / "safeupdate.db"), clock=clock)


def asides(ledger):
    found = pathlib.Path(ledger.path).parent.glob("*.unreadable-*")
    return sorted(path for path in found if not path.name.endswith(("-wal", "-shm")))


def everything(ledger):
    return b"".join(path.read_bytes() for path in pathlib.Path(ledger.path).parent.iterdir())


def with_a_secret(ledger):
    ledger.accept("1", jid="1", fun="cmd.run", master="m", call=SECRET * 3, owner="o")
    ledger.begin("1", "child")
    ledger.add_chunk("1", "tag", "digest", SECRET, durable=True)
    assert SECRET in everything(ledger)


def break_table(path, table):
    """Put rubbish where SQLite looks for the rows of a table."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (page,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
    db.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_what_is_secret_is_wiped_where_sqlite_still_finds_it(ledger):
    with_a_secret(ledger)
    break_table(ledger.path, "jobs")
    with pytest.raises(RecordError, match="malformed"):
        ledger.known(["1"])
    assert len(asides(ledger)) == 1
    assert SECRET not in everything(ledger)


def test_of_an_account_too(tmp_path):
    """It has what jobs were called with, and what was asked for and answered."""
    account = Account(str(tmp_path / "state" / "account.db"))
    account.published("1", SECRET * 3, ["a"])
    with account.transaction() as db:
        for table in ("calls", "answers"):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            db.execute(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                [1 if column in ("number", "call") else SECRET for column in columns],
            )
    assert SECRET in everything(account)
    break_table(account.path, "publications")
    with pytest.raises(RecordError, match="malformed"):
        list(account.since(0))
    assert len(asides(account)) == 1
    assert SECRET not in everything(account)


def test_one_broken_table_keeps_no_other_from_being_wiped(ledger):
    with_a_secret(ledger)
    break_table(ledger.path, "contents")
    with pytest.raises(RecordError, match="malformed"):
        ledger.full("1")
    assert len(asides(ledger)) == 1
    assert SECRET not in everything(ledger)


def test_few_are_kept_and_nobody_else_reads_them(ledger, clock):
    for number in range(5):
        path = pathlib.Path(ledger.path)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"rubbish {number} " * 100)
        path.chmod(0o644)
        assert ledger.known([]) == {}
        clock.sleep(60)
    kept = asides(ledger)
    assert [path.read_text().split()[1] for path in kept] == ["2", "3", "4"]
    assert len(kept) == set_aside.KEPT
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_none_is_large(ledger, monkeypatch):
    monkeypatch.setattr(set_aside, "LARGEST", 1000)
    path = pathlib.Path(ledger.path)
    path.parent.mkdir()
    path.write_text("rubbish" * 1000)
    assert ledger.known([]) == {}
    assert [path.stat().st_size for path in asides(ledger)] == [1000]
