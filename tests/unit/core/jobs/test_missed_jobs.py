"""The master's side: which minions to ask, and what to publish again."""

import itertools

import pytest

from saltext_safeupdate.core.jobs import functions, missed_jobs
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.core.jobs.missed_jobs import Tracker, missed


@pytest.fixture
def tracker():
    return Tracker(window=3600)


def ask(tracker, now, query="q"):
    due = tracker.due(now)
    if due:
        tracker.asked(query, due, now)
    return due


def test_a_minion_is_asked_when_it_has_started_and_gets_what_it_missed(tracker):
    tracker.published("1", "cmd.run", ["a", "b"], 100)
    tracker.published("2", "cmd.run", ["a"], 101)
    assert tracker.due(102) == {}
    tracker.started("a")
    assert ask(tracker, 103) == {"a": ["1", "2"]}
    assert tracker.answered("q", "a", {"1": "running"}, 104) == ["2"]


def test_what_has_returned_is_not_asked_for(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    tracker.returned("1", "a", 103)
    tracker.started("a")
    assert tracker.due(200) == {}


def test_a_return_between_query_and_answer(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    tracker.started("a")
    ask(tracker, 101)
    tracker.returned("1", "a", 103)
    assert tracker.answered("q", "a", {}, 102) == []


def test_a_minion_that_could_not_be_asked_is_asked_soon_after_it_is_heard_of(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    tracker.started("a")
    for question, now in enumerate((101, 200, 300, 500)):
        assert ask(tracker, now, str(question)) == {"a": ["1"]}
    assert tracker.due(600) == {}
    tracker.returned("2", "a", 601)
    assert tracker.due(602) == {}
    assert tracker.due(640) == {"a": ["1"]}


def test_a_minion_that_was_heard_of_is_asked_every_minute_for_a_while(tracker):
    """It lives, and does not hear yet: a cut may have broken one of its connections only."""
    tracker.published("1", "cmd.run", ["a"], 0)
    tracker.started("a")
    ask(tracker, 0)
    tracker.returned("2", "a", 10)
    times = [now for now in range(11, 3000) if ask(tracker, now, str(now))]
    gaps = [later - sooner for sooner, later in itertools.pairwise([10, *times])]
    assert max(gap for gap, at in zip(gaps, times, strict=True) if at <= 900) <= 60
    assert gaps[-1] == 600


def test_what_was_accepted_is_not_asked_for_again_until_the_next_start(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    tracker.started("a")
    ask(tracker, 101)
    tracker.answered("q", "a", {"1": "accepted"}, 102)
    assert tracker.due(1000) == {}
    tracker.started("a")
    assert tracker.due(1001) == {"a": ["1"]}


def test_a_minion_without_a_ledger_gets_nothing_again(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    tracker.started("a")
    ask(tracker, 101)
    assert tracker.answered("q", "a", None, 102) == []
    assert tracker.due(2000) == {}


def test_a_cut_network_is_noticed_without_a_start(tracker):
    tracker.published("1", "cmd.run", ["a"], 100)
    times = [now for now in range(100, 200) if ask(tracker, now)]
    assert times[0] >= 115
    assert tracker.answered("q", "a", {}, 200) == ["1"]


def test_silence_is_asked_less_and_less(tracker):
    tracker.published("1", "cmd.run", ["a"], 0)
    times = [now for now in range(0, 3000) if ask(tracker, now)]
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert len(times) < 10


def test_a_job_is_published_again_a_few_times_at_most(tracker):
    tracker.published("1", "test.ping", ["a"], 0)
    again = 0
    for now in range(0, 3000, 10):
        tracker.started("a")
        if ask(tracker, now):
            again += len(tracker.answered("q", "a", {}, now))
    assert again == missed_jobs._TIMES


def test_the_window_is_bounded(tracker):
    tracker.published("1", "cmd.run", ["a"], 0)
    tracker.started("a")
    assert tracker.due(3601) == {}
    assert tracker._jobs == {}


def test_a_batch_adds_its_minions(tracker):
    tracker.published("1", "cmd.run", ["a"], 0)
    tracker.published("1", "cmd.run", ["b"], 1)
    tracker.started("b")
    assert tracker.due(2) == {"b": ["1"]}


def test_a_publication_again_does_not_count_as_a_new_one(tracker):
    tracker.published("1", "cmd.run", ["a", "b"], 0)
    tracker.returned("1", "a", 103)
    tracker.published("1", "cmd.run", ["a"], 1000)
    tracker.started("a")
    assert tracker.due(1001) == {}


@pytest.mark.parametrize("fun", functions.named(Kind.MOMENTARY))
def test_questions_are_not_asked_for(tracker, fun):
    tracker.published("1", fun, ["a"], 0)
    tracker.started("a")
    assert tracker.due(1) == {}


def test_one_question_is_not_about_everything(tracker):
    for number in range(missed_jobs._MOST + 10):
        tracker.published(str(number), "cmd.run", ["a"], 0)
    tracker.started("a")
    assert len(tracker.due(1)["a"]) == missed_jobs._MOST


@pytest.mark.parametrize(
    ("answer", "expected"),
    [({}, ["1", "2"]), ({"1": "held"}, ["2"]), ("not available", None), (None, None)],
)
def test_what_an_answer_means(answer, expected):
    assert missed(["1", "2"], answer) == expected
