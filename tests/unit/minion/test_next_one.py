"""How often the earlier minion asks about the next one what takes long."""

import os
from itertools import pairwise

import pytest

from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import connections
from saltext_safeupdate.minion.trial import Trial
from tests.support.succession import NEXT, World, job, short_directory

PID = int(NEXT.split(":")[1])


@pytest.fixture
def world(tmp_path, monkeypatch):
    with short_directory() as sockets:
        yield World(tmp_path, sockets, monkeypatch)


@pytest.fixture
def asked(world, monkeypatch):
    """Return what is asked of the kernel and of the database about the next one."""
    found = []

    def connected(pid, ports):
        found.append(pid)
        return world.connected

    def successors(table, process, original=Generations.successors):
        found.append("successors")
        return original(table, process)

    monkeypatch.setattr(connections, "has_any", connected)
    monkeypatch.setattr(Generations, "successors", successors)
    return found


def test_what_never_changes_is_asked_once(world, asked):
    world.overlaps()
    world.earlier.hears(job())
    world.earlier.looks()
    assert asked == [PID, "successors"]
    for number in range(2, 20):
        world.earlier.hears(job(number))
        world.earlier.looks()
    assert asked == [PID, "successors"]
    assert len(world.earlier.started) == 19


def test_one_that_claims_nothing_is_asked_until_it_does(world, asked):
    world.hands_over()
    world.binds()
    world.earlier.hears(job())
    world.earlier.hears(job(2))
    assert asked == [PID, "successors", "successors"]
    world.announces()
    world.earlier.looks()
    world.earlier.hears(job(3))
    assert asked == [PID, *["successors"] * 3]
    assert len(world.earlier.started) == 3


def test_one_without_a_connection_hears_of_no_job(world, asked):
    world.hands_over()
    world.binds()
    world.connected = False
    for number in range(1, 4):
        world.earlier.hears(job(number))
    assert len(world.earlier.started) == 3
    assert asked == [PID] * 3, "it may have one at any moment"


def test_what_grains_connect_to_is_no_master(world, monkeypatch):
    """Where a cloud tells a host of itself, or a database; they may take long."""
    places = {PID: {80}, os.getpid(): {4510}}
    monkeypatch.setattr(connections, "ports", places.get)
    monkeypatch.setattr(connections, "has_any", lambda pid, ports: bool(places[pid] & ports))
    world.earlier.parts[0].opts["master_port"] = 4511
    world.hands_over()
    world.binds()
    world.earlier.hears(job(1))
    world.earlier.looks_for(60)
    assert world.earlier.started == [job(1)["jid"]]
    for number, port in ((2, 4510), (3, 4511)):
        places[PID] = {port}
        world.earlier.hears(job(number))
        assert world.earlier.started[1:] == [], "it may have heard of this one"
    world.announces()
    world.earlier.looks_for(1)
    assert len(world.earlier.started) == 3


def test_another_one_is_asked_anew(world, asked, monkeypatch):
    world.overlaps()
    world.earlier.looks()
    with monkeypatch.context() as patch:
        world.dies(patch)
        world.earlier.looks()
        world.listener = 2
        world.earlier.hears(job())
        assert world.earlier.started == [], "this one may have no hooks"
    assert asked == [PID, "successors", 2, "successors"]


def test_looking_leaves_the_loop_to_the_returns_of_jobs(world, monkeypatch):
    """On a busy machine each look takes long, and each return of a job waits for several."""
    world.overlaps()
    looks = []

    def slow(trial, original=Trial.look):
        looks.append(world.clock.monotonic())
        world.clock.work(0.2)
        return original(trial)

    monkeypatch.setattr(Trial, "look", slow)
    began = world.clock.monotonic()
    while world.clock.monotonic() < began + 30:
        world.earlier.looks()
        world.clock.work(0.01)
    assert len(looks) * 0.2 < 30 / 4
    assert max(later - earlier for earlier, later in pairwise(looks)) < 1.5
