"""The master's side: which minions to ask, and what to publish again."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.jobs import missed_jobs
from saltext_safeupdate.core.jobs.missed_jobs import (
    FIRST_INTERVAL,
    MOST_JOBS,
    MOST_MINIONS,
    PATIENCE,
    START_INTERVAL,
    TIMES,
    Query,
    Tracker,
)


class World:
    """A tracker in which the publications are numbered 1, 2, ... in their order."""

    def __init__(self, **kwargs):
        self.tracker = Tracker(window=3600, **kwargs)
        self.count = 0

    def published(self, jid, minions, at, **kwargs):
        self.count += 1
        self.tracker.published(self.count, jid, minions, at, **kwargs)

    def ask(self, now, query="q"):
        due = self.tracker.due(now)
        if due:
            self.tracker.asked(query, due, now)
        return due

    def missed(self, query, minion, answer, now):
        found = self.tracker.answered(query, minion, answer, now)
        return found and [self.tracker.jid(number) for number in found.missed]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def tracker(world):
    return world.tracker


def test_a_minion_is_asked_when_it_has_started_and_gets_what_it_missed(world, tracker):
    world.published("1", ["a", "b"], 100)
    world.published("2", ["a"], 101)
    assert tracker.due(102) is None
    tracker.started("a", 102)
    assert world.ask(103) == Query(["a"], ["1", "2"])
    assert world.missed("q", "a", {"1": "running"}, 104) == ["2"]


def test_what_has_returned_is_not_asked_for_and_is_done(world, tracker):
    world.published("1", ["a", "b"], 100)
    tracker.returned("1", "a", 103)
    assert tracker.take_done() == []
    assert tracker.take_changed(104) == {}
    assert tracker.take_changed(100 + PATIENCE) == {1: ["b"]}
    tracker.returned("1", "b", 103)
    tracker.started("a", 104)
    assert tracker.due(200) is None
    assert tracker.take_done() == [1]
    assert tracker.take_done() == []


def test_a_return_between_query_and_answer(world, tracker):
    world.published("1", ["a"], 100)
    tracker.started("a", 100)
    world.ask(101)
    tracker.returned("1", "a", 103)
    assert world.missed("q", "a", {}, 102) == []


def test_what_is_not_known_is_nothing_to_it(world, tracker):
    world.published("1", ["a"], 100)
    tracker.returned("1", "stranger", 101)
    tracker.returned("2", "a", 101)
    tracker.started("stranger", 101)
    assert tracker.answered("q", "a", {}, 101) is None
    world.ask(100 + PATIENCE)
    assert tracker.answered("q", "stranger", {}, 120) is None
    assert tracker.waiting("stranger") == []
    assert world.missed("q", "a", {}, 120) == ["1"]
    assert tracker.answered("q", "a", {}, 120) is None, "one answer counts, not two"


def test_a_minion_that_could_not_be_asked_is_asked_soon_after_it_is_heard_of(world, tracker):
    world.published("1", ["a"], 100)
    tracker.started("a", 100)
    for question, now in enumerate((101, 200, 300, 500)):
        assert world.ask(now, str(question)) == Query(["a"], ["1"])
    assert tracker.due(600) is None
    tracker.returned("2", "a", 601)
    assert tracker.due(602) is None
    assert tracker.due(640) == Query(["a"], ["1"])


def test_a_minion_that_was_heard_of_is_asked_every_minute_for_a_while(world, tracker):
    """It lives, and does not hear yet: a cut may have broken one of its connections only."""
    world.published("1", ["a"], 0)
    tracker.started("a", 0)
    world.ask(0)
    tracker.returned("2", "a", 10)
    times = [now for now in range(11, 3000) if world.ask(now, str(now))]
    gaps = [later - sooner for sooner, later in itertools.pairwise([10, *times])]
    assert max(gap for gap, at in zip(gaps, times, strict=True) if at <= 900) <= 60
    assert gaps[-1] == 600


def test_what_was_accepted_is_not_asked_for_again_until_the_next_start(world, tracker):
    world.published("1", ["a"], 100)
    tracker.started("a", 100)
    world.ask(101)
    assert world.missed("q", "a", {"1": "accepted"}, 102) == []
    assert tracker.due(1000) is None
    tracker.started("a", 1000)
    assert tracker.due(1001) == Query(["a"], ["1"])


def test_starts_that_never_end_are_a_few_queries(world, tracker):
    """A minion that says again and again that it starts is asked now and then."""
    world.published("1", ["a"], 0)
    asked = 0
    for now in range(600):
        for _ in range(10):
            tracker.started("a", now)
        if world.ask(now, str(now)):
            asked += 1
            world.missed(str(now), "a", {"1": "running"}, now)
    assert asked <= 600 / START_INTERVAL + 1


def test_a_second_start_soon_after_one_is_not_forgotten(world, tracker):
    """What it was asked before that, it may never have heard; and it is not asked at once."""
    world.published("1", ["a"], 0)
    tracker.started("a", 0)
    assert world.ask(0)
    tracker.started("a", 1)
    world.published("2", ["a"], 1)
    assert START_INTERVAL < PATIENCE
    assert tracker.due(START_INTERVAL - 1) is None
    assert tracker.due(START_INTERVAL) == Query(["a"], ["1", "2"])


def test_a_minion_without_a_ledger_gets_nothing_again(world, tracker):
    world.published("1", ["a"], 100)
    tracker.started("a", 100)
    world.ask(101)
    answer = tracker.answered("q", "a", None, 102)
    assert (answer.missed, answer.plain) == ([], True)
    assert tracker.due(2000) is None
    tracker.started("a", 2000)
    assert tracker.due(2001) == Query(["a"], ["1"])


def test_what_comes_late_of_the_one_before_says_nothing(world, tracker):
    """A process that lost its code may have said that there is no such function."""
    world.published("1", ["a"], 0)
    assert world.ask(PATIENCE)
    tracker.started("a", 20)
    assert tracker.answered("q", "a", None, 20) is None
    assert tracker.due(20) == Query(["a"], ["1"])


def test_a_cut_network_is_noticed_without_a_start(world):
    world.published("1", ["a"], 100)
    times = [now for now in range(100, 200) if world.ask(now)]
    assert times[0] == 100 + PATIENCE
    assert world.missed("q", "a", {}, 200) == ["1"]


def test_silence_is_asked_less_and_less(world):
    world.published("1", ["a"], 0)
    times = [now for now in range(0, 3000) if world.ask(now)]
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert len(times) < 10


def test_a_job_is_published_again_a_few_times_at_most(world, tracker):
    world.published("1", ["a"], 0)
    again = 0
    for now in range(0, 3000, 10):
        tracker.started("a", now)
        if world.ask(now):
            again += len(world.missed("q", "a", {}, now))
    assert again == TIMES
    assert tracker.times(1) == {"a": TIMES}
    assert tracker.waiting("a") == []


def test_how_often_it_was_is_known_after_a_restart(world, tracker):
    world.published("1", ["a", "b"], 0, times={"a": TIMES, "b": TIMES - 1})
    assert world.ask(PATIENCE) == Query(["b"], ["1"])
    assert world.missed("q", "b", {}, 16) == ["1"]
    assert tracker.waiting("b") == []


def test_what_has_just_been_sent_again_is_not_asked_for_at_once(world, tracker):
    """Not even if the minion starts meanwhile: it is on its way."""
    world.published("1", ["a"], 0)
    world.ask(PATIENCE)
    assert world.missed("q", "a", {}, 16) == ["1"]
    tracker.started("a", 17)
    assert tracker.due(18) is None
    assert tracker.due(16 + FIRST_INTERVAL) == Query(["a"], ["1"])


def test_the_window_is_bounded(world, tracker):
    world.published("1", ["a"], 0)
    tracker.started("a", 3601)
    assert tracker.due(3601) is None
    assert tracker.take_done() == [1]
    assert tracker.jid(1) == ""


def test_a_batch_publishes_one_job_in_parts(world, tracker):
    world.published("1", ["a"], 0)
    world.published("1", ["b"], 1)
    tracker.started("b", 2)
    assert world.ask(2) == Query(["b"], ["1"])
    assert tracker.answered("q", "b", {}, 3).missed == [2]
    tracker.returned("1", "a", 4)
    assert tracker.take_done() == [1]


def test_of_two_publications_under_one_jid_the_first_goes_out_again(world, tracker):
    """A minion would have run the first that it got."""
    world.published("1", ["a"], 0)
    world.published("1", ["a"], 1)
    assert world.ask(20) == Query(["a"], ["1"])
    assert tracker.answered("q", "a", {}, 21).missed == [1]


def test_one_query_is_not_about_everything(world, tracker):
    for number in range(MOST_JOBS + 10):
        world.published(str(number), ["a"], 0)
    tracker.started("a", 0)
    first = world.ask(1)
    assert len(first.jids) == MOST_JOBS
    world.missed("q", "a", {}, 2)
    # The rest follows at once; what has just been sent is not asked for again.
    assert world.ask(3, "q2") == Query(["a"], [str(MOST_JOBS + n) for n in range(10)])


def test_one_query_is_not_for_everybody(world):
    world.published("1", [f"m{number}" for number in range(MOST_MINIONS + 10)], 0)
    first, second = world.ask(20, "1"), world.ask(21, "2")
    assert (len(first.minions), len(second.minions)) == (MOST_MINIONS, 10)
    assert set(first.minions).isdisjoint(second.minions)
    assert world.ask(22) is None


def test_minions_that_are_gone_do_not_add_up():
    world = World(recycle_at=10)
    tracker = world.tracker
    for number in range(200):
        world.published(str(number), [f"m{number}", "stays"], number)
        tracker.returned(str(number), f"m{number}", number)
        tracker.due(number)
    assert tracker.numbered() <= 20
    assert tracker.waiting("stays") != tracker.waiting("m1") == []


NAMES = st.sampled_from(["a", "b", "c", "d", "\n", ""])
JIDS = st.sampled_from(["1", "2", "3", "q", ""])
ANSWERS = st.none() | st.dictionaries(JIDS, st.text(max_size=3), max_size=3)
WORLDS = st.lists(
    st.one_of(
        st.tuples(st.just("published"), JIDS, st.lists(NAMES, max_size=4)),
        st.tuples(st.just("returned"), JIDS, NAMES),
        st.tuples(st.just("started"), NAMES),
        st.tuples(st.just("answered"), NAMES, ANSWERS),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 20.0, 400.0])),
    ),
    max_size=40,
)


@settings(max_examples=50)
@given(WORLDS)
def test_whatever_happens_a_minion_only_gets_what_it_was_meant_to_get_and_has_not_returned(events):
    """The same as with plain sets."""
    tracker, now, number, queries = Tracker(window=1000), 0.0, 0, 0
    waiting, times = {}, {}
    for kind, *values in events:
        if kind == "published":
            number += 1
            tracker.published(number, values[0], values[1], now)
            waiting[number] = (values[0], now, set(values[1]))
        elif kind == "returned":
            tracker.returned(*values, now)
            for jid, _, minions in waiting.values():
                if jid == values[0]:
                    minions.discard(values[1])
        elif kind == "started":
            tracker.started(values[0], now)
        elif kind == "wait":
            now += values[0]
            query = tracker.due(now)
            if query:
                queries += 1
                tracker.asked(f"q{queries}", query, now)
                open_jids = {
                    (jid, minion)
                    for jid, at, minions in waiting.values()
                    for minion in minions
                    if at >= now - 1000
                }
                assert all(any((j, m) in open_jids for j in query.jids) for m in query.minions)
        else:
            minion, answer = values
            found = tracker.answered(f"q{queries}", minion, answer, now)
            for which in found.missed if found else ():
                jid, _, minions = waiting[which]
                assert minion in minions
                assert jid not in answer
                times[which, minion] = times.get((which, minion), 0) + 1
                assert times[which, minion] <= missed_jobs.TIMES
    for which in tracker.take_done():
        _, at, minions = waiting[which]
        assert not minions or at < now - 1000
