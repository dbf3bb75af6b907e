"""One generation of the minion that follows another, with both of their main processes."""

import datetime
import glob
import inspect
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import salt.scripts
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate import hooks
from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.generations.claims import Claims
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.meeting import Meeting, Step
from saltext_safeupdate.core.generations.table import MOST, Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.minion import handing_over, queues
from saltext_safeupdate.minion.intake import Intake
from saltext_safeupdate.minion.job_process import JobProcess
from tests.support.state_runs import no_runs
from tests.support.succession import (
    DEAD,
    EARLIER,
    NEXT,
    PARENT,
    Process,
    World,
    job,
    paths,
    short_directory,
)

MANY = ("m", "n")


@pytest.fixture
def build(tmp_path, monkeypatch):
    with short_directory() as sockets:
        yield lambda **more: World(tmp_path, sockets, monkeypatch, **more)


@pytest.fixture
def world(build):
    return build()


def fails(patch, what, name):
    """Have a call of the table or of the claims fail, as when the database cannot be used."""

    def fail(*args, **kwargs):
        raise RecordError("disk full")

    patch.setattr(what, name, fail)


# -- without a handover --------------------------------------------------------


def test_a_minion_alone_takes_each_job_and_claims_none(world, monkeypatch):
    fails(monkeypatch, Claims, "claim")
    assert not world.earlier.looks()
    world.earlier.hears(job())
    world.earlier.hears(job())
    assert len(world.earlier.started) == 2
    assert world.earlier.standing is None


def test_a_minion_that_starts_alone_announces_nothing(world):
    world.generations.stands(DEAD, Standing.OVERLAPPING)
    world.generations.stands(EARLIER, Standing.LEAVING)
    world.announces()
    assert world.next.standing is None


def test_without_the_setting_it_has_no_sockets_of_its_own(build):
    world = build(restart="wait")
    world.earlier.looks()
    assert world.earlier.succession.bus == ""
    assert world.asks() is None
    sockets = map(os.path.basename, paths(world.opts))
    assert sorted(os.listdir(world.opts["sock_dir"])) == sorted(sockets)


# -- asked ---------------------------------------------------------------------


def test_a_minion_that_is_asked_agrees(world):
    assert world.asks() is Step.TAKEN
    assert world.earlier.standing is Standing.OVERLAPPING
    assert world.earlier.looks(), "the queues are for the next one"
    word = Path(world.settings.run_dir) / f"handover.{PARENT}.word"
    assert word.read_text() == "/run/salt-minion.pid\n"
    assert os.path.samefile(os.path.dirname(world.earlier.succession.bus), world.opts["sock_dir"])


def test_until_it_is_moved_it_goes_on_with_everything(world):
    world.asks()
    world.earlier.looks_for(60)
    world.earlier.hears(job())
    [part] = world.earlier.parts
    assert world.earlier.started == [job()["jid"]]
    assert part.process_manager.did == []
    assert {"beacons", "schedule", "ping", "state_queue"} <= part.periodic
    assert part.opts["sock_dir"] == world.opts["sock_dir"]
    assert world.earlier.standing is Standing.OVERLAPPING


OBSTACLES = {
    "threads": {"multiprocessing": False},
    "tcp": {"ipc_mode": "tcp"},
}


@pytest.mark.parametrize("opts", OBSTACLES.values(), ids=OBSTACLES)
def test_a_minion_that_cannot_be_handed_over_is_not_asked(build, opts):
    world = build(**opts)
    assert world.asks() is None
    assert next(iter(opts)) in handing_over.of_opts(world.earlier.parts[0].opts)
    assert world.earlier.succession.bus == ""
    _serves(world.earlier)


def test_nothing_stands_in_the_way_of_any_other(world):
    assert handing_over.of_opts(world.opts) == ""


def test_a_minion_of_another_program_refuses(world, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "salt.scripts")
    assert world.asks() is Step.REFUSED
    assert "not started by Salt's own program" in caplog.text
    word = Path(world.settings.run_dir, f"handover.{PARENT}.word").read_text()
    assert word == "it was not started by Salt's own program\n", "the guard tells it"
    _serves(world.earlier)


@pytest.mark.parametrize("standing", [Standing.LEAVING, Standing.OVERLAPPING])
def test_a_minion_with_many_before_it_that_have_jobs_refuses(world, monkeypatch, standing, caplog):
    before = [f"{EARLIER}{number}" for number in range(1, MOST + 1)]
    world.earlier.looks()
    for each in before:
        world.generations.stands(each, standing)
    gone, alive = set(), processes.alive
    monkeypatch.setattr(
        processes, "alive", lambda name: name not in gone and (name in before or alive(name))
    )
    monkeypatch.setattr(processes, "has_children", lambda pid: True)
    assert world.asks() is Step.REFUSED
    assert "5 earlier minions still have jobs" in caplog.text
    _serves(world.earlier)
    gone.add(before[0])
    assert world.meeting.go(Step.REFUSED, Step.ASKED)
    world.earlier.looks()
    assert world.meeting.is_at(Step.TAKEN)


def test_minions_that_are_just_about_to_end_are_not_many(world, monkeypatch):
    """They have no job any more, and a restart need not wait for the jobs of others for them."""
    before = [f"{EARLIER}{number}" for number in range(1, MOST + 1)]
    world.earlier.looks()
    for each in before:
        world.generations.stands(each, Standing.LEAVING)
    alive = processes.alive
    monkeypatch.setattr(processes, "alive", lambda name: name in before or alive(name))
    monkeypatch.setattr(processes, "has_children", lambda pid: False)
    assert world.asks() is Step.TAKEN


def test_a_minion_whose_sockets_cannot_be_linked_is_not_asked(world, caplog):
    for name in os.listdir(world.opts["sock_dir"]):
        os.unlink(os.path.join(world.opts["sock_dir"], name))
    assert world.asks() is None
    assert "cannot be linked" in caplog.text
    _serves(world.earlier)


def test_a_minion_that_nobody_can_meet_is_not_asked(world, caplog):
    run_dir = Path(world.settings.run_dir)
    run_dir.rmdir()
    run_dir.write_text("no directory")
    world.earlier.looks()
    assert "a restart waits for jobs" in caplog.text
    _serves(world.earlier)


@pytest.mark.parametrize(("what", "name"), [(Claims, "forget"), (Generations, "stands")])
def test_a_minion_with_an_unusable_database_refuses(world, monkeypatch, what, name, caplog):
    with monkeypatch.context() as patch:
        fails(patch, what, name)
        assert world.asks() is Step.REFUSED
    assert "disk full" in caplog.text
    _serves(world.earlier)


def test_a_minion_that_cannot_leave_its_word_refuses(world, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(world.meeting.__class__, "leave_word", fail)
        assert world.asks() is Step.REFUSED
    _serves(world.earlier)


def _serves(process):
    """Check that it is as one that was never asked."""
    assert not process.looks()
    process.hears(job())
    assert process.started == [job()["jid"]]
    assert process.parts[0].process_manager.did == []
    assert process.world.scripts.os is os


def test_a_request_that_was_withdrawn_is_not_taken_up(world):
    world.earlier.looks()
    asked = Path(world.settings.run_dir) / f"handover.{PARENT}.asked"
    assert world.meeting.go(Step.OPEN, Step.ASKED)
    asked.rename(asked.with_suffix(".withdrawn"))
    assert not world.earlier.looks()
    assert world.earlier.standing is None
    assert not any(map(world.meeting.is_at, Step))


def test_a_request_that_is_withdrawn_at_this_moment_is_not_taken_up(world, monkeypatch):
    monkeypatch.setattr(world.meeting.__class__, "is_at", lambda self, step: step is Step.ASKED)
    assert not world.earlier.looks()
    assert world.earlier.standing is None
    assert world.scripts.os is os


def test_a_request_to_another_minion_is_not_answered(world):
    (Path(world.settings.run_dir) / f"handover.{PARENT + 1}.asked").mkdir()
    assert not world.earlier.looks()
    assert world.earlier.standing is None


def test_claims_of_long_ago_are_forgotten(world):
    old = Claims(world.store, clock=lambda: 0.0)
    old.claim("1", "gone")
    world.asks()
    assert old.claim("1", "another")


# -- taken back ----------------------------------------------------------------


def test_a_minion_whose_processes_could_not_be_moved_serves_as_before(world, caplog):
    world.asks()
    world.meeting.go(Step.TAKEN, Step.BACK)
    assert not world.earlier.looks()
    assert world.earlier.standing is Standing.SERVING
    assert "could not be handed over" in caplog.text
    assert world.meeting.is_at(Step.OPEN)
    world.earlier.hears(job())
    assert world.earlier.started == [job()["jid"]]
    assert world.earlier.parts[0].process_manager.did == []
    assert world.scripts.os is os, "its parent is missed again"


def test_that_it_serves_again_is_written_down_before_it_does(world, monkeypatch):
    world.asks()
    world.meeting.go(Step.TAKEN, Step.BACK)
    with monkeypatch.context() as patch:
        fails(patch, Generations, "stands")
        assert world.earlier.looks()
    assert world.meeting.is_at(Step.BACK)
    assert not world.earlier.looks()
    assert world.earlier.standing is Standing.SERVING


def test_a_guard_that_waits_no_more_leaves_a_minion_that_serves(world, monkeypatch):
    _late(world, monkeypatch)
    assert not world.earlier.looks()
    assert world.earlier.standing is Standing.SERVING
    _serves(world.earlier)


def test_and_tries_until_that_is_written_down(world, monkeypatch):
    _late(world, monkeypatch)
    with monkeypatch.context() as patch:
        stands = Generations.stands

        def fail(self, process, standing):
            if standing is Standing.SERVING:
                raise RecordError("disk full")
            stands(self, process, standing)

        patch.setattr(Generations, "stands", fail)
        assert world.earlier.looks()
    assert not world.earlier.looks()
    assert world.earlier.standing is Standing.SERVING


def _late(world, monkeypatch):
    """Ask it, and have the guard give up while it answers."""
    world.earlier.looks()
    assert world.meeting.go(Step.OPEN, Step.ASKED)
    forget = Claims.forget

    def slow(claims):
        forget(claims)
        world.meeting.end()

    monkeypatch.setattr(Claims, "forget", slow)


def test_it_can_be_asked_again(world):
    world.asks()
    world.meeting.go(Step.TAKEN, Step.BACK)
    world.earlier.looks()
    world.hands_over()
    assert world.earlier.standing is Standing.OVERLAPPING


# -- moved ---------------------------------------------------------------------

DONE_ONCE = {"beacons", "ping", "state_queue"}


def _does_nothing_twice(world):
    return all(
        part.process_manager.did == ["no more restarts", f"signal {int(signal.SIGTERM)}"]
        and part.periodic == {"process_queue", "cleanup", "schedule"}
        and part.opts["sock_dir"] == world.earlier.succession.bus
        for part in world.earlier.parts
    )


def test_what_the_next_one_does_is_stopped_once_it_is_moved(build):
    world = build(masters=MANY)
    world.asks()
    world.meeting.go(Step.TAKEN, Step.MOVED)
    world.earlier.looks()
    assert _does_nothing_twice(world)
    assert os.listdir(world.settings.run_dir) == []
    world.earlier.looks_for(3)
    assert _does_nothing_twice(world), "it is told once"


def test_and_when_its_parent_is_gone_whatever_the_guard_says(build):
    """The guard may be killed before it says so."""
    world = build(masters=MANY)
    world.asks()
    world.earlier.loses_its_parent()
    world.earlier.looks()
    assert _does_nothing_twice(world)
    assert os.listdir(world.settings.run_dir) == []


def test_engines_that_do_not_end_are_killed_once(world):
    world.hands_over()
    [part] = world.earlier.parts
    told = list(part.process_manager.did)
    world.earlier.looks_for(1)
    assert part.process_manager.did == told, "they have some time"
    world.earlier.looks_until(lambda: part.process_manager.did != told)
    world.earlier.looks_for(60)
    assert part.process_manager.did == [*told, "killed"]


def test_engines_that_do_not_end_are_killed_though_it_leaves(world):
    world.overlaps()
    world.reports("m")
    world.children.append("an engine")
    world.earlier.looks_until(lambda: not world.earlier.listens)
    world.earlier.looks_until(lambda: "killed" in world.earlier.parts[0].process_manager.did)


# -- the next one is not known yet ---------------------------------------------


def test_before_the_next_one_is_there_the_earlier_one_takes_each_job(world):
    world.hands_over()
    world.earlier.looks_for(60)
    world.earlier.hears(job(1))
    assert world.earlier.started == [job(1)["jid"]]
    assert world.earlier.listens


def test_jobs_wait_while_the_next_one_may_or_may_not_claim_its_own(world):
    world.hands_over()
    world.binds()
    world.earlier.hears(job(1))
    world.earlier.hears(job(2))
    world.earlier.looks_for(5)
    assert world.earlier.started == []
    world.announces()
    world.next.hears(job(2))
    world.earlier.looks_for(1)
    assert world.earlier.started == [job(1)["jid"]]
    assert world.next.started == [job(2)["jid"]]
    world.earlier.looks_for(5)
    assert world.earlier.started == [job(1)["jid"]], "it is started once"


def test_jobs_that_wait_go_to_the_part_that_heard_them(build):
    world = build(masters=MANY)
    world.hands_over()
    world.binds()
    second = world.earlier.parts[1]
    world.earlier.hears(job(), second)
    started = []
    second._invoke_execution = started.append
    world.announces()
    world.earlier.looks()
    assert started == [job()]


@pytest.mark.parametrize("who", [DEAD, EARLIER], ids=["a dead one", "another one"])
def test_what_others_have_announced_is_not_said_by_the_one_that_listens(world, who):
    world.earlier.looks()
    world.hands_over()
    world.binds()
    world.generations.begins(who)
    world.earlier.hears(job())
    world.earlier.looks_for(1)
    assert world.earlier.started == []


def test_if_the_next_one_has_no_extension_the_jobs_are_its_own(world, caplog):
    world.hands_over()
    world.binds()
    world.earlier.hears(job())
    world.earlier.looks_for(3)
    assert world.earlier.listens
    world.earlier.looks_until(lambda: not world.earlier.listens)
    assert "runs without this extension" in caplog.text
    assert f"arrived meanwhile: {job()['jid']}. Ask with" in caplog.text
    world.announces()
    world.earlier.looks_for(1)
    world.earlier.hears(job(2))
    assert world.earlier.started == []
    assert world.earlier.standing is Standing.LEAVING


def test_jobs_wait_for_one_that_is_too_busy_to_say_who_it_is(world):
    world.overlaps()
    world.listener = -1
    world.earlier.hears(job())
    assert world.earlier.started == []
    world.binds()
    world.earlier.looks()
    assert world.earlier.started == [job()["jid"]]


@pytest.mark.parametrize("seconds", [1, 60])
def test_if_the_next_one_has_died_the_earlier_one_takes_the_jobs(world, monkeypatch, seconds):
    world.overlaps()
    world.reports("m")
    world.generations.notes_masters(NEXT, (("m", False),))
    world.earlier.looks_for(seconds)
    world.generations.notes_masters(NEXT, (("m", True),))
    with monkeypatch.context() as patch:
        world.dies(patch)
        world.earlier.hears(job())
        world.earlier.looks_for(60)
        assert world.earlier.started == [job()["jid"]]
        assert world.earlier.listens
    world.binds()
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_one_that_cannot_have_heard_of_a_job_yet_keeps_nobody_waiting(world):
    # It sleeps ('random_startup_delay'), or its grains take long: its sockets are there.
    world.hands_over()
    world.connected = False
    world.binds()
    world.earlier.looks_for(300)
    world.earlier.hears(job(1))
    assert world.earlier.started == [job(1)["jid"]]
    world.connected = True
    world.earlier.hears(job(2))
    assert world.earlier.started == [job(1)["jid"]]
    world.earlier.looks_for(15)
    assert world.earlier.listens, "the time until it announces itself begins with its connection"
    world.announces()
    world.earlier.looks()
    assert world.earlier.started == [job(1)["jid"], job(2)["jid"]]


def test_another_one_in_its_place_has_the_same_time(world):
    world.hands_over()
    world.binds()
    world.earlier.looks_for(15)
    world.listener = 0
    world.earlier.looks_for(15)
    world.binds()
    world.earlier.looks_for(15)
    assert world.earlier.listens


def test_jobs_that_wait_are_started_if_the_next_one_has_died(world):
    world.hands_over()
    world.binds()
    world.earlier.hears(job())
    world.listener = 0
    world.earlier.looks()
    assert world.earlier.started == [job()["jid"]]


def test_a_next_one_that_is_handed_over_itself_still_claims_its_jobs(world):
    world.overlaps()
    world.earlier.looks_for(60)
    world.generations.stands(NEXT, Standing.OVERLAPPING)
    world.next.hears(job(1))
    world.earlier.hears(job(1))
    world.earlier.hears(job(2))
    world.earlier.looks_for(10)
    assert world.earlier.started == [job(2)["jid"]]
    assert world.earlier.listens


def test_a_next_one_that_binds_late_has_the_same_time(world):
    world.hands_over()
    world.earlier.looks_for(60)
    world.binds()
    world.earlier.hears(job())
    world.earlier.looks_for(3)
    assert world.earlier.listens
    world.announces()
    world.earlier.looks_for(1)
    assert world.earlier.started == [job()["jid"]]


def test_without_a_word_on_who_came_after_jobs_wait(world, monkeypatch):
    world.overlaps()
    with monkeypatch.context() as patch:
        fails(patch, Generations, "successors")
        world.earlier.hears(job())
        world.earlier.looks_for(1)
    assert world.earlier.started == []
    world.earlier.looks_for(1)
    assert world.earlier.started == [job()["jid"]]


# -- both take jobs ------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2], ids=["not in the ledger", "in the ledger"])
@pytest.mark.parametrize("first", ["earlier", "next"])
def test_each_job_is_that_of_one(world, number, first):
    world.overlaps()
    order = [world.earlier, world.next] if first == "earlier" else [world.next, world.earlier]
    for process in order:
        process.hears(job(number))
    assert [len(process.started) for process in order] == [1, 0]
    order[0].hears(job(number))
    assert len(order[0].started) == 2, "its own job, on its way through Salt"


def test_jobs_for_two_resources_are_two_jobs(world):
    world.overlaps()
    for number in (1, 2):
        target = {"resource_target": {"type": "ssh", "id": str(number)}}
        world.earlier.hears(job(1, **target))
        world.next.hears(job(1, **target))
    assert (len(world.earlier.started), world.next.started) == (2, [])


def test_what_is_no_job_of_a_master_is_taken_by_each(world):
    world.overlaps()
    for process in (world.earlier, world.next):
        process.hears(job(jid="req"))
        process.hears(job(jid="req"))
    assert len(world.earlier.started) == len(world.next.started) == 2


@pytest.mark.parametrize("first", [0, 1])
def test_a_job_whose_publisher_has_named_it_is_taken_by_one(world, first):
    world.overlaps()
    order = [world.earlier, world.next][:: -1 if first else 1]
    for process in order:
        process.hears(job(jid="mine", tgt="*"))
    assert [process.started for process in order] == [["mine"], []]


def test_a_name_that_is_used_again_is_the_next_ones_when_the_earlier_one_leaves(world):
    world.overlaps()
    world.earlier.hears(job(jid="mine", tgt="*"))
    world.reports("m")
    world.earlier.looks_until(lambda: not world.earlier.listens)
    world.next.hears(job(jid="mine", tgt="*"))
    assert world.next.started == ["mine"]


def test_what_is_no_job_of_a_master_does_not_wait(world):
    world.hands_over()
    world.binds()
    world.earlier.hears(job(jid="req"))
    assert world.earlier.started == ["req"]


def test_if_a_claim_cannot_be_written_the_one_that_goes_on_takes_the_job(world, monkeypatch):
    world.overlaps()
    with monkeypatch.context() as patch:
        fails(patch, Claims, "claim")
        world.earlier.hears(job())
        world.next.hears(job())
    assert (world.earlier.started, world.next.started) == ([], [job()["jid"]])


def test_if_a_claim_cannot_be_written_and_no_other_is_there_the_job_is_taken(world, monkeypatch):
    world.hands_over()
    fails(monkeypatch, Claims, "claim")
    world.earlier.hears(job())
    assert world.earlier.started == [job()["jid"]]


def test_if_nothing_is_known_of_an_earlier_one_jobs_are_taken(world, monkeypatch):
    world.overlaps()
    with monkeypatch.context() as patch:
        fails(patch, Generations, "overlapping")
        world.next.hears(job(1))
    assert world.next.started == [job(1)["jid"]]
    world.earlier.hears(job(2))
    world.next.hears(job(2))
    assert world.next.started == [job(1)["jid"]], "it is asked again"


def test_the_next_one_may_be_late_with_what_both_have_heard(world):
    world.overlaps()
    world.reports("m")
    world.next.hears(job(1))
    world.earlier.hears(job(2))
    world.earlier.looks_until(lambda: not world.earlier.listens)
    world.next.looks_for(60)
    world.next.hears(job(2))
    world.next.hears(job(3))
    assert world.next.started == [job(1)["jid"], job(3)["jid"]]


def test_the_next_one_claims_no_more_long_after_the_earlier_one_took_its_last(world, monkeypatch):
    world.overlaps()
    world.next.hears(job(1))
    world.generations.stands(EARLIER, Standing.LEAVING)
    world.next.looks()
    world.clock.work(3600)
    world.next.looks()
    fails(monkeypatch, Generations, "overlapping")
    monkeypatch.setattr(Claims, "claim", lambda *args: pytest.fail("it was claimed"))
    world.next.hears(job(2))
    assert world.next.started == [job(1)["jid"], job(2)["jid"]]


def test_it_goes_on_claiming_while_the_earlier_one_does(world):
    world.overlaps()
    world.next.hears(job(1))
    for _ in range(2):
        world.next.looks()
        world.clock.work(3600)
    world.earlier.hears(job(2))
    world.next.hears(job(2))
    assert world.next.started == [job(1)["jid"]]


def test_it_goes_on_claiming_while_it_cannot_tell(world, monkeypatch):
    world.overlaps()
    world.next.hears(job(1))
    with monkeypatch.context() as patch:
        fails(patch, Generations, "overlapping")
        world.next.looks()
    world.earlier.hears(job(2))
    world.next.hears(job(2))
    assert world.next.started == [job(1)["jid"]]


def test_the_queues_are_worked_on_by_the_next_one_only(world):
    world.overlaps()
    assert world.earlier.looks()
    assert not world.next.looks()
    world.generations.stands(NEXT, Standing.SERVING)
    assert not world.next.looks()


def test_a_third_one_takes_no_job_of_the_two_before_it(world):
    world.overlaps()
    third = Process(world, f"{NEXT}-third", PARENT + 2)
    third.hears(job(1))
    world.earlier.hears(job(1))
    world.next.hears(job(1))
    world.earlier.hears(job(2))
    third.hears(job(2))
    assert third.started == [job(1)["jid"]]
    assert (world.earlier.started, world.next.started) == ([job(2)["jid"]], [])


JOBS = range(4)
HAPPENINGS = [
    *(("earlier", number) for number in JOBS),
    *(("next", number) for number in JOBS),
    ("binds", 0),
    ("looks", 0),
    ("looks", 0),
]


@settings(max_examples=60, deadline=None)
@given(st.permutations(HAPPENINGS), st.integers(0, len(HAPPENINGS)))
def test_however_it_goes_each_job_is_started_once(happenings, announced):
    with (
        tempfile.TemporaryDirectory() as path,
        short_directory() as sockets,
        pytest.MonkeyPatch.context() as patch,
    ):
        world = World(Path(path), sockets, patch)
        world.hands_over()
        # What the next one is sent before it is connected.
        late, order = [], list(happenings)
        order.insert(max(announced, order.index(("binds", 0)) + 1), ("announces", 0))
        for what, number in order:
            if what == "binds":
                world.binds()
            elif what == "announces":
                world.announces()
                for each in late:
                    world.next.hears(job(each))
                late = None
            elif what == "looks":
                world.earlier.looks_for(1)
            elif what == "earlier":
                world.earlier.hears(job(number))
            elif late is None:
                world.next.hears(job(number))
            else:
                late.append(number)
        world.earlier.looks_for(1)
        started = Counter(world.earlier.started + world.next.started)
        assert started == Counter(job(number)["jid"] for number in JOBS)


# -- the next one is ready -----------------------------------------------------


def test_once_the_next_one_is_ready_the_earlier_one_takes_no_more(build):
    world = build(masters=MANY)
    world.overlaps()
    world.reports(*MANY)
    world.earlier.looks_for(3)
    assert world.earlier.listens, "something may be on its way to it"
    world.earlier.looks_until(lambda: not world.earlier.listens)
    assert world.standings() == (Standing.LEAVING, Standing.SERVING)
    world.earlier.hears(job())
    world.earlier.hears(job(jid="req"))
    assert world.earlier.started == []
    assert world.earlier.looks(), "the queues are for the next one"


def _stays(world):
    world.earlier.looks_for(60)
    assert world.earlier.listens
    assert world.earlier.standing is Standing.OVERLAPPING


@pytest.mark.parametrize("connected", [(), ("m",), ("n",), ("o",)])
def test_a_next_one_that_is_connected_to_some_masters_is_not_ready(build, connected):
    world = build(masters=MANY)
    world.overlaps()
    world.reports(*connected, without=[each for each in MANY if each not in connected])
    _stays(world)


@pytest.mark.parametrize("theirs", [{"m": True, "n": False}, {"m": True}, {"o": True}])
def test_a_master_that_the_next_one_does_not_come_to_is_not_waited_for_without_end(build, theirs):
    # It is away, or the minion was restarted to have other masters.
    world = build(masters=MANY)
    world.overlaps()
    connected = [master for master, is_connected in theirs.items() if is_connected]
    world.reports(*connected, without=[each for each in theirs if each not in connected])
    world.earlier.looks_for(110)
    assert world.earlier.listens
    world.earlier.looks_for(20)
    assert world.standings() == (Standing.LEAVING, Standing.SERVING)


def test_one_that_is_to_have_no_master_is_waited_for_no_longer_either(world):
    world.overlaps()
    world.reports(without=["m"], wants=())
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_one_that_is_connected_to_no_master_is_waited_for_without_end(build):
    world = build(masters=MANY)
    world.overlaps()
    world.reports(without=MANY)
    world.earlier.looks_for(1000)
    assert world.earlier.standing is Standing.OVERLAPPING


def test_another_one_has_the_same_time_for_its_masters(build):
    world = build(masters=MANY)
    world.overlaps()
    for _ in range(5):
        world.reports("m", without=["n"])
        world.earlier.looks_for(100)
        world.reports(without=MANY)
        world.earlier.looks_for(1)
    assert world.earlier.standing is Standing.OVERLAPPING


def test_a_next_one_that_has_not_reported_is_not_ready(world):
    world.overlaps()
    world.generations.notes_masters(NEXT, (("m", True),))
    _stays(world)


def test_a_next_one_that_knows_no_masters_is_not_ready(world):
    world.overlaps()
    world.generations.reports(NEXT, Report(at=1.0))
    _stays(world)


def test_what_it_has_noted_of_its_own_masters_says_nothing_of_the_next_one(world):
    world.generations.notes_masters(EARLIER, (("m", True),))
    world.overlaps()
    _stays(world)


def test_masters_that_the_earlier_one_has_lost_are_not_waited_for(build):
    world = build(masters=MANY)
    world.overlaps()
    world.earlier.parts[1].connected = False
    world.reports("m", without=["n"])
    world.earlier.looks_until(lambda: not world.earlier.listens)


@pytest.mark.parametrize("master_type", ["failover", "distributed", "func"])
def test_of_masters_that_stand_in_for_each_other_any_will_do(build, master_type):
    world = build(master_type=master_type)
    world.overlaps()
    world.reports(without=["m", "n"])
    _stays(world)
    world.reports("n")
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_a_minion_that_has_lost_its_master_need_not_wait_for_another_one(build):
    world = build(master_type="failover")
    world.overlaps()
    world.earlier.parts[0].connected = False
    world.reports(without=["m"])
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_a_next_one_that_loses_its_master_again_is_not_ready(world):
    world.overlaps()
    for _ in range(20):
        world.reports("m")
        world.earlier.looks_for(3)
        world.reports(without=["m"])
        world.earlier.looks_for(3)
    assert world.earlier.listens


def test_while_nothing_can_be_read_of_the_next_one_it_is_not_ready(world, monkeypatch):
    world.overlaps()
    world.reports("m")
    with monkeypatch.context() as patch:
        fails(patch, Generations, "serving")
        world.earlier.looks_for(10)
    assert world.earlier.listens
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_masters_that_cannot_be_read_are_none_that_it_has(world):
    world.overlaps()
    world.reports("m")
    with world.store.transaction() as db:
        db.execute("UPDATE generations SET masters = '{'")
    _stays(world)


def test_a_loop_that_lags_begins_its_time_anew(world):
    """What has arrived meanwhile, it has not heard yet."""
    world.overlaps()
    world.reports("m")
    for _ in range(20):
        world.earlier.looks_for(1)
        world.clock.work(10)
        world.earlier.looks()
    assert world.earlier.listens
    world.earlier.looks_until(lambda: not world.earlier.listens)


def test_a_next_one_that_is_too_busy_to_say_who_it_is_is_not_ready(world):
    world.overlaps()
    world.reports("m")
    for _ in range(20):
        world.earlier.looks_for(4)
        world.listener = -1
        world.earlier.looks_for(4)
        world.binds()
    assert world.earlier.listens


def test_it_takes_no_more_though_that_cannot_be_written(world, monkeypatch):
    world.overlaps()
    world.reports("m")
    with monkeypatch.context() as patch:
        fails(patch, Generations, "stands")
        world.earlier.looks_for(30)
    world.earlier.hears(job())
    world.next.hears(job())
    assert (world.earlier.started, world.next.started) == ([], [job()["jid"]])


# -- the schedule --------------------------------------------------------------

DUE = "schedule backup 2026-01-01 00:00:00"


def starts(process, due=DUE, at=1.0):
    with process.at_work():
        return process.succession.starts(due, at if due else 0.0)


def test_a_minion_alone_starts_what_its_schedule_has(world):
    assert starts(world.earlier)
    world.earlier.looks()
    assert starts(world.earlier)
    assert starts(world.earlier, "")


def test_between_the_move_and_the_next_one_the_earlier_one_has_the_schedule(world):
    world.hands_over()
    world.earlier.looks_for(60)
    assert starts(world.earlier)
    assert starts(world.earlier, "")
    assert "schedule" in world.earlier.parts[0].periodic


def test_what_is_due_while_both_look_is_started_once(world):
    world.overlaps()
    world.next.looks()
    assert starts(world.earlier)
    assert not starts(world.next)
    later = f"{DUE} later"
    assert starts(world.next, later)
    world.earlier.looks_for(1)
    assert not starts(world.earlier, later)


def test_what_runs_now_and_then_is_the_next_ones_once_it_is_there(world):
    world.overlaps()
    world.next.looks()
    world.earlier.looks()
    assert not starts(world.earlier, "")
    assert starts(world.next, "")


def test_one_that_takes_no_more_jobs_has_no_schedule_either(world):
    world.overlaps()
    world.reports("m")
    world.next.looks()
    world.earlier.looks_until(lambda: not world.earlier.listens)
    assert not starts(world.earlier, f"{DUE} later")
    assert not starts(world.earlier, "")
    assert "schedule" not in world.earlier.parts[0].periodic
    assert starts(world.next)


def test_if_nobody_can_write_down_who_starts_it_the_next_one_does(world, monkeypatch):
    world.overlaps()
    world.next.looks()
    world.earlier.looks()
    fails(monkeypatch, Claims, "claim")
    assert (starts(world.earlier), starts(world.next)) == (False, True)


class PutOff:
    """A schedule with one job that a splay puts off from a time that has passed."""

    def __init__(self, process):
        at = datetime.datetime.now() - datetime.timedelta(seconds=30)
        drawn = at + datetime.timedelta(seconds=500)
        job = {"when": at.strftime("%Y-%m-%d %H:%M:%S"), "splay": 600, "_splay": drawn}
        self.opts, self.evaluated, self._process = {"schedule": {"backup": job}}, [], process

    def eval(self):
        self.evaluated.append(self._process.standing)


def test_what_a_splay_has_put_off_starts_before_its_minion_takes_no_more(build):
    """The next one was not there when it was due."""
    world = build(masters=MANY)
    schedule = PutOff(world.earlier)
    for part in world.earlier.parts:
        part.schedule = schedule
    world.overlaps()
    world.earlier.looks_for(30)
    assert schedule.evaluated == []
    world.reports(*MANY)
    world.earlier.looks_until(lambda: not world.earlier.listens)
    assert schedule.evaluated == [Standing.OVERLAPPING]


def test_a_minion_that_is_stopped_starts_nothing_that_is_put_off(world):
    schedule = world.earlier.parts[0].schedule = PutOff(world.earlier)
    world.overlaps()
    world.handlers[signal.SIGURG](signal.SIGURG, None)
    world.earlier.looks_until(lambda: not world.earlier.listens)
    assert schedule.evaluated == []


def test_the_next_one_asks_however_late_its_splay_is_for_what_was_due_before(world):
    world.overlaps()
    world.reports("m")
    world.next.looks()
    due, at = "schedule backup", world.clock.now
    assert starts(world.earlier, due, at)
    world.earlier.looks_until(lambda: not world.earlier.listens)
    world.next.looks_for(600)
    assert not starts(world.next, due, at)
    assert starts(world.next, "schedule backup later", world.clock.now + 1)
    with pytest.MonkeyPatch.context() as patch:
        fails(patch, Claims, "claim")
        assert starts(world.next, "schedule much later", world.clock.now + 1), "it asks nobody"


# -- the database is lost ------------------------------------------------------


def loses_its_database(world):
    for path in glob.glob(f"{world.settings.database}*"):
        os.unlink(path)


def test_if_the_database_is_lost_only_the_next_one_takes_jobs(world):
    """Who runs which job was in it, and nothing writes down again that both have to ask."""
    world.overlaps()
    world.reports("m")
    world.generations.notes_masters(NEXT, (("m", False),))
    for _ in range(60):
        world.earlier.looks_for(1)
        world.next.looks_for(1)
    assert world.earlier.listens
    loses_its_database(world)
    for number in range(600):
        world.earlier.looks_for(1)
        world.next.looks_for(1)
        world.earlier.hears(job(number))
        world.next.hears(job(number))
    started = world.earlier.started + world.next.started
    assert len(set(started)) == len(started) == 600
    assert world.next.started[-500:] == [job(number)["jid"] for number in range(100, 600)]
    assert not world.earlier.listens


@pytest.mark.parametrize("first", ["earlier", "next"])
def test_a_job_in_flight_when_it_is_lost_runs_once(world, first):
    """One has begun it and the other one hears of it later: who has it was in the database."""
    world.overlaps()
    world.reports("m")
    world.generations.notes_masters(NEXT, (("m", False),))
    sides = [world.earlier, world.next]
    one, other = sides if first == "earlier" else sides[::-1]
    for each in sides:
        each.looks()
        each.hears(job(0))
    one.hears(job(1))
    assert one.started[-1] == job(1)["jid"]
    loses_its_database(world)
    other.hears(job(1))
    for number in range(2, 20):
        world.clock.work(1)
        for each in sides:
            each.looks()
            each.hears(job(number))
    started = world.earlier.started + world.next.started
    assert sorted(started) == [job(number)["jid"] for number in range(20)]


def test_if_it_is_lost_and_the_other_one_is_gone_jobs_start_within_seconds(world, monkeypatch):
    world.overlaps()
    world.reports("m")
    world.next.looks()
    world.next.hears(job(0))
    alive = processes.alive
    monkeypatch.setattr(processes, "alive", lambda name: name != EARLIER and alive(name))
    loses_its_database(world)
    for number in range(1, 9):
        world.next.hears(job(number))
        world.next.looks_for(1)
    world.next.looks_for(1)
    assert world.next.started == [job(number)["jid"] for number in range(9)]


def test_if_it_is_lost_before_the_next_one_is_there_the_earlier_one_goes_on(world):
    world.hands_over()
    world.earlier.looks()
    loses_its_database(world)
    world.earlier.looks_for(60)
    world.earlier.hears(job(1))
    assert world.earlier.started == [job(1)["jid"]]
    world.binds()
    world.announces()
    world.next.hears(job(2))
    world.earlier.hears(job(2))
    world.earlier.hears(job(3))
    world.next.hears(job(3))
    assert world.next.started == [job(2)["jid"]]
    assert world.earlier.started == [job(1)["jid"], job(3)["jid"]]


def test_if_it_is_lost_and_cannot_be_looked_at_either_nothing_changes(world, monkeypatch):
    world.overlaps()
    with monkeypatch.context() as patch:
        fails(patch, Generations, "of")
        world.earlier.looks_for(30)
    assert world.earlier.listens


# -- its end -------------------------------------------------------------------


@pytest.fixture
def left(world):
    """A world whose earlier minion takes no more."""
    world.children.append("a job")
    world.overlaps()
    world.reports("m")
    world.earlier.looks_until(lambda: not world.earlier.listens)
    return world


def test_it_ends_when_its_jobs_have_ended(left):
    left.earlier.looks_for(60)
    assert left.earlier.ended == []
    bus = left.earlier.succession.bus
    assert os.path.isdir(bus)
    left.children.clear()
    left.earlier.looks_until(lambda: left.earlier.ended)
    assert left.earlier.ended == [0]
    assert left.standings() == (Standing.GONE, Standing.SERVING)
    assert not os.path.exists(bus)


def test_for_a_while_it_waits_for_another_job(left):
    """One that was heard before may be about to start."""
    for _ in range(20):
        left.children.clear()
        left.earlier.looks_for(3)
        left.children.append("a job")
        left.earlier.looks_for(1)
    assert left.earlier.ended == []


def test_without_a_job_it_waits_for_a_while_too(left):
    left.children.clear()
    left.earlier.looks_for(2)
    assert left.earlier.ended == []


def test_it_ends_though_that_cannot_be_written(left, monkeypatch):
    left.children.clear()
    with monkeypatch.context() as patch:
        fails(patch, Generations, "stands")
        left.earlier.looks_until(lambda: left.earlier.ended)
    assert not os.path.exists(left.earlier.succession.bus)


def test_the_next_one_may_be_handed_over_while_the_earlier_one_leaves(left):
    left.next.looks()
    meeting = Meeting(left.settings.run_dir, PARENT + 1)
    assert meeting.go(Step.OPEN, Step.ASKED)
    left.next.looks()
    assert left.standings() == (Standing.LEAVING, Standing.OVERLAPPING)


def test_the_end_of_its_scope_ends_an_earlier_one_that_takes_jobs(world):
    world.overlaps()
    world.children.append("a job")
    world.handlers[signal.SIGURG](signal.SIGURG, None)
    world.earlier.looks_for(60)
    assert not world.earlier.listens
    assert world.earlier.standing is Standing.LEAVING
    assert world.earlier.ended == [], "its jobs have their time"
    world.children.clear()
    world.earlier.looks()
    world.earlier.looks()
    assert world.earlier.ended == [0], "no other job is waited for"


def test_who_stops_and_continues_an_earlier_one_does_not_end_it(world):
    """As a debugger does, or what keeps a program to its share of a processor."""
    world.overlaps()
    assert signal.SIGCONT not in world.handlers


def test_the_end_of_its_scope_ends_one_that_leaves(left):
    left.handlers[signal.SIGURG](signal.SIGURG, None)
    left.earlier.looks_for(60)
    assert left.earlier.ended == []
    left.children.clear()
    left.earlier.looks()
    left.earlier.looks()
    assert left.earlier.ended == [0]


# -- Salt's own program --------------------------------------------------------


def test_salts_program_does_not_miss_its_parent(world):
    world.asks()
    seen = world.scripts.os
    seen.kill(PARENT, 0)
    with pytest.raises(ProcessLookupError):
        seen.kill(PARENT, signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        seen.kill(PARENT + 1, 0)
    assert seen.getpid() == os.getpid()
    assert seen._exit is os._exit
    assert seen.path is os.path


def test_a_signal_still_gets_there(world, monkeypatch):
    world.asks()
    sent = []
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    world.scripts.os.kill(PARENT, 0)
    world.scripts.os.kill(PARENT, signal.SIGTERM)
    world.scripts.os.kill(5, 0)
    assert sent == [(PARENT, signal.SIGTERM), (5, 0)]


def test_salts_program_looks_for_its_parent_in_this_way():
    assert salt.scripts.os is os
    assert "os.kill(parent_pid, 0)" in inspect.getsource(salt.scripts.minion_process)


def test_only_its_program_is_told_so(world):
    world.asks()
    with pytest.raises(ProcessLookupError):
        os.kill(PARENT, 0)
    assert salt.scripts.os is os


# -- where Salt comes by -------------------------------------------------------


class Way:
    """What a main process does with a job: it hands *passed* to Salt."""

    def __init__(self, process):
        world = process.world
        admission = Admission(world.settings, world.store, complain=world.complaints.tell)
        self.intake = Intake(
            world.settings, world.complaints, {}, admission, process.succession, no_runs()
        )
        self.process, self.part, self.passed = process, process.parts[0], []

    def comes(self, what, data):
        """Have it come by one of the ways on which Salt starts or queues a job."""
        with self.process.at_work():
            getattr(self.intake, what)(lambda part, job: self.passed.append(job), self.part, data)


@pytest.mark.parametrize("what", ["invoke", "queue"])
@pytest.mark.parametrize("number", [1, 2], ids=["not in the ledger", "in the ledger"])
def test_salt_gets_the_jobs_that_are_its_own(world, what, number):
    world.overlaps()
    first, second = Way(world.earlier), Way(world.next)
    for way in (first, second):
        way.comes(what, job(number))
    for way in (second, first):
        way.comes(what, job(number + 2))
    assert [each["jid"] for each in first.passed] == [job(number)["jid"]]
    assert [each["jid"] for each in second.passed] == [job(number + 2)["jid"]]


@pytest.mark.parametrize("what", ["invoke", "queue"])
def test_what_comes_from_salts_queue_is_claimed_by_nobody(world, what):
    """An earlier one may have put it there, whose job it was."""
    world.overlaps()
    world.earlier.hears(job())
    later = Way(world.next)
    later.comes(what, job(**{queues.QUEUED: True}))
    assert len(later.passed) == 1


def test_the_queues_are_left_to_the_next_one(world):
    world.overlaps()
    worked = []
    for process in (world.earlier, world.next):
        with process.at_work():
            Way(process).intake.process_queue(
                lambda part, who=process: worked.append(who), process.parts[0]
            )
    assert worked == [world.next]


@pytest.mark.parametrize("forked", [True, False])
def test_the_process_of_a_job_has_the_bus_of_its_own_minion(world, forked):
    world.hands_over()
    world.binds()
    admission = Admission(world.settings, world.store, complain=world.complaints.tell)
    bus = world.earlier.succession.bus
    process = JobProcess(
        world.settings, world.complaints, {}, admission, lambda roots: None, lambda: bus
    )
    opts, seen = {**world.opts, "multiprocessing": forked}, []
    process.target(
        lambda cls, minion, opts, data: seen.append(opts["sock_dir"]), None, None, opts, job()
    )
    assert seen == [bus if forked else world.opts["sock_dir"]]


@pytest.mark.parametrize("ours", [True, False])
def test_the_main_process_announces_itself_and_no_other(world, monkeypatch, ours):
    world.generations.stands(EARLIER, Standing.OVERLAPPING)
    monkeypatch.setattr(hooks, "installed_by", lambda: os.getpid() + (not ours))
    with world.next.at_work():
        hooks.announce({"safeupdate": {"state_dir": world.settings.state_dir}})
    assert world.next.standing is (Standing.STARTING if ours else None)


def test_a_minion_that_cannot_announce_itself_starts_all_the_same(world, monkeypatch, caplog):
    world.generations.stands(EARLIER, Standing.OVERLAPPING)
    monkeypatch.setattr(hooks, "installed_by", os.getpid)
    fails(monkeypatch, Generations, "begins")
    hooks.announce({"safeupdate": {"state_dir": world.settings.state_dir}})
    assert "disk full" in caplog.text
