"""The master's side: which minions to ask, and what to publish again."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.jobs.meant import MEANT, NOT_MEANT, UNDECIDED, about
from saltext_safeupdate.master import missed_jobs
from saltext_safeupdate.master.missed_jobs import (
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

    def said(self, answer, verdict=MEANT):
        """Return an answer of a minion that is, or is not, meant by all publications."""
        return {about(number): verdict for number in range(1, self.count + 1)} | answer

    def missed(self, query, minion, answer, now):
        answer = self.said(answer)
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
    assert world.ask(103) == Query(["a"], ["1", "2"], [1, 2])
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
        assert world.ask(now, str(question)) == Query(["a"], ["1"], [1])
    assert tracker.due(600) is None
    tracker.returned("2", "a", 601)
    assert tracker.due(602) is None
    assert tracker.due(640) == Query(["a"], ["1"], [1])


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
    assert tracker.due(1001) == Query(["a"], ["1"], [1])


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
    assert tracker.due(START_INTERVAL) == Query(["a"], ["1", "2"], [1, 2])


def test_a_minion_without_a_ledger_gets_nothing_again(world, tracker):
    world.published("1", ["a"], 100)
    tracker.started("a", 100)
    world.ask(101)
    answer = tracker.answered("q", "a", None, 102)
    assert (answer.missed, answer.plain) == ([], True)
    assert tracker.due(2000) is None
    tracker.started("a", 2000)
    assert tracker.due(2001) == Query(["a"], ["1"], [1])


def test_what_comes_late_of_the_one_before_says_nothing(world, tracker):
    """A process that lost its code may have said that there is no such function."""
    world.published("1", ["a"], 0)
    assert world.ask(PATIENCE)
    tracker.started("a", 20)
    assert tracker.answered("q", "a", None, 20) is None
    assert tracker.due(20) == Query(["a"], ["1"], [1])


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
    assert world.ask(PATIENCE) == Query(["b"], ["1"], [1])
    assert world.missed("q", "b", {}, 16) == ["1"]
    assert tracker.waiting("b") == []


def test_what_has_just_been_sent_again_is_not_asked_for_at_once(world, tracker):
    """Not even if the minion starts meanwhile: it is on its way."""
    world.published("1", ["a"], 0)
    world.ask(PATIENCE)
    assert world.missed("q", "a", {}, 16) == ["1"]
    tracker.started("a", 17)
    assert tracker.due(18) is None
    assert tracker.due(16 + FIRST_INTERVAL) == Query(["a"], ["1"], [1])


def test_the_window_is_bounded(world, tracker):
    world.published("1", ["a"], 0)
    tracker.started("a", 3601)
    assert tracker.due(3601) is None
    assert tracker.take_done() == [1]
    assert tracker.jid(1) == ""


def test_what_is_not_written_down_any_more_is_forgotten(world, tracker):
    for jid in ("1", "2", "3"):
        world.published(jid, ["a"], 0)
    tracker.keep({2, 9})
    assert world.ask(20) == Query(["a"], ["2"], [2])
    assert tracker.waiting("a") == ["2"]
    assert [tracker.jid(number) for number in (1, 2, 3)] == ["", "2", ""]


def test_a_batch_publishes_one_job_in_parts(world, tracker):
    world.published("1", ["a"], 0)
    world.published("1", ["b"], 1)
    tracker.started("b", 2)
    assert world.ask(2) == Query(["b"], ["1"], [2])
    assert tracker.answered("q", "b", world.said({}), 3).missed == [2]
    tracker.returned("1", "a", 4)
    assert tracker.take_done() == [1]


def test_of_two_publications_under_one_jid_the_first_goes_out_again(world, tracker):
    """A minion would have run the first that it got."""
    world.published("1", ["a"], 0)
    world.published("1", ["a"], 1)
    assert world.ask(20) == Query(["a"], ["1"], [1, 2])
    assert tracker.answered("q", "a", world.said({}), 21).missed == [1]


def test_of_two_publications_under_one_jid_the_first_that_is_for_it_goes_out_again(world, tracker):
    world.published("1", ["a"], 0)
    world.published("1", ["a"], 1)
    world.ask(20)
    answer = {about(1): NOT_MEANT, about(2): MEANT}
    found = tracker.answered("q", "a", answer, 21)
    assert (found.missed, found.not_meant) == ([2], ["1"])


def test_what_was_for_others_is_over_for_this_minion(world, tracker):
    """Salt waits for more minions than it means. No later query is about it, and no start."""
    world.published("1", ["a", "b"], 0)
    assert world.ask(20).minions == ["a", "b"]
    found = tracker.answered("q", "a", world.said({}, NOT_MEANT), 21)
    assert (found.missed, found.not_meant, found.undecided) == ([], ["1"], [])
    assert tracker.waiting("a") == []
    tracker.started("a", 100)
    assert world.ask(200, "q2").minions == ["b"]
    assert tracker.take_changed(200) == {1: ["b"]}
    tracker.answered("q2", "b", world.said({}, NOT_MEANT), 201)
    assert tracker.take_done() == [1]


@pytest.mark.parametrize("verdict", [UNDECIDED, "", "Meant", None, 5])
def test_what_a_minion_cannot_decide_it_does_not_get_and_is_asked_when_it_has_started(
    world, tracker, verdict
):
    world.published("1", ["a"], 0)
    world.ask(20)
    found = tracker.answered("q", "a", world.said({}, verdict), 21)
    assert (found.missed, found.undecided) == ([], ["1"])
    assert tracker.due(3000) is None
    tracker.started("a", 3000)
    assert world.ask(3001, "q2").jids == ["1"]
    assert world.missed("q2", "a", {}, 3002) == ["1"]


def test_an_answer_that_says_nothing_of_it_has_nothing_published_again(world, tracker):
    """As minions with an earlier extension would answer, if they did."""
    world.published("1", ["a"], 0)
    world.ask(20)
    found = tracker.answered("q", "a", {}, 21)
    assert (found.missed, found.undecided) == ([], ["1"])


def test_only_publications_that_were_asked_for_are_answered(world, tracker):
    world.published("1", ["a"], 0)
    world.ask(20)
    world.published("1", ["a"], 20)
    assert tracker.answered("q", "a", {about(2): MEANT}, 21).missed == []


def test_a_minion_that_failed_is_asked_again(world, tracker):
    world.published("1", ["a"], 0)
    world.ask(20)
    found = tracker.answered("q", "a", False, 21)
    assert (found.missed, found.undecided, found.plain) == ([], ["1"], False)
    assert tracker.due(20 + FIRST_INTERVAL) == Query(["a"], ["1"], [1])


def test_a_return_that_comes_before_its_job_is_written_down(world, tracker):
    tracker.returned("1", "a", 0)
    tracker.returned("2", "a", 0)
    world.published("1", ["a", "b"], 0)
    assert (tracker.waiting("a"), tracker.waiting("b")) == ([], ["1"])
    assert tracker.take_changed(PATIENCE) == {1: ["b"]}
    world.published("2", ["a"], 0)
    assert tracker.take_done() == [2]


def test_one_query_is_not_about_everything(world, tracker):
    for number in range(MOST_JOBS + 10):
        world.published(str(number), ["a"], 0)
    tracker.started("a", 0)
    first = world.ask(1)
    assert len(first.jids) == MOST_JOBS
    world.missed("q", "a", {}, 2)
    # The rest follows at once; what has just been sent is not asked for again.
    rest = range(MOST_JOBS, MOST_JOBS + 10)
    assert world.ask(3, "q2") == Query(["a"], [str(n) for n in rest], [n + 1 for n in rest])


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
ANSWERS = st.one_of(
    st.none(),
    st.just(False),
    st.dictionaries(
        JIDS | st.integers(1, 9).map(about),
        st.sampled_from(["", "held", MEANT, MEANT, MEANT, NOT_MEANT, UNDECIDED]),
        max_size=6,
    ),
)
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


@settings(max_examples=50, deadline=None)
@given(WORLDS)
def test_whatever_happens_a_minion_only_gets_what_it_was_meant_to_get_and_has_not_returned(events):
    """The same as with plain sets."""
    tracker, now, number, queries = Tracker(window=1000), 0.0, 0, 0
    waiting, times, asked, early, done = {}, {}, set(), set(), set()
    for kind, *values in events:
        done.update(tracker.take_done())
        if kind == "published":
            number += 1
            tracker.published(number, values[0], values[1], now)
            minions = {minion for minion in values[1] if (values[0], minion) not in early}
            waiting[number] = (values[0], now, minions)
        elif kind == "returned":
            if all(jid != values[0] for n, (jid, *_) in waiting.items() if n not in done):
                early.add((values[0], values[1]))
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
                queries, asked = queries + 1, set(query.numbers)
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
                assert answer[about(which)] == MEANT
                times[which, minion] = times.get((which, minion), 0) + 1
                assert times[which, minion] <= missed_jobs.TIMES
            if found and answer:
                for which in asked:
                    jid, _, minions = waiting[which]
                    if jid not in answer and answer.get(about(which)) == NOT_MEANT:
                        minions.discard(minion)
    for which in done.union(tracker.take_done()):
        _, at, minions = waiting[which]
        assert not minions or at < now - 1000
