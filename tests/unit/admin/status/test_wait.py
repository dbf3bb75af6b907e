"""Who waits for an update, with a real record and a simulated clock."""

import os

import pytest

from saltext_safeupdate.admin.status import wait
from saltext_safeupdate.core.errors import InputError, LockHeldError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.this_host import Host


class World:
    """A record, and a clock that runs while somebody sleeps."""

    def __init__(self, tmp_path):
        self.host = Host(
            {
                "cachedir": str(tmp_path / "cache"),
                "safeupdate": {
                    "state_dir": str(tmp_path / "state"),
                    "run_dir": str(tmp_path / "run"),
                },
            }
        )
        self.now = 1000.0
        self.later = {}

    def record(self, phase, update="u1", created=1.0, **kwargs):
        self.host.store.save(
            Update(id=update, kind="update", phase=phase, created=created, **kwargs)
        )

    def wait(self, wanted=None, timeout=100):
        return wait.wait(
            self.host,
            wanted,
            timeout,
            monotonic=lambda: self.now,
            sleep=self._sleep,
        )

    def _sleep(self, seconds):
        self.now += seconds
        for at in [at for at in self.later if at <= self.now]:
            self.later.pop(at)()


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(current, "_local", type(current._local)())
    yield World(tmp_path)
    current.end()


def _be_a_job(world, **more):
    lock = locks.Lock(world.host.settings.run_dir, "jobs")
    assert lock.try_shared()
    current.begin(current.Job(jid="5", lock=lock, key="5", **more))


def test_it_waits_for_its_time_and_no_longer(world):
    world.record(Phase.WAITING)
    assert world.wait(timeout=100)["phase"] == "waiting"
    assert 1100 <= world.now < 1102


@pytest.mark.parametrize("end", [Phase.COMMITTED, Phase.ROLLED_BACK, Phase.CANCELLED])
def test_it_waits_for_the_end(world, end):
    world.record(Phase.WAITING)
    world.later = {1010: lambda: world.record(Phase.WATCHING), 1020: lambda: world.record(end)}
    found = world.wait()
    assert (found["update"], found["phase"], world.now) == ("u1", end.value, 1020.0)


def test_what_has_ended_is_told_at_once(world):
    world.record(Phase.FAILED, reason="because")
    assert world.wait()["reason"] == "because"
    assert world.now == 1000.0


def test_it_gives_up_after_a_while(world):
    world.record(Phase.WAITING)
    assert world.wait(timeout=30)["phase"] == "waiting"
    assert world.now == 1030.0


def test_the_newest_or_the_one_that_is_named(world):
    world.record(Phase.WAITING)

    def supersede():
        world.record(Phase.CANCELLED)
        world.record(Phase.WAITING, "u2", created=2.0)

    world.later = {
        1010: supersede,
        1020: lambda: world.record(Phase.COMMITTED, "u2", created=2.0),
    }
    assert world.wait("u1")["phase"] == "cancelled"
    found = world.wait()
    assert (found["update"], found["phase"]) == ("u2", "committed")


def test_there_has_to_be_one(world):
    with pytest.raises(InputError, match=r"no update yet.*history"):
        world.wait()
    world.record(Phase.WAITING)
    with pytest.raises(InputError, match="no update u9"):
        world.wait("u9")


@pytest.mark.parametrize("timeout", [0, -1, True, "soon", None])
def test_a_timeout_is_a_number_of_seconds(world, timeout):
    with pytest.raises(InputError, match="timeout"):
        world.wait(timeout=timeout)


def test_a_job_that_the_update_waits_for_cannot_wait_for_the_update(world):
    world.record(Phase.WAITING)
    _be_a_job(world)
    with pytest.raises(LockHeldError, match="on its own"):
        world.wait()
    world.record(Phase.COMMITTED)
    assert world.wait()["phase"] == "committed"


def test_nor_can_a_command_of_one(world, monkeypatch):
    world.record(Phase.WAITING)
    monkeypatch.setattr(
        locks, "adopt", lambda run_dir, name: locks.Lock(world.host.settings.run_dir, "jobs")
    )
    with pytest.raises(LockHeldError, match="on its own"):
        world.wait()


def test_a_job_that_has_been_held_long_enough_tells_what_is_so_far(world):
    world.record(Phase.WATCHING)
    _be_a_job(world, waited=True)
    assert world.wait(timeout=100)["phase"] == "watching"


@pytest.mark.parametrize("there", [True, False])
def test_salt_call_lets_the_new_version_tell(world, monkeypatch, there):
    world.host.opts["__cli"] = "salt-call"
    called = []

    def execv(path, argv):
        called.append((path, argv))
        if not there:
            raise FileNotFoundError(path)

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr("sys.argv", ["/usr/bin/salt-call", "safeupdate.wait"])
    world.record(Phase.WAITING)
    world.later = {1010: lambda: world.record(Phase.COMMITTED)}
    assert world.wait()["phase"] == "committed"
    assert called == [("/usr/bin/salt-call", ["/usr/bin/salt-call", "safeupdate.wait"])]
    world.wait()
    assert len(called) == 1, "what has ended before needs no other program"
