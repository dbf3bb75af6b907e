"""The file: schema, corruption, and what an error says."""

import os
import sqlite3
import stat
import threading

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record import database
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from tests.support.full import no_more_files


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "state" / "safeupdate.db")


def accept(path, key="1"):
    return Ledger(path).accept(key, jid=key, fun="f", master="m", call=b"c", owner="o")


def test_what_an_interrupted_start_left_out_is_added(path):
    accept(path)
    db = sqlite3.connect(path)
    db.execute("DROP TABLE chunks")
    db.execute("PRAGMA user_version = 0")
    db.commit()
    db.close()
    ledger = Ledger(path)
    ledger.add_chunk("1", "tag", "digest", b"result")
    assert ledger.full("1").state is State.ACCEPTED


class Newer(Store):
    """A later version, whose schema has a column more."""

    VERSION = database.SCHEMA_VERSION + 1
    ADDED = (
        *Store.ADDED,
        ("updates", "more", "TEXT NOT NULL DEFAULT 'x'"),
    )


def test_a_column_that_an_older_file_does_not_have_is_added_once(path):
    update = Store(path).save(Update(id="u1", kind="update", created=1.0))
    for _ in range(2):
        assert Newer(path).get("u1").id == update.id
        with Newer(path).connection() as db:
            assert db.execute("SELECT more FROM updates").fetchall() == [("x",)]
            assert db.execute("PRAGMA user_version").fetchone() == (Newer.VERSION,)
        # The older version goes on with it.
        Store(path).save(Store(path).get("u1"))


def test_a_newer_schema_that_only_added_is_read(path):
    accept(path)
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE jobs ADD COLUMN more TEXT")
    db.execute("CREATE TABLE other (x)")
    db.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    db.commit()
    db.close()
    assert accept(path) is State.ACCEPTED
    assert accept(path, "2") is None


def test_a_newer_schema_that_took_something_away_is_refused_and_left_alone(path):
    accept(path)
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE phases RENAME TO old")
    db.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    db.commit()
    db.close()
    with pytest.raises(RecordError, match="newer version"):
        accept(path)
    assert os.listdir(os.path.dirname(path)) == ["safeupdate.db"]


@pytest.mark.parametrize("first", ["a job", "an engine"])
def test_an_unreadable_file_is_set_aside_and_told_of(path, first):
    accept(path)
    with open(path, "wb") as file:
        file.write(b"no database at all" * 100)
    engine = Ledger(path)
    if first == "an engine":
        engine.anchor()
    assert accept(path, "2") is None
    last = Store(path).latest()
    assert last.phase is Phase.FAILED
    assert "set aside" in last.reason
    aside = [name for name in os.listdir(os.path.dirname(path)) if "unreadable" in name]
    assert len(aside) == 1
    with open(os.path.join(os.path.dirname(path), aside[0]), "rb") as file:
        assert file.read().startswith(b"no database")
    engine.close_anchor()


def test_damage_inside_the_file_is_set_aside_when_it_is_met(path):
    for number in range(400):
        accept(path, str(number))
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        for page in range(2, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    everything = [str(number) for number in range(400)]
    with pytest.raises(RecordError, match="cannot be used"):
        Ledger(path).known(everything)
    assert accept(path, "new") is None
    assert "set aside" in Store(path).latest().reason


def test_only_one_of_two_that_find_it_unreadable_puts_it_away(path):
    accept(path)
    with open(path, "wb") as file:
        file.write(b"no database at all" * 100)
    first, second = Ledger(path), Ledger(path)
    error = sqlite3.DatabaseError("file is not a database")
    first._set_aside(error)
    accept(path, "kept")
    second._set_aside(error)
    assert Ledger(path).known(["kept"]) == {"kept": "accepted"}


def test_where_nothing_can_be_made_the_error_says_what_to_look_at(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordError, match=r"cannot be made.*safeupdate:state_dir"):
        accept(str(tmp_path / "file" / "safeupdate.db"))


def test_a_locked_database_is_an_error_and_not_put_away(path):
    accept(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(RecordError, match="locked"):
        Ledger(path, busy_timeout=0.05).delivered("1")
    blocker.execute("ROLLBACK")
    blocker.close()
    assert Ledger(path).delivered("1")


def test_the_reason_is_told_why_a_file_beside_it_cannot_be_opened(path):
    """SQLite itself does not name it."""
    accept(path)
    os.symlink("elsewhere", path + "-wal")
    with pytest.raises(RecordError, match=r"unable to open .*\(.*-wal: Too many .*links\)"):
        accept(path, "2")
    os.unlink(path + "-wal")
    accept(path, "2")


def test_the_look_for_the_reason_makes_no_file(path):
    """It would belong to whoever looks, such as root, and then no minion of another user writes."""
    os.makedirs(path, 0o700)
    with pytest.raises(RecordError, match="unable to open"):
        accept(path)
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_too_many_open_files_are_told(path):
    accept(path)
    with no_more_files(), pytest.raises(RecordError, match="Too many open files"):
        accept(path, "2")
    accept(path, "2")


def test_several_that_open_a_new_file_at_once_all_can(path):
    """SQLite itself refuses some of them at once: each has to wait for another one."""
    problems, rounds, together = [], 60, 4
    barrier = threading.Barrier(together)

    def open_each():
        for number in range(rounds):
            barrier.wait(60)
            try:
                accept(f"{path}{number}")
            except RecordError as err:
                problems.append(str(err))

    threads = [threading.Thread(target=open_each) for _ in range(together)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == []


def test_a_full_disk_is_an_error_and_what_was_there_stays(path):
    ledger = Ledger(path)
    accept(path)
    with ledger.connection() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    original = Ledger._open

    def small(self, synchronous):
        db = original(self, synchronous)
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    Ledger._open = small
    try:
        with pytest.raises(RecordError, match="full"):
            ledger.finish("1", b"x" * 100_000)
    finally:
        Ledger._open = original
    assert ledger.full("1").state is State.ACCEPTED


def test_the_stamp_changes_with_each_write(path):
    ledger = Ledger(path)
    stamps = {ledger.stamp()}
    ledger.anchor()
    for number in range(5):
        accept(path, str(number))
        stamps.add(ledger.stamp())
    assert len(stamps) == 6


def test_a_file_of_the_first_version_gets_what_it_does_not_have(path):
    accept(path)
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE jobs DROP COLUMN awaits")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    assert Ledger(path).full("1").awaits == ""
    assert accept(path, "2") is None
    with Ledger(path).connection() as db:
        assert db.execute("PRAGMA user_version").fetchone() == (database.SCHEMA_VERSION,)


@pytest.mark.parametrize(
    ("which", "mode"),
    [("file", 0o620), ("file", 0o602), ("directory", 0o770), ("directory", 0o777)],
)
def test_a_file_that_others_may_write_is_not_used(path, which, mode):
    """They could have a job run that no master has published."""
    accept(path)
    os.chmod(path if which == "file" else os.path.dirname(path), mode)
    ledger = Ledger(path)
    for use in (ledger.open, ledger.anchor, lambda: accept(path, "2")):
        with pytest.raises(RecordError, match=f"others may write .*mode 0{mode:o}"):
            use()
    assert "others may write" in ledger.problem()
    os.chmod(path, 0o600)
    os.chmod(os.path.dirname(path), 0o700)
    assert [job.key for job in ledger.open()] == ["1"], "it was left as it was"


def test_a_directory_of_ours_is_closed_to_others_before_a_file_is_made_in_it(path):
    """As a volume of a container that was given to a group."""
    place = os.path.dirname(path)
    os.makedirs(place, exist_ok=True)
    os.chmod(place, 0o2770)
    accept(path)
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o2750
    accept(path, "2")
    assert sorted(job.key for job in Ledger(path).open()) == ["1", "2"]


def test_a_directory_of_another_user_is_not_closed_by_us(path, monkeypatch):
    place = os.path.dirname(path)
    os.makedirs(place, exist_ok=True)
    os.chmod(place, 0o2770)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RecordError, match="by their group"):
        accept(path)
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o2770


def test_a_file_that_was_given_to_a_group_says_what_does_that(path):
    accept(path)
    os.chmod(path, 0o660)
    told = rf"by their group \(GID {os.stat(path).st_gid}\) \(mode 0660\).*fsGroupChangePolicy"
    with pytest.raises(RecordError, match=told):
        accept(path, "2")


def test_a_file_that_others_may_read_is_closed_to_them(path):
    accept(path)
    os.chmod(path, 0o644)
    accept(path, "2")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_file_of_somebody_else_is_not_used(path, monkeypatch):
    accept(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RecordError, match="belongs to"):
        Ledger(path).open()


def test_a_file_that_cannot_be_looked_at_has_a_stamp(tmp_path):
    """The program that asks opens it then, which says what is wrong."""
    (tmp_path / "file").touch()
    store = Store(str(tmp_path / "file" / "safeupdate.db"))
    assert set(store.stamp()) == {0}
    with pytest.raises(RecordError):
        store.latest()
