"""A new minion that has to show that it works, beside the one before it."""

import os

import pytest

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.generations.generation import Standing
from saltext_safeupdate.core.generations.meeting import Meeting, Step
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion import publication, queues
from saltext_safeupdate.minion.intake import Intake
from tests.support.state_runs import no_runs
from tests.support.succession import EARLIER, PARENT, World, job, short_directory

FIRST, SECOND = job(1), job(2)


def update(world, phase, **more):
    """Write down that an update is in that phase."""
    progress = Progress(beside=(EARLIER,))
    kept = {"id": "u1", "kind": "update", "created": 1.0, "progress": progress, **more}
    world.store.save(Update(phase=phase, **kept))


@pytest.fixture
def world(tmp_path, monkeypatch):
    with short_directory() as sockets:
        made = World(tmp_path, sockets, monkeypatch)
        update(made, Phase.WATCHING)
        made.overlaps()
        yield made


def both_look(world, seconds=1):
    for _ in range(seconds):
        world.clock.work(1)
        world.earlier.looks()
        world.next.looks()


def test_the_earlier_one_takes_all_jobs_though_the_next_one_is_ready(world):
    world.reports("m")
    both_look(world, 60)
    assert world.standings() == (Standing.OVERLAPPING, Standing.SERVING)
    for each in (FIRST, SECOND):
        world.next.hears(each)
        world.earlier.hears(each)
    both_look(world, 20)
    assert world.earlier.started == [FIRST["jid"], SECOND["jid"]]
    assert world.next.started == []


def test_the_next_one_takes_what_nobody_takes_in_time(world):
    world.next.hears(FIRST)
    both_look(world, 4)
    assert world.next.started == []
    both_look(world, 2)
    assert world.next.started == [FIRST["jid"]]
    world.earlier.hears(FIRST)
    assert world.earlier.started == [], "it is late"


def test_and_at_once_if_the_earlier_one_has_died(world, monkeypatch):
    world.next.hears(FIRST)
    world.next.hears(SECOND)
    alive = processes.alive
    monkeypatch.setattr(processes, "alive", lambda who: who != EARLIER and alive(who))
    world.next.looks()
    assert world.next.started == [FIRST["jid"], SECOND["jid"]]
    world.next.hears(job(3))
    assert world.next.started[2:] == [job(3)["jid"]]


@pytest.mark.parametrize("end", [Phase.COMMITTED, Phase.FAILED])
def test_once_it_is_over_the_earlier_one_leaves(world, end):
    world.reports("m")
    world.next.hears(FIRST)
    world.earlier.hears(FIRST)
    update(world, end)
    both_look(world)
    world.next.hears(SECOND)
    world.earlier.hears(SECOND)
    assert world.next.started == [SECOND["jid"]], "who hears it first takes it"
    world.earlier.looks_until(lambda: world.earlier.standing is Standing.LEAVING)


def test_while_it_goes_back_the_earlier_one_serves(world):
    update(world, Phase.ROLLING_BACK)
    world.reports("m")
    both_look(world, 100)
    assert world.earlier.standing is Standing.OVERLAPPING


@pytest.mark.parametrize(
    "more", [{"progress": Progress()}, {"phase": Phase.STEPPING}, {"phase": Phase.COMMITTED}]
)
def test_any_other_handover_has_no_trial(tmp_path, monkeypatch, more):
    with short_directory() as sockets:
        world = World(tmp_path, sockets, monkeypatch)
        update(world, **{"phase": Phase.WATCHING, **more})
        world.overlaps()
        world.next.hears(FIRST)
        assert world.next.started == [FIRST["jid"]]


def test_the_queues_are_worked_on_by_the_earlier_one(world):
    assert not world.earlier.looks()
    assert "state_queue" in world.earlier.parts[0].periodic
    assert "beacons" not in world.earlier.parts[0].periodic
    world.next.hears(FIRST)
    assert world.next.looks(), "they are another one's"
    assert world.next.succession.is_on_trial
    update(world, Phase.COMMITTED)
    assert world.earlier.looks()
    assert not world.next.looks()


def test_the_queues_are_the_earlier_one_s_before_any_job_was_published(world):
    assert world.next.looks(), "they are another one's"
    assert world.next.succession.is_on_trial


def test_the_earlier_one_serves_on_beside_one_that_hangs(world):
    both_look(world)
    # It takes no connection any more: so many looks have been in vain.
    world.listener = -1
    for _ in range(60):
        world.clock.work(1)
        world.earlier.looks()
    world.earlier.hears(FIRST)
    assert world.earlier.started == [FIRST["jid"]]
    assert world.earlier.standing is Standing.OVERLAPPING


def test_one_on_trial_that_is_late_is_waited_for(tmp_path, monkeypatch):
    with short_directory() as sockets:
        world = World(tmp_path, sockets, monkeypatch)
        update(world, Phase.WATCHING)
        world.hands_over()
        world.binds()
        world.earlier.hears(FIRST)
        world.earlier.looks_for(60)
        assert world.earlier.started == []
        assert world.earlier.standing is Standing.OVERLAPPING
        world.announces()
        world.earlier.looks()
        assert world.earlier.started == [FIRST["jid"]]


def test_one_on_trial_that_somebody_restarts_leaves_its_jobs_to_the_earlier_one(world):
    both_look(world)
    world.listener = os.getpid()
    meeting = Meeting(world.settings.run_dir, PARENT + 1)
    assert meeting.go(Step.OPEN, Step.ASKED)
    world.next.looks()
    assert meeting.go(Step.TAKEN, Step.MOVED)
    world.next.loses_its_parent()
    both_look(world)
    assert world.standings() == (Standing.OVERLAPPING, Standing.OVERLAPPING)
    world.next.hears(FIRST)
    world.earlier.hears(FIRST)
    both_look(world, 20)
    assert world.earlier.started == [FIRST["jid"]]
    assert world.next.started == []


def test_what_was_so_stays_so_while_the_record_cannot_be_read(world, monkeypatch):
    world.next.hears(FIRST)

    def fail(store):
        raise RecordError("disk full")

    monkeypatch.setattr(Store, "latest", fail)
    world.next.looks()
    world.next.hears(SECOND)
    assert world.next.started == []


def test_what_lies_apart_is_found_by_who_looks_there(world):
    opts = world.opts
    probe = {"jid": job(5)["jid"], "fun": "test.echo", "arg": [], "user": publication.ASKED_BY}
    queues.put(opts, probe, first=True, apart=True)
    assert queues.listed(opts) == [], "Salt does not find it"
    assert queues.jids(opts) == {probe["jid"]}
    assert queues.find(opts, probe["jid"])
    assert queues.take_first(opts)["jid"] == probe["jid"]
    assert queues.take_first(opts) is None
    assert queues.find(opts, probe["jid"]) is None


class Working:
    """A process of the minion with its intake."""

    def __init__(self, world, process):
        self.world, self.process = world, process
        settings, store = world.settings, world.store
        self.intake = Intake(
            settings,
            world.complaints,
            {},
            Admission(settings, store),
            process.succession,
            no_runs(),
        )
        self.worked = []

    def works_on_queues(self):
        part = self.process.parts[0]
        part.started = []
        part._invoke_execution = part.started.append
        with self.process.at_work():
            self.intake.process_queue(lambda minion: self.worked.append(1), part)
        return part.started, len(self.worked)

    def takes(self, data):
        """Have Salt start what it has taken out of a queue; return what is left to Salt."""
        started = []
        with self.process.at_work():
            self.intake.invoke(lambda minion, job: started.append(job), self.process.parts[0], data)
        return started


def test_the_earlier_one_leaves_its_probe_to_the_next_one(world):
    earlier, later = Working(world, world.earlier), Working(world, world.next)
    world.next.hears(FIRST)
    probe = {"jid": job(5)["jid"], "fun": "test.echo", "arg": [], "user": publication.ASKED_BY}
    queues.put(world.next.parts[0].opts, probe, first=True, apart=True)
    assert earlier.works_on_queues() == ([], 1), "it works on Salt's own"
    started, worked = later.works_on_queues()
    assert [each["jid"] for each in started] == [probe["jid"]]
    assert worked == 0, "those are the earlier one's"


def test_a_health_check_that_waits_for_a_state_run_is_left_to_the_next_one(world):
    earlier, later = Working(world, world.earlier), Working(world, world.next)
    world.next.hears(FIRST)
    check = {"jid": job(5)["jid"], "fun": "state.apply", "arg": [], "user": publication.ASKED_BY}
    queues.put(world.opts, check)
    assert earlier.works_on_queues() == ([], 1), "Salt finds it there when its turn comes"
    assert earlier.takes({**check, queues.QUEUED: True}) == []
    started, _ = later.works_on_queues()
    assert [each["jid"] for each in started] == [check["jid"]]
