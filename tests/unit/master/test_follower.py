"""What notes make the master do, on a clock of the test's own."""

import logging

import pytest
from salt.exceptions import SaltClientError, SaltException

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.meant import MEANT, NOT_MEANT, UNDECIDED, about
from saltext_safeupdate.master.account import ALL, Published
from saltext_safeupdate.master.aiming import Target
from saltext_safeupdate.master.calls import Call
from saltext_safeupdate.master.follower import INTERVAL, MOST_AT_ONCE, SETTLE_INTERVAL, Follower
from saltext_safeupdate.master.missed_jobs import FIRST_INTERVAL, PATIENCE, TIMES


class FakeAccount:
    """An account in memory, with the calls of runners."""

    def __init__(self, world):
        self.world, self.rows = world, []
        self.answers, self.gone, self.waiting, self.changes = {}, [], {}, 0
        self.error, self.file = None, 1

    def stamp(self):
        return (self.file, self.changes)

    def since(self, number):
        if self.error:
            raise self.error
        now = self.world.now
        return [row._replace(age=now - row.age) for row in self.rows if row.number > number]

    def numbers(self):
        return {row.number for row in self.rows}

    def targets(self, numbers):
        return {row.number: Target("*") for row in self.rows if row.number in numbers}

    def settle(self, done, waiting):
        if self.error:
            raise self.error
        self.gone += done
        self.waiting |= waiting

    def finish(self, number, report):
        if self.error:
            raise self.error
        self.answers[number] = report


class FakeWork:
    """The publisher of the master."""

    def __init__(self):
        self.asked, self.published, self.error = [], [], None

    def ask(self, minions, jids, aims):
        if self.error:
            raise self.error
        self.asked.append((sorted(minions), sorted(jids)))
        self.aims = aims
        return f"q{len(self.asked)}"

    def publish(self, number, jid, minions, times):
        if self.error:
            raise self.error
        self.published.append((jid, sorted(minions), times))
        return sorted(minions)


class World:
    def __init__(self):
        self.now = 1000.0
        self.account, self.work = FakeAccount(self), FakeWork()
        self.accepted, self.renewed = None, 0
        self.follower = Follower(
            self.work,
            self.account,
            self.account,
            window=3600.0,
            accepted=self.keys,
            renewed=self.renew,
            clock=lambda: self.now,
        )

    def keys(self):
        if self.accepted is None:
            return {minion for row in self.account.rows for minion in row.waiting}
        return self.accepted

    def renew(self):
        self.renewed += 1

    def answers(self, query, minion, known, verdict=MEANT):
        """Have a minion answer that it knows these jobs, and the others are meant for it."""
        said = {about(row.number): verdict for row in self.account.rows}
        self.note("answer", query, minion, said | known)

    def new(self, jid, *minions, age=0.0, times=None, ends=""):
        number = len(self.account.rows) + 1
        # In the rows it is when they were published.
        row = Published(number, jid, self.now - age, list(minions), times or {}, ends)
        self.account.rows.append(row)
        self.account.changes += 1

    def request(self, *minions, timeout=30.0):
        self.follower.take(Call(1, "redeliver", {"minions": list(minions), "timeout": timeout}))

    def note(self, *note):
        self.follower.heard([list(note)])

    def pass_time(self, seconds):
        self.now += seconds
        self.follower.tick()


@pytest.fixture
def world():
    return World()


def test_a_job_without_a_return_is_asked_for(world):
    world.new("1", "a", "b")
    world.note("return", "1", "a")
    world.follower.tick()
    assert world.work.asked == []
    world.pass_time(PATIENCE)
    assert world.work.asked == [(["b"], ["1"])]


def test_what_minions_have_missed_is_published_again_once_for_all_of_them(world):
    world.new("1", "a", "b")
    world.new("2", "a", "b")
    world.pass_time(PATIENCE)
    world.answers("q1", "a", {"1": "running"})
    world.answers("q1", "b", {})
    assert world.work.published == []
    world.pass_time(INTERVAL)
    assert world.work.published == [
        ("1", ["b"], {"b": 1}),
        ("2", ["a", "b"], {"a": 1, "b": 1}),
    ]


def test_what_has_returned_meanwhile_is_not_published_again(world):
    world.new("1", "a")
    world.pass_time(PATIENCE)
    world.answers("q1", "a", {})
    world.note("return", "1", "a")
    world.pass_time(INTERVAL)
    assert world.work.published == []


def test_an_answer_to_a_query_of_others_is_nothing_to_it(world):
    world.new("1", "a", "b")
    world.answers("q1", "a", {})
    world.pass_time(PATIENCE)
    world.note("return", "1", "b")
    world.answers("q2", "a", {})
    world.answers("q1", "stranger", {})
    world.pass_time(INTERVAL)
    assert world.work.published == []


def test_a_minion_that_does_not_have_the_function_is_left_alone(world):
    world.new("1", "a")
    world.pass_time(PATIENCE)
    world.note("answer", "q1", "a", None)
    world.pass_time(3600.0 / 2)
    assert (world.work.published, len(world.work.asked)) == ([], 1)


def test_a_minion_that_starts_is_asked_at_once(world):
    world.new("1", "a")
    world.pass_time(1.0)
    world.note("start", "a")
    world.pass_time(1.0)
    assert world.work.asked == [(["a"], ["1"])]


def test_what_was_published_before_it_came_is_in_the_account(world):
    world.new("old", "a", age=4000.0)
    world.new("1", "a", age=100.0)
    world.follower.tick()
    assert world.work.asked == [(["a"], ["1"])]


def test_the_account_is_told_who_has_returned_and_what_is_done(world):
    world.new("1", "a", "b")
    world.new("2", "a")
    world.note("return", "1", "a")
    world.note("return", "2", "a")
    world.pass_time(SETTLE_INTERVAL)
    assert (world.account.gone, world.account.waiting) == ([2], {})
    world.pass_time(PATIENCE)
    assert world.account.waiting == {1: ["b"]}
    world.pass_time(3600.0)
    assert world.account.gone == [2, 1]


def test_a_flood_is_published_little_by_little(world):
    count = MOST_AT_ONCE + 5
    for number in range(count):
        world.new(f"{number:02}", "a")
    world.pass_time(PATIENCE)
    world.answers("q1", "a", {})
    world.pass_time(INTERVAL)
    assert len(world.work.published) == MOST_AT_ONCE
    world.pass_time(INTERVAL)
    assert len(world.work.published) == count


def test_a_request_is_answered_when_everybody_has_answered(world):
    world.new("1", "a", "b", "c", "d")
    world.new("2", "a")
    world.request("a", "b", "c", "other")
    world.pass_time(INTERVAL)
    assert world.work.asked == [(["a", "b", "c"], ["1", "2"])]
    world.answers("q1", "a", {"2": "held"})
    world.note("answer", "q1", "b", None)
    world.note("return", "1", "c")
    assert world.account.answers == {}
    world.pass_time(INTERVAL)
    assert world.account.answers == {
        1: {
            "published": {"1": ["a"]},
            "accepted": {"a": {"2": "held"}},
            "not_meant": {},
            "undecided": {},
            "no_answer": [],
            "not_set_up": ["b"],
            "failed": {},
        }
    }


def test_what_cannot_be_published_is_told_and_uses_up_no_try(world):
    world.new("1", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    for number in range(1, TIMES + 3):
        world.work.error = SaltException("no answer\x1b of the master")
        world.answers(f"q{number}", "a", {})
        world.pass_time(INTERVAL)
        world.work.error = None
        assert world.work.published == []
        world.pass_time(FIRST_INTERVAL + 1)
        assert len(world.work.asked) == number + 1
    (told,) = world.account.answers.values()
    assert (told["published"], told["failed"]) == ({}, {"1": "no answer\\x1b of the master"})
    world.answers(f"q{TIMES + 3}", "a", {})
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"], {"a": 1})]


def test_a_request_has_its_time(world):
    world.new("1", "a")
    world.request("a", timeout=5.0)
    world.pass_time(INTERVAL)
    world.pass_time(5.0 + INTERVAL)
    assert world.account.answers[1]["no_answer"] == ["a"]


def test_a_request_for_which_nothing_is_missing_is_answered_at_once(world):
    world.request("a")
    world.pass_time(INTERVAL)
    assert world.account.answers[1]["no_answer"] == []


def test_a_master_that_cannot_publish_tries_again_later(world, caplog):
    caplog.set_level(logging.ERROR)
    world.new("1", "a")
    world.work.error = SaltClientError("no")
    world.pass_time(PATIENCE)
    assert "minions cannot be asked what they missed: no" in caplog.text
    world.work.error = None
    world.pass_time(FIRST_INTERVAL)
    assert world.work.asked == [(["a"], ["1"])]
    world.answers("q1", "a", {})
    world.work.error = OSError("full")
    world.pass_time(INTERVAL)
    assert "job 1 cannot be published again: full" in caplog.text


def test_an_account_that_does_not_work_is_told_of_and_tried_again(world, caplog):
    world.new("1", "a")
    world.new("2", "b")
    world.request("x")
    world.account.error = RecordError("unreadable")
    world.pass_time(PATIENCE)
    assert "unreadable" in caplog.text
    world.account.error = None
    world.pass_time(INTERVAL)
    assert world.account.answers
    assert world.work.asked == [(["a", "b"], ["1", "2"])]


def test_requests_and_deletions_that_cannot_be_written_end_nothing(world, caplog):
    world.new("1", "a")
    world.note("return", "1", "a")
    world.request("x")
    world.note("start", "x")
    world.account.error = RecordError("full")
    world.pass_time(SETTLE_INTERVAL)
    assert caplog.text.count("full") >= 2


def test_each_target_is_asked_once_with_its_publications(world):
    world.new("1", "a")
    world.new("2", "a")
    world.pass_time(PATIENCE)
    jobs = {"1": "1", "2": "2"}
    assert world.work.aims == [{"tgt": "*", "tgt_type": "glob", "delimiter": ":", "jobs": jobs}]


def test_what_was_not_for_a_minion_is_never_published_to_it(world):
    world.new("1", "a", "b")
    world.request("a", "b")
    world.pass_time(INTERVAL)
    world.answers("q1", "a", {}, NOT_MEANT)
    world.answers("q1", "b", {})
    for _ in range(5):
        world.note("start", "a")
        world.pass_time(600.0)
    assert world.work.published == [("1", ["b"], {"b": 1})]
    assert all("a" not in minions for minions, _ in world.work.asked[1:])
    report = world.account.answers[1]
    assert (report["published"], report["not_meant"]) == ({"1": ["b"]}, {"1": ["a"]})


@pytest.mark.parametrize(
    "answer",
    [{}, {"#1": UNDECIDED}, {"#1": "Meant"}, False],
    ids=["none", "undecided", "odd", "error"],
)
def test_what_nobody_can_decide_is_told_and_not_published(world, caplog, answer):
    world.new("1", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    world.note("answer", "q1", "a", answer)
    world.pass_time(INTERVAL)
    assert world.work.published == []
    assert world.account.answers[1]["undecided"] == {"1": ["a"]}
    assert world.account.answers[1]["no_answer"] == []
    assert "'a' cannot tell whether it was meant by 1" in caplog.text


def test_only_minions_with_accepted_keys_are_waited_for(world):
    """Salt also waits for resources, which a minion has told of; the names are its choice."""
    world.accepted = {"a"}
    world.new("1", "a", "resource")
    world.pass_time(PATIENCE)
    assert world.work.asked == [(["a"], ["1"])]
    world.accepted = {"a", "new"}
    world.new("2", "new", "resource")
    world.pass_time(PATIENCE)
    assert world.work.asked[-1] == (["new"], ["2"])


def test_keys_that_cannot_be_read_settle_nothing(world):
    """Salt says that there are none then."""
    world.accepted = set()
    world.new("1", "a")
    world.pass_time(SETTLE_INTERVAL)
    assert world.account.gone == []
    world.accepted = {"a"}
    world.note("start", "a")
    world.pass_time(PATIENCE)
    assert world.work.asked[-1] == (["a"], ["1"])


def test_what_could_not_be_settled_is_settled_later(world):
    world.new("1", "a")
    world.pass_time(INTERVAL)
    world.note("return", "1", "a")
    world.account.error = RecordError("locked")
    world.pass_time(SETTLE_INTERVAL)
    assert world.account.gone == []
    world.account.error = None
    world.pass_time(SETTLE_INTERVAL)
    assert world.account.gone == [1]


def test_a_request_of_another_account_is_not_answered_in_this_one(world):
    world.new("1", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    world.account.rows, world.account.file = [], 2
    world.account.changes += 1
    world.pass_time(INTERVAL)
    world.note("answer", "q1", "a", {"1": "held"})
    world.pass_time(3600.0)
    assert world.account.answers == {}


def test_another_account_is_followed_from_its_beginning(world):
    """The one before was set aside, or somebody has removed it."""
    for number in range(3):
        world.new(f"old{number}", "a")
    world.pass_time(1.0)
    world.account.rows.clear()
    world.account.file = 2
    world.new("1", "b")
    world.pass_time(PATIENCE + INTERVAL)
    assert world.renewed == 1
    world.pass_time(PATIENCE)
    assert world.work.asked == [(["b"], ["1"])]


def test_what_a_full_account_has_removed_makes_nobody_undecided(world, caplog):
    for jid in ("1", "2", "3"):
        world.new(jid, "a")
    world.pass_time(INTERVAL)
    del world.account.rows[:2]
    world.request("a")
    world.pass_time(INTERVAL)
    assert world.work.asked == [(["a"], ["3"])]
    world.answers("q1", "a", {})
    world.pass_time(INTERVAL)
    assert [jid for jid, *_ in world.work.published] == ["3"]
    report = world.account.answers[1]
    assert (report["published"], report["undecided"]) == ({"3": ["a"]}, {})
    assert "cannot tell" not in caplog.text


@pytest.mark.parametrize(("ends", "own"), [("1", "2"), (ALL, None)])
def test_what_was_ended_is_over_whether_the_minion_hears_of_it_or_not(world, ends, own):
    """What ends all jobs is about the moment, and nobody is asked for it."""
    world.new("1", "a", "b")
    world.new("2", "a", ends=ends)
    world.new("3", "a")
    world.pass_time(PATIENCE)
    asked = {minion: set(jids) for minions, jids in world.work.asked for minion in minions}
    assert set(asked) == {"a", "b"}
    world.answers("q1", "a", {})
    world.answers("q1", "b", {})
    world.pass_time(INTERVAL)
    got = {(minion, jid) for jid, minions, _ in world.work.published for minion in minions}
    assert got == {("b", "1"), ("a", "3"), *({("a", own)} if own else ())}


def test_what_is_ended_stays_so_for_the_next_engine(world):
    """It is written down before what has ended it is removed."""
    world.new("1", "a", "b")
    world.new("2", "a", ends=ALL)
    world.pass_time(INTERVAL)
    world.pass_time(SETTLE_INTERVAL)
    assert (world.account.gone, world.account.waiting) == ([2], {1: ["b"]})


def test_what_is_ended_while_it_is_about_to_be_published_again(world):
    world.new("1", "a", "b")
    world.pass_time(PATIENCE)
    for minion in ("a", "b"):
        world.answers("q1", minion, {})
    world.new("2", "a", ends="1")
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["b"], {"a": 1, "b": 1})]
