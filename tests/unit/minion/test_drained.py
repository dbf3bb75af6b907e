"""Jobs of a minion that an administrator has drained."""

import pytest

from saltext_safeupdate.core.generations.generation import Probe
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import drained, locks, processes
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion import queues
from saltext_safeupdate.minion.publication import ASKED_BY

from .conftest import JID, OTHER_JID


def _ask(world):
    """Have an update wait for a job of this minion."""
    generations = Generations(Store(world.settings.database))
    generations.ask(processes.me(), Probe(jid=OTHER_JID, fun="test.echo"))


@pytest.fixture
def drain(world):
    drained.begin(world.settings.run_dir, 60, "disk")
    return lambda: drained.end(world.settings.run_dir)


def test_new_jobs_are_held_and_run_afterwards_under_their_jid(world, drain):
    assert world.publish() is None
    assert (queues.jids(world.minion.opts), world.states()) == ({JID}, {JID: "held"})
    drain()
    assert world.publish(queued=True)["jid"] == JID


def test_what_runs_is_served(world):
    job = world.publish()
    drained.begin(world.settings.run_dir, 60, "")
    world.run(job)
    assert world.minion.sent["return"] == "ok"


@pytest.mark.parametrize(
    "fun",
    [
        *("safeupdate.undrain", "safeupdate.report", "safeupdate.cancel"),
        # What ends, or lets go on, a job for which others are held.
        *("saltutil.kill_job", "saltutil.term_all_jobs", "state.resume", "state.soft_kill"),
    ],
)
def test_who_looks_or_steers_is_answered(world, drain, fun):
    assert world.publish(fun=fun)["fun"] == fun


def test_the_queue_is_left_alone_but_for_the_job_that_an_update_awaits(world, drain):
    worked = []
    work = lambda minion: worked.append(True)  # noqa: E731
    world.publish()
    world.intake.process_queue(work, world.minion)
    assert worked == []
    _ask(world)
    world.intake.process_queue(work, world.minion)
    assert worked == []
    queues.put(world.minion.opts, {"jid": OTHER_JID, "fun": "test.echo", "user": ASKED_BY})
    world.intake.process_queue(work, world.minion)
    assert worked == [True]
    assert world.publish(queued=True) is None, "the others stay"
    probe = world.publish(OTHER_JID, "test.echo", queued=True, user=ASKED_BY)
    assert (probe["jid"], world.counted) == (OTHER_JID, True)


def test_an_update_holds_that_job_too(world, drain):
    holder = locks.acquire(world.settings.run_dir, "drain", "")
    _ask(world)
    assert world.publish(OTHER_JID, "test.echo", user=ASKED_BY) is None
    holder.close()


def test_nobody_else_passes_under_that_name(world, drain):
    assert world.publish(user=ASKED_BY) is None
    _ask(world)
    assert world.publish(user=ASKED_BY) is None
