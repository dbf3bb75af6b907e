"""The account of a master: what was published, and for whom."""

import contextlib
import math
import os
import stat

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import audience
from saltext_safeupdate.master.account import EVERYBODY, MOST_OF_ONE, Account
from saltext_safeupdate.master.aiming import Target
from saltext_safeupdate.master.calls import Calls
from saltext_safeupdate.master.follower import FORGET_INTERVAL, INTERVAL, Follower

SECRET = b"correct-horse-battery-staple"


class Clocks:
    wall, up = 1_000_000.0, 50.0


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def make(tmp_path, clocks):
    def make(**kwargs):
        path = str(tmp_path / "safeupdate" / "account.db")
        made = Account(path, clock=lambda: clocks.wall, since_boot=lambda: clocks.up, **kwargs)
        if not made.is_whole():
            made.begin_anew()
        return made

    return make


@pytest.fixture
def account(make):
    return make()


def stored(account):
    """Return the bytes of the database's files."""
    found = [account.path + suffix for suffix in ("", "-wal")]
    return b"".join(open(path, "rb").read() for path in found if os.path.exists(path))


def test_what_was_published_is_known_to_others(account, make, clocks):
    account.published("1", b"load", ["a", "b"])
    account.published("2", b"other", ["a", "b"])
    clocks.up += 10
    found = list(make().since(0))
    assert [(one.jid, one.age, one.minions) for one in found] == [
        ("1", 10.0, {"a", "b"}),
        ("2", 10.0, {"a", "b"}),
    ]
    assert [one.jid for one in account.since(found[0].number)] == ["2"]


def test_only_its_user_can_read_it(account):
    account.published("1", b"load", ["a"])
    files = [account.path, account.path + "-wal"]
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in files if os.path.exists(path)} == {
        0o600
    }
    assert stat.S_IMODE(os.stat(os.path.dirname(account.path)).st_mode) == 0o700


def test_a_clock_that_is_set_changes_no_age(account, clocks):
    account.published("1", b"load", ["a"])
    clocks.wall -= 100_000
    clocks.up += 5
    assert next(account.since(0)).age == 5.0


def test_across_a_boot_the_wall_clock_counts(account, clocks, monkeypatch):
    account.published("1", b"load", ["a"])
    monkeypatch.setattr(processes, "boot", lambda: "another")
    clocks.up = 0.0
    clocks.wall += 30
    assert next(account.since(0)).age == 30.0


def test_a_clock_that_was_set_back_over_a_boot_gives_no_old_job_a_new_window(
    account, clocks, monkeypatch
):
    account.published("1", b"load", ["a"])
    clocks.wall += 1000
    account.published("2", b"load", ["a"])
    monkeypatch.setattr(processes, "boot", lambda: "another")
    clocks.up = 0.0
    clocks.wall -= 500
    assert [one.age for one in account.since(0)] == [math.inf, math.inf]
    account.published("3", b"load", ["a"])
    clocks.up = 5.0
    assert [one.age for one in account.since(2)] == [5.0]


def test_what_is_deleted_leaves_nothing(account, make):
    account.anchor()
    account.published("1", SECRET, ["a", "b"])
    account.published("2", b"other", ["c"])
    assert SECRET in stored(account)
    first, second = (one.number for one in account.since(0))
    account.delete([first, 99])
    assert [one.number for one in make().since(0)] == [second]
    assert SECRET not in stored(account)
    assert audience.compressed(audience.packed("ab")) not in stored(account)


def test_a_ticket_is_for_one_publication_and_one_time(account):
    account.published("1", b"load", ["a", "b"])
    (one,) = account.since(0)
    ticket = account.ticket(one.number, ["b"])
    assert account.redeem("another") is None
    assert account.redeem({"ticket": ticket}) is None
    assert account.redeem(ticket) == (1, "1", b"load", ["b"], EVERYBODY, "")
    assert account.redeem(ticket) is None


def test_a_ticket_ends_with_its_publication_and_with_the_engine(account):
    account.published("1", b"load", ["a"])
    (one,) = account.since(0)
    ticket = account.ticket(one.number, ["a"])
    account.delete([one.number])
    assert account.redeem(ticket) is None
    account.published("2", b"load", ["a"])
    ticket = account.ticket(next(account.since(0)).number, ["a"])
    account.forget_tickets()
    assert account.redeem(ticket) is None


def test_the_oldest_go_if_there_are_too_many(make):
    account = make(most_rows=3)
    gone = [account.published(str(number), b"load", ["a"]) for number in range(5)]
    assert gone == [0, 0, 0, 1, 1]
    assert [one.jid for one in account.since(0)] == ["2", "3", "4"]


class Crowded(Account):
    """Between two of its transactions, another worker publishes; *changed* are its rows in each."""

    other, changed = None, ()

    @contextlib.contextmanager
    def transaction(self, **kwargs):
        with super().transaction(**kwargs) as db:
            before = db.total_changes
            yield db
            self.changed = (*self.changed, db.total_changes - before)
        if self.other is not None:
            self.other.published("another", b"load", ["a"])


@pytest.fixture
def crowded(make):
    """Return an account with 10,000 publications; the other worker does not wait for a lock."""
    with (filled := make(most_rows=20_000)).transaction(durable=False) as db:
        audience_, target = (
            accounts.tables.members(db, b"digest", lambda: audience.packed(["a", "b"])),
            accounts.tables.target(db, EVERYBODY.text()),
        )
        db.executemany(
            "INSERT INTO publications (jid, audience, target, boot, up, at, size) "
            "VALUES (?, ?, ?, '', 0, 0, 300)",
            [(str(number), audience_, target) for number in range(10_000)],
        )
        db.execute("INSERT INTO loads SELECT number, ? FROM publications", (b"load",))

    def crowded(**kwargs):
        found = Crowded(filled.path, **kwargs)
        found.other = make(most_rows=20_000, busy_timeout=0)
        return found

    return crowded


# Rows of all tables that are written for a publication, at most.
ROWS_OF_ONE = 5


def test_others_publish_while_thousands_are_dropped(crowded):
    account = crowded(most_rows=5_000)
    assert account.published("large", b"load", ["a"]) > 5_000
    assert max(account.changed) <= ROWS_OF_ONE * accounts._AT_ONCE
    assert len(account.numbers()) == 5_000 + 1, "the other one has published once more"


def test_others_publish_while_thousands_are_deleted(crowded):
    account = crowded()
    account.delete(sorted(account.numbers())[:5_000])
    assert max(account.changed) <= ROWS_OF_ONE * accounts._AT_ONCE
    assert len(account.numbers()) == 5_000 + len(account.changed)


def test_the_oldest_go_if_they_are_too_large(make):
    account = make(most_bytes=10_000)
    gone = sum(account.published(str(number), b"x" * 1000, ["a"]) for number in range(50))
    left = list(account.since(0))
    assert gone + len(left) == 50
    assert 5 <= len(left) <= 10
    assert left[-1].jid == "49"


def test_the_same_minions_are_stored_once(make):
    account = make(most_bytes=400_000)
    minions = [f"minion-{number * 7919 % 100_003}" for number in range(10_000)]
    for number in range(50):
        assert account.published(str(number), b"load", minions) == 0


def test_one_that_is_too_large_is_refused(account):
    with pytest.raises(RecordError, match="too large"):
        account.published("1", b"x" * (MOST_OF_ONE + 1), ["a"])
    assert not account.exists()


def test_a_call_is_taken_once_and_answered(account):
    calls = Calls(account)
    number = calls.put("ask", {"minions": ["a\nb"]})
    assert calls.outcome(number) == ("", {})
    assert calls.take() == [(number, "ask", {"minions": ["a\nb"]})]
    assert calls.take() == []
    assert calls.outcome(number) == ("taken", {})
    calls.finish(number, {"published": {}})
    assert calls.outcome(number) == ("done", {"published": {}})
    calls.withdraw(number)
    calls.finish(number, {})
    assert calls.outcome(number) == (None, {})


def test_facts(account):
    assert account.fact("engine") == ""
    assert not account.exists()
    account.set_fact("engine", "started")
    assert (account.fact("engine"), account.fact("other")) == ("started", "")


def test_an_unreadable_account_is_set_aside_and_nothing_in_it_is_redelivered(account, caplog):
    account.published("1", b"load", ["a"])
    with open(account.path, "r+b") as file:
        file.write(b"nothing that SQLite knows" * 100)
    assert account.redeem("ticket") is None
    assert "set aside" in caplog.text
    account.published("2", b"load", ["a"])
    assert [one.jid for one in account.since(0)] == ["2"]


def test_names_that_cannot_be_read_keep_nobody_else_from_his_jobs(account, make, caplog):
    """What a disk has changed within a value, SQLite does not see; the engine ended at it."""
    account.published("1", b"load", ["a", "b"])
    account.published("2", b"load", ["c"])
    first, second = (one.number for one in account.since(0))
    with account.transaction() as db:
        db.execute("UPDATE members SET minions = X'00112233' WHERE number = 1")
    found = [(one.number, one.jid, one.minions) for one in make().since(0)]
    assert found == [(first, "1", set()), (second, "2", {"c"})]
    assert "nobody gets the job 1 again" in caplog.text


@pytest.fixture
def follower():
    """Return what follows an account, every second that *passes*, and publishes nothing."""

    class Followed(Follower):
        def __init__(self, account):
            self.now = 1000.0
            calls = Calls(account)
            more = {"window": 300.0, "patience": 10.0, "clock": lambda: self.now}
            super().__init__(Quiet(), account, calls, **more)

        def passes(self, seconds):
            for _ in range(int(seconds)):
                self.now += 1
                self.tick()

    class Quiet:
        asked = ()

        def ask(self, minions, jids, aims):
            self.asked = (*self.asked, (sorted(minions), sorted(jids)))
            return "query"

    return Followed


def test_a_publication_whose_minions_are_damaged_is_told_once(account, make, follower, caplog):
    account.published("1", b"load", ["a", "b"])
    account.published("2", SECRET, ["c"])
    with account.transaction() as db:
        db.execute("UPDATE members SET minions = X'00' WHERE number = 2")
    following = follower(make())
    following.passes(INTERVAL)
    following.heard([["start", "a"], ["start", "c"]])
    following.passes(2 * FORGET_INTERVAL)
    assert following._work.asked == ((["a", "b"], ["1"]),)
    assert caplog.text.count("nobody gets the job 2 again") == 1
    following.passes(300.0)
    assert list(make().since(0)) == []
    assert SECRET not in stored(account)


@pytest.mark.parametrize("text", ["'[x'", "'5'", "'[]'", "CAST(X'5B22FF225D' AS TEXT)"])
def test_a_publication_whose_target_is_damaged_is_told_once(account, make, follower, caplog, text):
    account.published("1", b"load", ["a"], Target("a*"))
    account.published("2", SECRET, ["a"], Target("*"))
    ticket = account.ticket(2, ["a"])
    with account.transaction() as db:
        db.execute(f"UPDATE targets SET target = {text} WHERE number = 2")
    assert make().targets([1, 2]) == {1: Target("a*")}
    with pytest.raises(RecordError, match="target that is stored is damaged"):
        make().redeem(ticket)
    caplog.clear()
    following = follower(make())
    following.passes(INTERVAL)
    following.heard([["start", "a"]])
    following.passes(2 * FORGET_INTERVAL)
    assert following._work.asked == ((["a"], ["1"]),)
    assert caplog.text.count("nobody gets the job 2 again") == 1


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    account = Account(str(tmp_path / "file" / "account.db"))
    with pytest.raises(RecordError, match="'cachedir'"):
        account.published("1", b"load", ["a"])


def size_of(account):
    return len(stored(account))


def test_all_that_is_stored_of_a_publication_is_bounded(make):
    account = make(most_bytes=400_000)
    minions = [f"minion-{number:04}" for number in range(1000)]
    for number in range(300):
        account.published(str(number), b"load", minions, Target("minion-*"))
    numbers = account.numbers()
    for number in numbers:
        account.ticket(number, [])
    assert len(numbers) == 300
    # What a publication cannot share with others.
    account.scrub()
    assert size_of(account) < 400_000


def test_minions_and_targets_that_nobody_shares_count_as_well(make):
    account = make(most_bytes=100_000)
    for number in range(100):
        minions = [f"minion-{number * 7919 % 100_003}" for number in range(number, number + 1000)]
        account.published(str(number), b"load", minions, Target(f"minion-{number}*" * 50))
    left = len(list(account.since(0)))
    assert 1 < left < 50
    assert len(account.targets(range(101))) == left
    account.delete(range(101))
    with account.connection() as db:
        for table in ("members", "targets", "loads"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_names_are_never_joined(account):
    """The ID of a minion may have a new line in it. None has the character of no value."""
    account.published("1", b"load", ["a\nb", "d\0c", "c"])
    (one,) = account.since(0)
    assert one.minions == {"a\nb", "c"}
    assert account.redeem(account.ticket(one.number, ["a\nb"])).minions == ["a\nb"]


def test_whom_it_was_for_is_kept(account):
    target = Target(["G|@os|D*", "and", "not", "web1"], "compound", "|")
    account.published("1", b"load", ["a"], target)
    account.published("2", b"load", ["a"])
    assert account.targets([1, 2, 3]) == {1: target, 2: EVERYBODY}


def test_what_somebody_asked_who_was_killed_expires(account, clocks):
    calls = Calls(account)
    call = calls.put("ask", {})
    calls.take()
    calls.add_answers(call, [("a", b"answer")])
    clocks.up += 10_000
    account.expire()
    calls.finish(call, {"x": 1})
    clocks.up += 500
    account.expire()
    assert calls.outcome(call)[0] == "done"
    clocks.up += 500
    account.expire()
    assert calls.outcome(call) == (None, {})
    assert calls.answers(call) == []


def test_what_it_means_for_others_is_kept(account, make):
    account.published("1", b"load", ["a"], right="who")
    account.published("2", b"load", ["a"], ends="1")
    account.published("3", b"load", ["a"], asks="1", again=False)
    found = [(one.ends, one.asks, one.again) for one in make().since(0)]
    assert found == [("", "", True), ("1", "", True), ("", "1", False)]
    assert account.redeem(account.ticket(1, ["a"])).right == "who"


def test_an_account_of_an_earlier_version_is_read_and_an_earlier_version_reads_it(account):
    account.published("1", b"load", ["a"])
    with account.connection() as db:
        for column in ("asks", "again", "who"):
            db.execute(f"ALTER TABLE publications DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
        db.execute(
            "SELECT ends, waiting.minions, times.minions FROM publications "
            "LEFT JOIN waiting USING (number) LEFT JOIN times USING (number)"
        )
    (one,) = Account(account.path).since(0)
    assert (one.jid, one.asks, one.again) == ("1", "", True)
