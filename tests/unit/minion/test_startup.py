"""Startup states, and published state runs, beside state runs that go on over a restart."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import salt.utils.state

from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion.startup import Startup
from saltext_safeupdate.minion.state_runs import StateRuns
from tests.support.state_runs import EARLIER, OURS, OVERDUE, Known

STARTUP = {"jid": "req", "ret": "", "fun": "state.sls", "arg": [["x"]]}
BESIDE = {"__kwarg__": True, "concurrent": True}
QUEUE = {"__kwarg__": True, "queue": True}


class Loop:
    """The loop of a minion, of Tornado or of Python."""

    def __init__(self, how):
        self.begun = []
        setattr(self, how, self._spawn if how == "spawn_callback" else self.begun.append)

    def _spawn(self, function, *args):
        self.begun.append(function(*args))


class Part:
    opts = None

    def __init__(self, how="spawn_callback"):
        self.io_loop = Loop(how)

    def _handle_decoded_payload(self, data):
        return data


class World:
    def __init__(self, *active):
        self.runs, self.unproven, self.now = Known(*active), False, 0.0
        self.startup = Startup(self.runs, lambda: self.unproven, lambda: self.now)

    def begun(self, part):
        self.now += 1
        self.startup.begin(part)
        return part.io_loop.begun


@pytest.mark.parametrize("how", ["spawn_callback", "create_task"])
@pytest.mark.parametrize("unproven", [False, True])
def test_they_wait_and_begin_once(how, unproven):
    world, part = World(*[] if unproven else [OURS]), Part(how)
    world.unproven = unproven
    data = {**STARTUP}
    assert world.startup.keep(part, data)
    assert world.begun(part) == []
    world.runs.runs, world.unproven = [], False
    assert world.begun(Part()) == [], "they are those of another part of the minion"
    (begun,) = world.begun(part)
    assert begun.items() >= {**STARTUP, "__ignore_process_count_max": True}.items()
    assert len(world.begun(part)) == 1
    assert not world.startup.keep(part, begun)
    assert begun == {**STARTUP, "__ignore_process_count_max": True}


@pytest.mark.parametrize(("active", "more"), [([], []), ([OVERDUE], [BESIDE])])
def test_they_do_not_wait_for_what_hangs(active, more):
    world, data = World(*active), {**STARTUP}
    assert not world.startup.keep(Part(), data)
    assert data["arg"] == [["x"], *more]


def test_they_wait_for_a_run_that_has_begun_and_is_not_active_yet():
    """Its process notes that after a moment, and Salt would refuse them then."""
    world, part = World(OURS), Part()
    world.startup.keep(part, {**STARTUP})
    world.runs.has_begun("state.apply", SimpleNamespace(pid=os.getpid()))
    world.runs.runs = []
    assert world.begun(part) == []
    world.runs.runs = [{**OURS, "pid": os.getpid()}]
    assert world.begun(part) == []
    world.runs.runs = []
    assert len(world.begun(part)) == 1


@pytest.mark.parametrize("waits", [True, False])
def test_they_wait_while_salt_takes_a_state_run_out_of_its_queue(tmp_path, waits):
    world, part, looked = World(), Part(), []
    part.opts = {"cachedir": str(tmp_path)}
    look = world.runs.in_turn(lambda original, minion: looked.append(minion))
    look(None, part)
    # Salt says so at each look, and there is mostly nothing in it.
    part._state_queue_processing_active = True
    if waits:
        queue = Path(salt.utils.state.state_queue_dir(part.opts))
        queue.mkdir(parents=True)
        (queue / "queued_1_20260101000000000001.p").touch()
        assert world.startup.keep(part, {**STARTUP})
        assert world.begun(part) == []
        part._state_queue_processing_active = False
    else:
        world.unproven = True
        assert world.startup.keep(part, {**STARTUP})
        world.unproven = False
    assert len(world.begun(part)) == 1
    look(None, part)
    assert looked == [part], "the startup states begin at this moment"
    world.runs.has_begun("state.sls", None)
    look(None, part)
    assert looked == [part, part]


def test_a_run_has_begun_for_a_moment_only():
    """It may end before anybody looks, or never note that it is active."""
    now = [100.0]
    runs = StateRuns("", 0.0, lambda: now[0])
    opts = {"cachedir": "/nonexistent"}
    runs.begins()
    assert runs.one_begins(opts)
    for others in ("test.ping", "state.apply,test.ping"):
        runs.has_begun(others, SimpleNamespace(pid=os.getpid()))
    assert runs.one_begins(opts)
    now[0] += 10
    assert not runs.one_begins(opts)


def test_no_other_job_is_kept():
    for job in ({**STARTUP, "tgt": "*"}, {**STARTUP, "jid": "20260101000000000001"}):
        assert not World(OURS).startup.keep(Part(), job)


@pytest.mark.parametrize(
    ("kind", "phase", "keeps"),
    [
        ("update", Phase.WATCHING, True),
        ("update", Phase.COMMITTED, False),
        ("restart", Phase.WATCHING, False),
    ],
)
def test_those_of_a_minion_that_is_not_proven_wait(world, monkeypatch, kind, phase, keeps):
    """Also if no minion before it is there: a rollback would cut them short."""
    monkeypatch.setattr(world.intake, "_runs", Known())
    update = Update(id="1", kind=kind, phase=phase, created=0.0)
    monkeypatch.setattr(world.intake._admission, "_last", lambda: update)
    monkeypatch.setattr(world.intake._admission, "_is_believed", lambda update: True)
    assert (world.publish("req", fun="state.sls") is None) == keeps


@pytest.mark.parametrize(
    ("active", "more"),
    [([], []), ([EARLIER], [QUEUE]), ([OVERDUE], [QUEUE]), ([EARLIER, OURS], []), ([OURS], [])],
)
def test_a_published_run_waits_if_only_earlier_ones_are_in_its_way(
    world, monkeypatch, active, more
):
    monkeypatch.setattr(world.intake, "_runs", Known(*active))
    assert world.publish(fun="state.apply")["arg"] == ["x", *more]


@pytest.mark.parametrize(
    "job",
    [
        {"fun": "cmd.run"},
        {"fun": ["state.apply", "test.ping"]},
        {"fun": "state.apply", "arg": ["queue=False"]},
        {"fun": "state.apply", "arg": [BESIDE]},
    ],
)
def test_no_other_job_is_changed(world, monkeypatch, job):
    monkeypatch.setattr(world.intake, "_runs", Known(EARLIER))
    assert world.publish(**job)["arg"] == job.get("arg", ["x"])


def test_earlier_runs_are_jobs_that_began_before_the_minion():
    times = iter((100.0, 119.0, 121.0))
    runs = StateRuns(processes.identity(os.getpid()), 20.0, times.__next__)
    before = {"pid": 1, "fun": "state.apply"}
    assert runs.is_earlier(before)
    assert not runs.is_earlier({**before, "tgt": "salt-call"})
    assert not runs.is_earlier({**before, "pid": os.getpid()})
    assert not runs.is_earlier({"pid": 0}), "it waits in a queue"
    assert not StateRuns("", 20.0).is_earlier(before)
    assert [runs.is_overdue(before) for _ in range(2)] == [False, True]
