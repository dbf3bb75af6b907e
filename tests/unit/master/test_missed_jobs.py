"""Whom a master asks about which publications, and what it makes of the answers."""

import pytest

from saltext_safeupdate.core.jobs.meant import AWAY, MISSED, NOT_MEANT, UNDECIDED, about
from saltext_safeupdate.master.account import ALL, Published
from saltext_safeupdate.master.missed_jobs import (
    FIRST_INTERVAL,
    MOST_JOBS,
    MOST_MINIONS,
    START_INTERVAL,
    MissedJobs,
)

WINDOW, PATIENCE = 300.0, 10.0


class World:
    def __init__(self):
        self.now, self.number = 1000.0, 0
        self.missed = MissedJobs(window=WINDOW, patience=PATIENCE)

    def publishes(self, jid, *minions, age=0.0, **more):
        self.number += 1
        one = Published(self.number, jid, age, frozenset(minions), **more)
        self.missed.published(one, self.now)
        return self.number

    def starts(self, *minions, **more):
        for minion in minions:
            self.missed.started(minion, self.now, **more)

    def asks(self):
        return self.missed.due(self.now).numbers

    def hears(self, minion, numbers, **said):
        known = {name.removeprefix("job"): state for name, state in said.items()}
        told = {about(number): MISSED for number in numbers}
        return self.missed.answered(minion, set(numbers), told | known, self.now)


@pytest.fixture
def world():
    return World()


def test_only_a_minion_that_starts_is_asked_and_only_about_what_may_be_for_it(world):
    first = world.publishes("1", "a", "b")
    world.publishes("2", "b")
    world.now += 60.0
    assert world.asks() == {}
    world.starts("a")
    assert world.asks() == {"a": {first}}
    assert world.asks() == {}, "it has some time"


def test_what_comes_after_its_start_it_has_heard(world):
    world.starts("a")
    world.now += 1.0
    world.publishes("1", "a")
    assert world.asks() == {}


def test_what_is_written_down_a_little_late_is_seen(world):
    world.starts("a")
    assert world.asks() == {}
    world.now += 2.0
    number = world.publishes("1", "a", age=2.5)
    assert world.asks() == {"a": {number}}


def test_it_is_asked_again_until_it_answers(world):
    number = world.publishes("1", "a")
    world.starts("a")
    assert world.asks()
    for interval in (FIRST_INTERVAL, 2 * FIRST_INTERVAL):
        world.now += interval - 1.0
        assert world.asks() == {}
        world.now += 1.0
        assert world.asks() == {"a": {number}}
    assert world.missed.answered("a", {number}, False, world.now) is None, "it has failed"
    assert world.hears("a", [number]).missed == [number]
    world.now += WINDOW / 2
    assert world.asks() == {}


def test_a_second_start_shortly_after_the_first_is_asked_a_little_later(world):
    number = world.publishes("1", "a")
    world.starts("a")
    assert world.asks()
    world.now += 1.0
    world.starts("a")
    assert world.asks() == {}
    world.now += START_INTERVAL
    assert world.asks() == {"a": {number}}
    world.starts("a", forced=True)
    assert world.asks() == {"a": {number}}


def test_starts_again_and_again_do_not_put_the_question_off(world):
    number = world.publishes("1", "a")
    world.starts("a")
    assert world.asks()
    for _ in range(4):
        world.now += START_INTERVAL / 4
        world.starts("a")
    assert world.asks() == {"a": {number}}


def test_nothing_older_than_the_window_is_asked_about(world):
    world.publishes("old", "a", age=WINDOW - 1.0)
    number = world.publishes("1", "a")
    world.now += 2.0
    world.starts("a")
    assert world.missed.forget(world.now) == [number - 1]
    assert world.asks() == {"a": {number}}


def test_what_somebody_has_ended_is_given_up_for_those_minions(world):
    """Whether they have heard of that or not; and only what was published before that."""
    first = world.publishes("1", "a", "b")
    world.publishes("3", "a", ends="1")
    second = world.publishes("4", "a", "b")
    world.publishes("6", "b", ends=ALL, again=False)
    third = world.publishes("7", "a", "b")
    assert world.missed.for_minion("a", world.now)[1] == {first + 1, second, third}
    assert world.missed.for_minion("b", world.now)[1] == {third}


@pytest.mark.parametrize("ends", ["4", ALL])
def test_a_syndic_or_a_worker_may_be_faster_with_the_end_of_a_job_than_with_the_job(world, ends):
    world.publishes("5", "a", ends=ends, again=False)
    job = world.publishes("4", "a", "b")
    later = world.publishes("6", "a")
    assert world.missed.for_minion("a", world.now)[1] == {later}
    assert world.missed.still_open(job, ["a", "b"], world.now) == {"b"}


def test_whoever_waits_asks_after_a_job_and_gives_a_minion_up_that_does_not_answer(world):
    """The minion gets the question as well, so that it can say in time that it has the job."""
    job = world.publishes("1", "a")
    other = world.publishes("2", "a")
    world.now += 5.0
    question = world.publishes("7", "a", asks="1", again=False)
    world.now += PATIENCE / 2 - 1.0
    assert world.missed.for_minion("a", world.now)[1] == {job, other, question}
    world.now += 1.0
    assert world.missed.for_minion("a", world.now)[1] == {other}
    again = world.publishes("8", "a", asks="1", again=False)
    assert world.missed.for_minion("a", world.now)[1] == {job, other, again}, "it still waits"


def test_what_is_given_up_is_asked_about_only_to_be_told(world):
    job = world.publishes("1", "a")
    world.publishes("7", "a", asks="1", again=False)
    world.now += PATIENCE
    world.starts("a")
    assert world.asks() == {"a": {job}}
    found = world.hears("a", [job])
    assert (found.missed, found.given_up) == ([], ["1"])


def test_each_answer_has_its_meaning(world):
    numbers = [world.publishes(str(n), "a") for n in range(1, 6)]
    words = (MISSED, AWAY, NOT_MEANT, UNDECIDED)
    answer = {about(n): word for n, word in zip(numbers, words, strict=False)} | {"5": "running"}
    found = world.missed.answered("a", set(numbers), answer, world.now)
    assert (found.missed, found.away, found.not_meant) == ([1], ["2"], ["3"])
    assert (found.undecided, found.accepted) == (["4"], {"5": "running"})


def test_a_minion_of_an_earlier_version_knows_no_gaps_and_gets_nothing(world):
    number = world.publishes("1", "a")
    found = world.missed.answered("a", {number}, {about(number): "meant"}, world.now)
    assert (found.missed, found.undecided) == ([], ["1"])


def test_a_minion_without_a_ledger_is_left_alone(world):
    number = world.publishes("1", "a")
    world.starts("a")
    world.asks()
    assert world.missed.answered("a", {number}, None, world.now).plain
    world.now += WINDOW / 2
    assert world.asks() == {}


def test_of_two_publications_under_one_jid_the_first_goes_out_again(world):
    numbers = [world.publishes("1", "a"), world.publishes("1", "a")]
    assert world.hears("a", numbers).missed == numbers[:1]


def test_a_query_is_bounded_and_the_rest_follows(world):
    for number in range(MOST_JOBS + 5):
        world.publishes(str(number), "a")
    world.starts("a")
    asked = world.asks()["a"]
    assert len(asked) == MOST_JOBS
    assert len(world.hears("a", asked).missed) == MOST_JOBS
    assert len(world.asks()["a"]) == 5
    names = [f"m{number}" for number in range(MOST_MINIONS + 5)]
    world.publishes("x", *names)
    world.starts(*names)
    assert len(world.asks()) == MOST_MINIONS
    assert len(world.asks()) == 5


def test_a_query_about_many_jobs_also_has_those_of_others(world):
    for number in range(MOST_JOBS):
        world.publishes(str(number), "a")
    world.publishes("other", "b")
    world.starts("a", "b")
    assert set(world.asks()) == {"a"}
    assert set(world.asks()) == {"b"}


def test_what_a_full_account_has_removed_is_forgotten(world):
    world.publishes("1", "a")
    left = world.publishes("2", "a")
    world.missed.keep({left})
    world.starts("a")
    assert world.asks() == {"a": {left}}
