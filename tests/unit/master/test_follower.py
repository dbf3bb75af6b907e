"""Which events make the master ask and publish again, on a clock of the test's own."""

import logging

import pytest
from salt.exceptions import SaltClientError

from saltext_safeupdate.master.follower import INTERVAL, Follower

# Seconds that a job gets to return, before anybody is asked for it.
PATIENCE = 15.0


class FakeWork:
    """The master's job cache and its publisher."""

    def __init__(self):
        self.cached, self.asked, self.published = [], [], []
        self.error = None

    def recent(self, window):
        return iter(self.cached)

    def age(self, jid):
        return 100.0

    def ask(self, minions, jids):
        if self.error:
            raise self.error
        self.asked.append((sorted(minions), sorted(jids)))
        return f"q{len(self.asked)}"

    def publish(self, jid, minions):
        if self.error:
            raise self.error
        self.published.append((jid, minions))


class World:
    def __init__(self, **kwargs):
        self.now = 1000.0
        self.work = FakeWork()
        self.follower = Follower(self.work, window=3600.0, clock=lambda: self.now, **kwargs)

    def new(self, jid, *minions):
        self.follower.event(f"salt/job/{jid}/new", {"fun": "test.sleep", "minions": minions})

    def answer(self, query, minion, answer, **data):
        self.follower.event(f"salt/job/{query}/ret/{minion}", {"return": answer, **data})

    def pass_time(self, seconds):
        self.now += seconds
        self.follower.tick()


@pytest.fixture
def world():
    return World()


def test_a_job_without_a_return_is_asked_for(world):
    world.new("1", "a", "b")
    world.answer("1", "a", True)
    world.follower.tick()
    assert world.work.asked == []
    world.pass_time(PATIENCE)
    world.pass_time(PATIENCE)
    assert world.work.asked == [(["b"], ["1"])]


def test_what_a_minion_has_missed_is_published_again_and_what_it_has_is_not(world):
    world.new("1", "a")
    world.new("2", "a")
    world.pass_time(PATIENCE)
    world.pass_time(PATIENCE)
    world.answer("q1", "a", {"1": "running"})
    assert world.work.published == [("2", ["a"])]


@pytest.mark.parametrize("data", [{"success": False}, {"retcode": 1}])
def test_a_minion_that_does_not_have_the_function_is_left_alone(world, data):
    world.new("1", "a")
    world.pass_time(PATIENCE)
    world.pass_time(PATIENCE)
    world.answer("q1", "a", {}, **data)
    world.pass_time(3600.0 / 2)
    assert (world.work.published, len(world.work.asked)) == ([], 1)


@pytest.mark.parametrize("tag", ["salt/minion/a/start", "minion_start"])
def test_a_minion_that_starts_is_asked_at_once(world, tag):
    world.new("1", "a")
    world.pass_time(1.0)
    world.follower.event(tag, {"id": "a"})
    world.pass_time(1.0)
    assert world.work.asked == [(["a"], ["1"])]


def test_the_tags_of_a_start_can_be_set():
    world = World(start_tags=["my/start"])
    world.new("1", "a")
    world.follower.event("minion_start", {"id": "a"})
    world.follower.tick()
    assert world.work.asked == []
    world.follower.event("my/start", {"id": "a"})
    world.pass_time(INTERVAL)
    assert world.work.asked == [(["a"], ["1"])]


@pytest.mark.parametrize("tag", ["salt/job/1", "salt/job/1/prog/a", "salt/auth", "minion_start"])
def test_other_events_are_nothing_to_it(world, tag):
    world.follower.event(tag, {})
    world.pass_time(PATIENCE)
    assert world.work.asked == []


def test_what_was_published_before_it_came_is_in_the_job_cache(world):
    world.work.cached = [("1", {"fun": "test.sleep"}, ["a"])]
    world.follower.catch_up()
    world.follower.tick()
    world.pass_time(PATIENCE)
    assert world.work.asked == [(["a"], ["1"])]


def test_it_looks_once_a_second(world):
    world.new("1", "a")
    world.follower.event("minion_start", {"id": "a"})
    world.follower.tick()
    world.new("2", "b")
    world.follower.event("minion_start", {"id": "b"})
    world.pass_time(INTERVAL / 2)
    assert len(world.work.asked) == 1
    world.pass_time(INTERVAL / 2)
    assert world.work.asked[1:] == [(["b"], ["2"])]


def test_a_master_that_cannot_publish_tries_again_later(world, caplog):
    caplog.set_level(logging.ERROR)
    world.new("1", "a")
    world.follower.event("minion_start", {"id": "a"})
    world.work.error = SaltClientError("no")
    world.follower.tick()
    assert "minions cannot be asked what they missed: no" in caplog.text
    world.work.error = None
    world.pass_time(30.0)
    assert world.work.asked == [(["a"], ["1"])]
    world.work.error = OSError("full")
    world.answer("q1", "a", {})
    assert "job 1 cannot be published again: full" in caplog.text
