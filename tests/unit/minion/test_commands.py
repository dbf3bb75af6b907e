"""What jobs of an earlier minion have it do, and the next one as well."""

import contextlib
import os
import time

import pytest
import salt.payload
import salt.utils.event

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.generations.generation import Standing
from saltext_safeupdate.core.generations.meeting import Step
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from tests.support.succession import EARLIER, World, job, short_directory

# Seconds since the boot at which a test begins: the next minion has begun long before.
LATE = 1e9
ADD = {"func": "add", "schedule": {"a": {"function": "test.ping"}}, "persist": True}


def event(tag, **data):
    """Return an event as it comes from the bus."""
    data["_stamp"] = str(time.monotonic_ns())
    return f"{tag}\n\n".encode() + salt.payload.dumps(data)


class Bus:
    """What the minions hear that Salt's events are fired to."""

    def __init__(self, world, patch):
        self.heard, self.places, self.failing, self.raising = [], set(), [], None
        self._world = world
        patch.setattr(salt.utils.event, "get_event", self._get)

    @property
    def tags(self):
        return [tag for tag, _ in self.heard]

    @contextlib.contextmanager
    def _get(self, node, opts, listen):
        assert (node, listen) == ("minion", False)
        self.places.add(opts["sock_dir"])
        yield self

    def fire_event(self, data, tag):
        assert self._world.works is self._world.earlier
        if tag in self.failing:
            if self.raising:
                raise self.raising
            return False
        data["_stamp"] = "as Salt does"
        self.heard.append((tag, {name: data[name] for name in data if name != "_stamp"}))
        return True


@pytest.fixture
def build(tmp_path, monkeypatch):
    def build(**more):
        world = World(tmp_path, sockets, monkeypatch, **more)
        world.bus = Bus(world, monkeypatch)
        monkeypatch.setattr(processes, "since_boot", lambda: LATE + world.clock.monotonic())
        return world

    with short_directory() as sockets:
        yield build


@pytest.fixture
def world(build):
    made = build()
    made.overlaps()
    return made


def leaves(world):
    """Have the earlier one take no more jobs, with one that still runs."""
    world.children.append("a job")
    world.reports("m")
    world.earlier.looks_until(lambda: not world.earlier.listens)


# -- what the next one does as well --------------------------------------------


def test_the_next_one_does_it_when_it_is_ready_and_in_that_order(world):
    told = [
        event("manage_schedule", **ADD),
        event("pillar_refresh", clean_cache=True),
        event("manage_beacons", func="add", name="b"),
        event("environ_setenv", environ={"a": "b"}),
    ]
    for each in told:
        world.earlier.told(each)
    world.earlier.looks_for(60)
    assert world.bus.heard == [], "it would not do it yet"
    world.reports("m")
    world.earlier.looks_for(10)
    assert world.bus.heard == [
        ("manage_schedule", ADD),
        ("pillar_refresh", {"clean_cache": True}),
        ("manage_beacons", {"func": "add", "name": "b"}),
        ("environ_setenv", {"environ": {"a": "b"}}),
    ]
    assert world.earlier.handled == told, "it does it itself as well"
    assert world.bus.places == {world.opts["sock_dir"]}, "under the common names"


def test_once_it_is_ready_it_hears_each_at_the_next_look(world):
    world.reports("m")
    world.earlier.told(event("module_refresh"))
    world.earlier.looks()
    world.earlier.told(event("module_refresh"))
    world.earlier.looks()
    assert world.bus.tags == ["module_refresh"] * 2


def test_what_was_told_before_there_is_a_next_one_is_kept_for_it(build):
    world = build()
    world.asks()
    world.earlier.told(event("matchers_refresh"))
    assert world.meeting.go(Step.TAKEN, Step.MOVED)
    world.earlier.loses_its_parent()
    world.reports("m")
    world.earlier.looks_for(5)
    assert world.bus.heard == [], "the sockets are its own"
    world.binds()
    world.earlier.looks()
    assert world.bus.tags == ["matchers_refresh"]


def test_a_job_of_one_that_takes_no_more_changes_the_next_one_too(world):
    leaves(world)
    world.earlier.told(event("grains_refresh"))
    world.earlier.looks()
    assert world.earlier.standing is Standing.LEAVING
    assert world.bus.tags == ["grains_refresh"]


def test_the_next_one_does_it_also_while_it_is_on_trial(world):
    progress = Progress(beside=(EARLIER,))
    world.store.save(
        Update(id="u1", kind="update", created=1.0, phase=Phase.WATCHING, progress=progress)
    )
    world.reports("m")
    world.earlier.told(event("pillar_refresh"))
    world.earlier.looks_for(60)
    assert world.earlier.succession.serves_on
    assert world.bus.tags == ["pillar_refresh"]


CHANGES = {
    "manage_schedule": "add delete modify enable disable enable_job disable_job postpone_job "
    "skip_job reload save_schedule",
    "manage_beacons": "add modify delete enable disable enable_beacon disable_beacon reset",
}
LOOKS = {
    "manage_schedule": "run_job list get_next_fire_time job_status unknown",
    "manage_beacons": "list list_available validate_beacon unknown",
}


@pytest.mark.parametrize("tag", CHANGES)
def test_what_changes_something_is_done_by_both(world, tag):
    world.reports("m")
    for func in CHANGES[tag].split():
        world.earlier.told(event(tag, func=func))
    world.earlier.looks()
    assert [data["func"] for _, data in world.bus.heard] == CHANGES[tag].split()


@pytest.mark.parametrize("tag", LOOKS)
def test_nothing_is_started_twice_and_nothing_answered_twice(world, tag):
    world.reports("m")
    for func in LOOKS[tag].split():
        world.earlier.told(event(tag, func=func))
    world.earlier.told(event(tag))
    world.earlier.looks()
    assert world.bus.heard == []
    assert len(world.earlier.handled) == len(LOOKS[tag].split()) + 1


@pytest.mark.parametrize(
    "tag",
    [
        "fire_master",
        "_minion_mine",
        "__schedule_return",
        "__beacons_return",
        "__master_req_channel_payload/1/m",
        "salt/auth/creds",
        "salt/job/1/ret/m1",
        "/salt/minion/minion_schedule_add_complete",
    ],
)
def test_no_other_event_is(world, tag):
    world.reports("m")
    world.earlier.told(event(tag, func="add"))
    world.earlier.looks()
    assert world.bus.heard == []


def test_a_return_is_not_even_read(world):
    world.earlier.told(b"__master_req_channel_payload/1/m\n\n\xc1")
    assert len(world.earlier.handled) == 1


# -- what it does not ----------------------------------------------------------


def test_a_minion_alone_keeps_nothing(build):
    world = build()
    world.earlier.looks()
    world.earlier.told(event("pillar_refresh"))
    world.overlaps()
    world.reports("m")
    world.earlier.looks_for(5)
    assert world.bus.heard == []


def test_one_that_could_not_be_moved_forgets_them(build):
    world = build()
    assert world.asks() is Step.TAKEN
    world.earlier.told(event("pillar_refresh"))
    assert world.meeting.go(Step.TAKEN, Step.BACK)
    world.earlier.looks()
    assert world.earlier.standing is Standing.SERVING
    world.overlaps()
    world.reports("m")
    world.earlier.looks_for(5)
    assert world.bus.heard == []


def test_what_it_is_not_ready_for_itself_is_not_kept(world):
    world.reports("m")
    world.earlier.parts[0].ready = False
    world.earlier.told(event("pillar_refresh"))
    world.earlier.looks()
    assert world.bus.heard == []


@pytest.mark.parametrize("listener", [0, -1, os.getpid()])
def test_it_is_kept_while_nobody_else_listens(world, listener):
    world.reports("m")
    world.generations.notes_masters(EARLIER, (("m", True),))
    world.earlier.told(event("pillar_refresh"))
    there, world.listener = world.listener, listener
    world.earlier.looks_for(40)
    assert world.bus.heard == []
    world.listener = there
    world.earlier.looks()
    assert world.bus.tags == ["pillar_refresh"]


def test_what_the_next_one_has_read_from_the_disk_is_not_added_again(world, monkeypatch):
    monkeypatch.setattr(processes, "since_boot", lambda: -1.0)
    world.earlier.told(event("manage_schedule", **ADD))
    world.earlier.told(event("manage_schedule", **{**ADD, "persist": False}))
    world.earlier.told(event("pillar_refresh"))
    world.reports("m")
    world.earlier.looks()
    assert world.bus.heard == [
        ("manage_schedule", {**ADD, "persist": False}),
        ("pillar_refresh", {}),
    ]


# -- many of them --------------------------------------------------------------


def test_of_the_same_the_last_one_counts(world):
    for name in "abcab":
        world.earlier.told(event("manage_schedule", func="delete", name=name))
        world.earlier.told(event("pillar_refresh"))
    world.reports("m")
    world.earlier.looks()
    names = [data.get("name") for _, data in world.bus.heard]
    assert names == ["c", "a", "b", None]


def test_for_one_that_does_not_come_up_only_so_many_are_kept(world):
    for number in range(510):
        world.earlier.told(event("manage_schedule", func="delete", name=number))
    world.reports("m")
    world.earlier.looks()
    assert [data["name"] for _, data in world.bus.heard] == list(range(10, 510))


def test_of_several_parts_of_a_minion_one_is_heard(build):
    world = build(masters=("m", "n"))
    world.overlaps()
    world.reports("m", without=("n",))
    world.earlier.told(event("pillar_refresh"))
    world.earlier.looks_for(3)
    assert world.bus.heard == [], "a part of the next one would miss it"
    world.reports("m", "n")
    package = event("manage_beacons", func="reset")
    for part in world.earlier.parts:
        with world.earlier.at_work():
            world.earlier.succession.told(lambda *_: None, part, package)
            world.earlier.succession.look(part)
    assert world.bus.tags == ["pillar_refresh", "manage_beacons"]


# -- a next one that is not as it should be ------------------------------------


def test_one_without_hooks_is_told_after_a_while(build):
    world = build()
    world.hands_over()
    world.binds()
    world.earlier.told(event("pillar_refresh"))
    world.earlier.looks_for(29)
    assert world.bus.heard == []
    assert world.earlier.ended == [], "nobody else would tell it"
    world.earlier.looks_for(3)
    assert world.bus.tags == ["pillar_refresh"]
    world.earlier.looks_until(lambda: world.earlier.ended)


def test_one_that_follows_the_next_one_is_waited_for(world):
    leaves(world)
    world.earlier.told(event("pillar_refresh"))
    world.listener = 4_000_002
    world.earlier.looks_for(20)
    assert world.bus.heard == [], "it has noted nothing of itself yet"
    world.binds()
    world.earlier.looks_for(15)
    assert world.bus.tags == ["pillar_refresh"]


@pytest.mark.parametrize("stopped", [False, True])
def test_it_waits_for_a_next_one_for_a_minute_at_most(world, stopped):
    leaves(world)
    world.listener = 0
    world.earlier.told(event("pillar_refresh"))
    world.children.clear()
    if stopped:
        world.earlier.succession._stop()
    world.earlier.looks_for(50)
    assert bool(world.earlier.ended) is stopped
    world.earlier.looks_for(30)
    assert world.earlier.ended


@pytest.mark.parametrize("raised", [None, OSError("closed"), LookupError("whatever")])
def test_what_does_not_get_there_is_tried_again_later(world, caplog, raised):
    world.reports("m")
    world.bus.raising = raised
    world.bus.failing = ["module_refresh"]
    for tag in ("pillar_refresh", "module_refresh", "beacons_refresh"):
        world.earlier.told(event(tag))
    world.earlier.looks()
    world.earlier.hears(job())
    assert world.earlier.started == [job()["jid"]]
    assert str(raised or "does not accept module_refresh") in caplog.text
    world.bus.failing = []
    world.earlier.looks_for(3)
    assert world.bus.tags == ["pillar_refresh"]
    world.earlier.looks_for(3)
    assert world.bus.tags == ["pillar_refresh", "module_refresh", "beacons_refresh"]


def test_while_the_database_fails_it_is_kept(world, monkeypatch):
    def fail(*args):
        raise RecordError("disk full")

    world.reports("m")
    world.earlier.told(event("pillar_refresh"))
    with monkeypatch.context() as patch:
        patch.setattr(Generations, "of", fail)
        world.earlier.looks_for(40)
    assert world.bus.heard == []
    world.earlier.looks()
    assert world.bus.tags == ["pillar_refresh"]
