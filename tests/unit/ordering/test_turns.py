"""The package manager works for a job, or for an update beside running jobs."""

import dataclasses

import pytest

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.host.locks import Lock
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.current import Job
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.ordering import turns
from tests.support.simulated import Clock
from tests.support.succession import HastyStore


class Turns:
    def __init__(self, place):
        self.settings = Settings(
            run_dir=str(place / "run"), state_dir=str(place / "state"), restart="handover"
        )
        self.clock = Clock()

    def free(self):
        """Tell whether an update could begin to change packages now."""
        lock = Lock(self.settings.run_dir, "packages")
        try:
            return lock.try_exclusive()
        finally:
            lock.close()

    def of_job(self):
        clock = self.clock
        return turns.of_job(self.settings, monotonic=clock.monotonic, sleep=clock.sleep)


@pytest.fixture
def place(tmp_path):
    current.begin(Job(jid="1", lock=None))
    yield Turns(tmp_path)
    current.end()


def test_no_update_changes_packages_while_a_job_has_the_package_manager_work(place):
    with place.of_job() as waited:
        assert not waited
        assert not place.free()
        with place.of_job():
            assert not place.free(), "another job may, too"
        assert not place.free()
    assert place.free()


def test_a_job_waits_for_an_update_that_does(place):
    update = Lock(place.settings.run_dir, "packages")
    update.exclusive()

    def ends():
        if place.clock.monotonic() >= began + 30:
            update.close()

    began, place.clock.each_second = place.clock.monotonic(), ends
    with place.of_job() as waited:
        assert waited
        assert place.clock.monotonic() >= began + 30
        assert not place.free()


def test_a_job_waits_though_the_supervisor_of_an_update_was_killed(place):
    """Nobody has the lock then, and the package manager goes on."""
    store = HastyStore(place.settings.database)
    kept = {"id": "u1", "kind": "update", "created": 1.0, "progress": Progress(beside=("1",))}
    store.save(Update(phase=Phase.INSTALLING, **kept))
    began = place.clock.monotonic()

    def ends():
        if place.clock.monotonic() >= began + 30:
            store.save(Update(phase=Phase.RESTARTING, **kept))

    place.clock.each_second = ends
    with place.of_job():
        assert place.clock.monotonic() >= began + 30
        assert not place.free()


def test_but_not_for_ever(place, caplog):
    update = Lock(place.settings.run_dir, "packages")
    update.exclusive()
    began = place.clock.monotonic()
    with place.of_job():
        assert place.clock.monotonic() >= began + 900
    assert "does not wait for it any longer" in caplog.text
    update.close()


def test_if_restarts_wait_for_jobs_so_do_updates(place):
    place.settings = dataclasses.replace(place.settings, restart="wait")
    with place.of_job():
        assert place.free()


def test_salt_call_has_its_share_all_the_time(place):
    share = locks.share(place.settings.run_dir, "packages")
    current.begin(Job(jid="", lock=None, packages=share))
    with place.of_job():
        assert share.try_exclusive(), "there is no other share"
    share.close()


def test_what_is_no_job_does_not_wait(place):
    current.end()
    with place.of_job():
        assert place.free()


def test_a_lock_that_cannot_be_used_keeps_nobody_from_the_package_manager(place, caplog):
    with open(place.settings.run_dir, "w", encoding="ascii"):
        pass
    with place.of_job():
        pass
    assert "cannot be used" in caplog.text


def test_what_fails_gives_its_share_up(place):
    with pytest.raises(ValueError, match="failed"), place.of_job():
        raise ValueError("failed")
    assert place.free()
