"""What notes make the master do, on a clock of the test's own."""

import logging

import pytest
from salt.exceptions import SaltClientError, SaltException

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs.meant import AWAY, MISSED, NOT_MEANT, UNDECIDED, about
from saltext_safeupdate.master.account import ALL, Published
from saltext_safeupdate.master.aiming import Target
from saltext_safeupdate.master.calls import Call
from saltext_safeupdate.master.follower import (
    FORGET_INTERVAL,
    INTERVAL,
    MOST_AT_ONCE,
    Follower,
)
from saltext_safeupdate.master.missed_jobs import FIRST_INTERVAL

WINDOW, PATIENCE = 300.0, 10.0
EMPTY = {
    "published": {},
    "accepted": {},
    "not_meant": {},
    "away": {},
    "given_up": {},
    "undecided": {},
    "no_answer": [],
    "not_set_up": [],
    "failed": {},
}


class FakeAccount:
    """An account in memory, with the calls of runners."""

    def __init__(self, world):
        self.world, self.rows = world, []
        self.answers, self.gone, self.changes = {}, [], 0
        self.error, self.file, self.whole = None, 1, True

    def stamp(self):
        return (self.file, self.changes)

    def is_whole(self):
        return self.whole

    def begin_anew(self):
        if self.error:
            raise self.error
        self.rows, self.whole, self.changes = [], True, self.changes + 1

    def since(self, number):
        if self.error:
            raise self.error
        now = self.world.now
        return [row._replace(age=now - row.age) for row in self.rows if row.number > number]

    def numbers(self):
        return {row.number for row in self.rows}

    def targets(self, numbers):
        return {row.number: Target("*") for row in self.rows if row.number in numbers}

    def delete(self, numbers):
        if self.error:
            raise self.error
        self.gone += numbers

    def finish(self, number, report):
        if self.error:
            raise self.error
        self.answers[number] = report


class FakeWork:
    """The publisher of the master."""

    def __init__(self):
        self.asked, self.published, self.error = [], [], None
        # Of batches of the master.
        self.given_up = set()

    def ask(self, minions, jids, aims):
        if self.error:
            raise self.error
        self.asked.append((sorted(minions), sorted(jids)))
        self.aims = aims
        return f"q{len(self.asked)}"

    def waited_for(self, jid, minions):
        return minions - self.given_up

    def publish(self, number, jid, minions):
        if self.error:
            raise self.error
        self.published.append((jid, sorted(minions)))
        return sorted(minions)


class World:
    def __init__(self):
        self.now = 1000.0
        self.account, self.work = FakeAccount(self), FakeWork()
        self.renewed = self.number = 0
        self.begin()

    def begin(self):
        """Have an engine begin."""
        self.follower = Follower(
            self.work,
            self.account,
            self.account,
            window=WINDOW,
            patience=PATIENCE,
            renewed=self.renew,
            clock=lambda: self.now,
        )
        self.pass_time(INTERVAL)

    def renew(self):
        self.renewed += 1

    def answers(self, minion, known=(), verdict=MISSED, query=""):
        """Have a minion answer that it knows these jobs, and what it says of the others."""
        said = {about(row.number): verdict for row in self.account.rows}
        known = dict.fromkeys(known, "running")
        self.note("answer", query or f"q{len(self.work.asked)}", minion, said | known)

    def new(self, jid, *minions, age=0.0, **more):
        self.number += 1
        number = self.number
        # In the rows it is when they were published.
        row = Published(number, jid, self.now - age, frozenset(minions), **more)
        self.account.rows.append(row)
        self.account.changes += 1

    def request(self, *minions, timeout=30.0):
        self.follower.take(Call(1, "redeliver", {"minions": list(minions), "timeout": timeout}))

    def note(self, *note):
        self.follower.heard([list(note)])

    def start(self, *minions):
        """Have minions start, and the master ask them."""
        for minion in minions:
            self.note("start", minion)
        self.pass_time(INTERVAL)

    def pass_time(self, seconds):
        self.now += seconds
        self.follower.tick()


@pytest.fixture
def world():
    return World()


def test_a_minion_that_starts_is_asked_and_gets_what_it_has_missed(world):
    world.new("1", "a", "b")
    world.new("2", "a", "b")
    world.pass_time(60.0)
    assert world.work.asked == []
    world.start("a", "b")
    assert world.work.asked == [(["a", "b"], ["1", "2"])]
    world.answers("a", ["1"])
    world.answers("b")
    assert world.work.published == []
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["b"]), ("2", ["a", "b"])]


def test_a_question_has_each_target_once_with_its_publications_and_their_ages(world):
    world.new("1", "a")
    world.now += 7.25
    world.new("2", "a")
    world.start("a")
    (aim,) = world.work.aims
    assert aim["tgt"] == "*"
    assert aim["jobs"] == {"1": "1", "2": "2"}
    assert aim["ages"] == {"1": 7.8, "2": 0.5}


def test_what_was_ended_since_the_answer_is_not_published(world):
    for jid in "12":
        world.new(jid, "a", "b")
    world.start("a", "b")
    world.answers("a")
    world.answers("b")
    world.new("8", "a", ends="1")
    world.new("9", "b", ends=ALL, again=False)
    world.pass_time(INTERVAL)
    assert world.work.published == [("2", ["a"])]


def test_whom_a_batch_has_given_up_gets_nothing(world):
    world.new("1", "a", "b")
    world.start("a", "b")
    world.work.given_up = {"a"}
    world.answers("a", {})
    world.answers("b", {})
    world.pass_time(1.0)
    assert world.work.published == [("1", ["b"])]


def test_who_waits_is_told_soon_after_the_job_that_the_minion_has_it(world):
    world.new("1", "a")
    world.new("7", "a", asks="1", again=False)
    world.start("a")
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"])]
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"]), ("7", ["a"])]


def test_an_answer_to_a_query_of_others_is_nothing_to_it(world):
    world.new("1", "a", "b")
    world.answers("a", query="q1")
    world.start("a")
    for minion in ("b", "stranger"):
        world.answers(minion)
    world.answers("a", query="q2")
    world.pass_time(INTERVAL)
    assert world.work.published == []
    world.note("start", "a")
    world.answers("a", query="q1")
    world.pass_time(INTERVAL)
    assert world.work.published == [], "it has started again since"


def test_what_was_published_before_the_engine_came_is_in_the_account(world):
    world.new("old", "a", age=WINDOW + 1)
    world.new("1", "a", age=100.0)
    world.start("a")
    world.pass_time(FORGET_INTERVAL)
    assert world.account.gone == [1]
    assert world.work.asked[-1] == (["a"], ["1", "old"])
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"])]


def test_an_engine_that_begins_asks_all_for_whom_something_may_go_out_again(world):
    """An earlier one may have heard of their start and have ended before their answer."""
    world.new("1", "a", "b")
    world.new("7", "c", asks="1", again=False)
    world.start("a")
    world.begin()
    assert world.work.asked == [(["a"], ["1"]), (["a", "b"], ["1"])]
    world.answers("a")
    world.answers("b", ["1"])
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"])]


@pytest.mark.parametrize("error", [None, RecordError("locked")])
def test_nothing_is_published_that_may_have_been_ended_without_a_note(world, error):
    world.new("1", "a")
    world.start("a")
    world.answers("a")
    world.account.whole, world.account.error = False, error
    world.pass_time(INTERVAL)
    assert world.work.published == []
    world.account.error = None
    world.pass_time(INTERVAL)
    assert (world.account.whole, world.work.published) == (True, [])
    world.new("2", "b")
    world.start("b")
    world.answers("b")
    world.pass_time(INTERVAL)
    assert world.work.published == [("2", ["b"])]


def test_what_is_old_is_deleted(world):
    world.new("1", "a")
    world.pass_time(WINDOW - 1)
    assert world.account.gone == []
    world.account.error = RecordError("locked")
    world.pass_time(FORGET_INTERVAL)
    assert world.account.gone == []
    world.account.error = None
    world.pass_time(FORGET_INTERVAL)
    assert world.account.gone == [1]


def test_a_flood_is_published_little_by_little(world):
    count = MOST_AT_ONCE + 5
    for number in range(count):
        world.new(f"{number:02}", "a")
    world.start("a")
    world.answers("a")
    world.pass_time(INTERVAL)
    assert len(world.work.published) == MOST_AT_ONCE
    world.pass_time(INTERVAL)
    assert len(world.work.published) == count


def test_a_request_is_answered_when_everybody_has_answered(world):
    world.new("1", "a", "b", "c")
    world.new("2", "a")
    world.request("a", "b", "c", "other")
    world.pass_time(INTERVAL)
    assert world.work.asked == [(["a", "b", "c"], ["1", "2"])]
    world.answers("a", ["2"])
    world.note("answer", "q1", "b", None)
    assert world.account.answers == {}
    world.answers("c", verdict=AWAY)
    world.pass_time(INTERVAL)
    assert world.account.answers[1] == EMPTY | {
        "published": {"1": ["a"]},
        "accepted": {"a": {"2": "running"}, "c": {}},
        "away": {"1": ["c"]},
        "not_set_up": ["b"],
    }


def test_what_was_given_up_is_told(world):
    world.new("1", "a")
    world.new("7", "a", asks="1", again=False)
    world.pass_time(PATIENCE)
    world.request("a")
    world.pass_time(INTERVAL)
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == []
    assert world.account.answers[1]["given_up"] == {"1": ["a"]}


def test_what_cannot_be_published_is_told_and_tried_again(world):
    world.new("1", "a")
    world.request("a", timeout=5.0)
    world.pass_time(INTERVAL)
    world.work.error = SaltException("no answer\x1b of the master")
    world.answers("a")
    world.pass_time(INTERVAL)
    (told,) = world.account.answers.values()
    assert (told["published"], told["failed"]) == ({}, {"1": "no answer\\x1b of the master"})
    world.work.error = None
    world.pass_time(FIRST_INTERVAL)
    assert len(world.work.asked) == 2
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"])]


def test_what_the_account_has_no_more_is_not_tried_again(world, caplog):
    """Its publisher has lost the right, or it is too old."""
    world.new("1", "a")
    world.new("2", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    world.answers("a")
    del world.account.rows[0]
    world.work.error = SaltException("refused")
    world.pass_time(INTERVAL)
    assert "job 1 is not published again" in caplog.text
    world.work.error = None
    world.pass_time(FIRST_INTERVAL)
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == [("2", ["a"])]
    (told,) = world.account.answers.values()
    assert told["given_up"] == {"1": ["a"]}


def test_a_request_has_its_time(world):
    world.new("1", "a")
    world.request("a", timeout=5.0)
    world.pass_time(INTERVAL)
    world.pass_time(5.0 + INTERVAL)
    assert world.account.answers[1]["no_answer"] == ["a"]


def test_a_request_for_which_nothing_is_missing_is_answered_at_once(world):
    world.request("a")
    world.pass_time(INTERVAL)
    assert world.account.answers[1] == EMPTY


def test_a_master_that_cannot_publish_tries_again_later(world, caplog):
    caplog.set_level(logging.ERROR)
    world.new("1", "a")
    world.work.error = SaltClientError("no")
    world.start("a")
    assert "minions cannot be asked what they missed: no" in caplog.text
    world.work.error = None
    world.pass_time(FIRST_INTERVAL)
    assert world.work.asked == [(["a"], ["1"])]
    world.answers("a")
    world.work.error = OSError("full")
    world.pass_time(INTERVAL)
    assert "job 1 cannot be published again: full" in caplog.text


def test_an_account_that_does_not_work_is_told_of_and_tried_again(world, caplog):
    world.new("1", "a")
    world.request("x")
    world.account.error = RecordError("unreadable")
    world.start("a")
    assert "unreadable" in caplog.text
    world.account.error = None
    world.pass_time(INTERVAL)
    assert world.account.answers
    assert world.work.asked == [(["a"], ["1"])]


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ({}, "undecided"),
        ({"#1": UNDECIDED}, "undecided"),
        ({"#1": "Missed"}, "undecided"),
        ({"#1": NOT_MEANT}, "not_meant"),
        ({"#1": AWAY}, "away"),
    ],
    ids=str,
)
def test_what_a_minion_has_not_missed_for_certain_is_told_and_not_published(
    world, caplog, answer, name
):
    world.new("1", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    world.note("answer", "q1", "a", answer)
    world.pass_time(INTERVAL)
    assert world.work.published == []
    assert world.account.answers[1][name] == {"1": ["a"]}
    told = "'a' cannot tell whether it was meant by 1" in caplog.text
    assert told == (name == "undecided")


def test_a_minion_that_fails_is_asked_again(world):
    world.new("1", "a")
    world.start("a")
    world.note("answer", "q1", "a", False)
    world.pass_time(FIRST_INTERVAL)
    assert len(world.work.asked) == 2
    world.answers("a")
    world.pass_time(INTERVAL)
    assert world.work.published == [("1", ["a"])]


def test_a_request_of_another_account_is_not_answered_in_this_one(world):
    world.new("1", "a")
    world.request("a")
    world.pass_time(INTERVAL)
    world.account.rows, world.account.file = [], 2
    world.account.changes += 1
    world.pass_time(INTERVAL)
    world.answers("a")
    world.pass_time(WINDOW)
    assert world.account.answers == {}


def test_another_account_is_followed_from_its_beginning(world):
    """The one before was set aside, or somebody has removed it."""
    for number in range(3):
        world.new(f"old{number}", "a")
    world.pass_time(1.0)
    world.account.rows.clear()
    world.account.file = 2
    world.new("1", "b")
    world.start("a", "b")
    assert world.renewed == 1
    assert world.work.asked == [(["b"], ["1"])]


def test_what_a_full_account_has_removed_makes_nobody_undecided(world, caplog):
    for jid in ("1", "2", "3"):
        world.new(jid, "a")
    world.pass_time(INTERVAL)
    del world.account.rows[:2]
    world.request("a")
    world.pass_time(INTERVAL)
    assert world.work.asked == [(["a"], ["3"])]
    world.answers("a")
    world.pass_time(INTERVAL)
    assert [jid for jid, *_ in world.work.published] == ["3"]
    assert world.account.answers[1]["undecided"] == {}
    assert "cannot tell" not in caplog.text
