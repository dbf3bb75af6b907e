"""Lanes beside each other: two in any case, more only while the machine has room for them."""

import threading

import pytest

from devtools.command import ToolError
from devtools.lanes import LaneResult
from devtools.pool import Pool
from tests.support.waiting import wait_for


class Lane:
    """Runs until it is let go."""

    def __init__(self, name, *, busy=False, seconds=1.0, fails=False):
        self.name, self.busy, self.seconds, self._fails = name, busy, seconds, fails
        self.runs, self.may_end = threading.Event(), threading.Event()

    def run(self):
        self.runs.set()
        self.may_end.wait(30)
        if self._fails:
            raise ToolError("it cannot")
        return LaneResult(self.name, 0, 1.0, passed=1)


class Running:
    """A pool at work, and the machine that it looks at."""

    def __init__(self, lanes, **options):
        self.lanes, self.idle, self.memory = lanes, 0.0, 1 << 40
        self._pool = Pool(
            lanes, idle=lambda: self.idle, memory=lambda: self.memory, settle=0.0, **options
        )
        self.results = []
        self._thread = threading.Thread(target=lambda: self.results.extend(self._pool.run()))
        self._thread.start()

    def names(self):
        return [lane.name for lane in self.lanes if lane.runs.is_set()]

    def wait(self, *names):
        wait_for(lambda: sorted(self.names()) == sorted(names), f"{names} run")

    def end(self):
        for lane in self.lanes:
            lane.may_end.set()
        self._thread.join(30)
        return self.results


@pytest.fixture
def begin():
    begun = []

    def start(lanes, **options):
        begun.append(Running(lanes, **options))
        return begun[-1]

    yield start
    for running in begun:
        running.end()


def test_on_a_busy_machine_two_run(begin):
    running = begin([Lane(name) for name in "abcd"])
    running.wait("a", "b")
    running.lanes[0].may_end.set()
    running.wait("a", "b", "c")
    assert len(running.end()) == 4


def test_on_an_idle_machine_as_many_as_there_may_be(begin):
    running = begin([Lane(name) for name in "abcde"], most=4)
    running.wait("a", "b")
    running.idle = 0.9
    running.wait("a", "b", "c", "d")
    running.lanes[0].may_end.set()
    running.wait("a", "b", "c", "d", "e")


def test_without_memory_no_more_than_two(begin):
    running = begin([Lane(name) for name in "abc"])
    running.memory, running.idle = 1, 0.9
    running.wait("a", "b")
    running.lanes[1].may_end.set()
    running.wait("a", "b", "c")


def test_the_longest_first_and_one_that_computes_beside_one_that_waits(begin):
    lanes = [Lane("short", seconds=1), Lane("long", seconds=9)]
    lanes += [Lane("busy", busy=True, seconds=2), Lane("busier", busy=True, seconds=3)]
    running = begin(lanes)
    running.wait("long", "busier")
    lanes[3].may_end.set()
    running.wait("long", "busier", "busy")
    lanes[1].may_end.set()
    running.wait("long", "busier", "busy", "short")


def test_on_an_idle_machine_as_many_compute_as_it_has_processors(begin):
    lanes = [Lane(name, busy=True, seconds=9) for name in "abc"]
    lanes += [Lane(name) for name in "de"]
    running = begin(lanes, computing=2, most=4)
    running.wait("a", "d")
    running.idle = 0.9
    running.wait("a", "b", "d", "e")
    lanes[0].may_end.set()
    running.wait("a", "b", "c", "d", "e")


def test_one_that_cannot_run_is_a_failure_and_the_others_run(begin):
    running = begin([Lane("a", fails=True), Lane("b"), Lane("c")])
    results = {result.name: result for result in running.end()}
    assert [results[name].ok for name in "abc"] == [False, True, True]
    assert results["a"].closing == "it cannot"


def test_lanes_that_need_something_built_come_while_others_run(begin):
    built = threading.Event()
    last = Lane("needs it")
    running = begin([Lane("a")], later=lambda: [last] if built.wait(30) else [])
    running.wait("a")
    assert not last.runs.is_set()
    built.set()
    wait_for(last.runs.is_set, "the lane that needs it")
    last.may_end.set()
    assert {result.name for result in running.end()} == {"a", "needs it"}


def test_what_cannot_be_built_ends_the_run_with_its_reason():
    first = Lane("a")
    first.may_end.set()

    def cannot():
        raise ToolError("no network")

    with pytest.raises(ToolError, match="no network"):
        Pool([first], later=cannot).run()
