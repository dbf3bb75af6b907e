"""Who may start while locks work, and while they cannot be used."""

import dataclasses
import os
import resource

import pytest

from saltext_safeupdate.core.errors import LockHeldError, LockUnavailableError
from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import admission, current
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from tests.support.forked import forked
from tests.support.simulated import Clock

HOLDING = {"waiting", "installing", "delivering", "repairing", "stepping", "restarting"}
HOLDING |= {"rolling_back"}


class Place:
    def __init__(self, path):
        self.path = path
        self.settings = Settings(state_dir=str(path / "state"), run_dir=str(path / "run"))
        self.clock = Clock()
        self.store = Store(self.settings.database, clock=self.clock)
        self.told = []
        self.admission = Admission(
            self.settings, self.store, complain=self.told.append, clock=self.clock
        )

    def break_locks(self):
        (self.path / "run").write_text("not a directory")

    def save(self, phase, kind="update"):
        self.store.save(Update(id="u1", kind=kind, phase=phase, created=1.0))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_with_locks_a_job_has_a_share_unless_jobs_are_held(place):
    lock, may_start = place.admission.share()
    assert may_start
    assert not locks.Lock(place.settings.run_dir, "jobs").try_exclusive()
    lock.close()
    holder = locks.acquire(place.settings.run_dir, "drain", "")
    assert place.admission.share() == (None, False)
    assert place.admission.holding()
    holder.close()
    alone = locks.acquire(place.settings.run_dir, "jobs", "")
    assert place.admission.share() == (None, False)
    alone.close()
    assert place.told == []


def test_without_locks_a_job_starts_without_a_share_and_it_is_said(place):
    place.break_locks()
    assert place.admission.share() == (None, True)
    assert not place.admission.holding()
    assert isinstance(place.told[0], LockUnavailableError)
    assert "no update starts" in str(place.told[0])


@pytest.mark.parametrize("phase", Phase)
def test_without_locks_the_record_says_whether_an_update_holds_jobs(place, phase):
    place.break_locks()
    place.save(phase)
    held = phase.value in HOLDING
    assert place.admission.holding() is held
    assert place.admission.share() == (None, not held)
    place.save(phase, kind="restart")
    assert not place.admission.holding(), "nothing is replaced: as with plain Salt"


@pytest.mark.parametrize("phase", Phase)
def test_without_locks_an_update_beside_jobs_holds_salt_call_only(place, phase):
    place.break_locks()
    beside = Progress(beside=("1",))
    place.store.save(Update(id="u1", kind="update", phase=phase, created=1.0, progress=beside))
    assert place.admission.share() == (None, True)
    assert place.admission.share_of_packages() == (None, phase.value not in HOLDING)
    place.save(phase)
    assert place.admission.share_of_packages() == (None, True), "the jobs lock says no"


def test_salt_call_has_a_share_of_the_packages(place):
    job = current.ensure(place.settings)
    packages = locks.Lock(place.settings.run_dir, "packages")
    assert not packages.try_exclusive()
    current.end()
    assert packages.try_exclusive()
    with pytest.raises(LockHeldError, match="Then run this again"):
        current.ensure(place.settings)
    packages.close()
    assert job.packages is not None


@pytest.mark.parametrize("restart", ["handover", "wait"])
def test_salt_call_is_refused_though_the_supervisor_of_an_update_was_killed(place, restart):
    """Nobody has the lock then, and the package manager goes on."""
    settings = dataclasses.replace(place.settings, restart=restart)
    asked = Admission(settings, place.store, clock=place.clock)
    beside = Progress(beside=("1",))
    update = Update(id="u1", kind="update", phase=Phase.INSTALLING, created=1.0, progress=beside)
    place.store.save(update)
    lock, may_start = asked.share_of_packages()
    assert (lock is not None) is may_start is (restart == "wait"), "there jobs are held instead"
    place.clock.now += admission.BELIEVED + 1
    assert asked.share_of_packages()[1], "nobody works on it"


def test_salt_call_of_what_changes_them_has_its_share(place):
    """A script of a package may call it."""
    packages = locks.acquire(place.settings.run_dir, "packages", "")

    def work(hear, say):
        current.ensure(place.settings)
        say("it runs")

    with forked(work) as child:
        assert child.hear() == "it runs"
    packages.close()


def test_what_reads_its_own_tree_needs_no_share(place, monkeypatch):
    monkeypatch.setattr(own_tree, "_held", [-1])
    packages = locks.acquire(place.settings.run_dir, "packages", "")
    assert current.ensure(place.settings).packages is None
    current.end()
    packages.close()


@pytest.mark.parametrize("seconds", [admission.BELIEVED + 1, -admission.BELIEVED - 1])
def test_a_record_that_nobody_works_on_holds_no_job_for_ever(place, seconds):
    place.break_locks()
    place.save(Phase.INSTALLING)
    assert place.admission.holding()
    place.clock.now += seconds
    assert not place.admission.holding()


def test_without_locks_and_without_a_database_jobs_run(place):
    place.break_locks()
    (place.path / "state").mkdir()
    (place.path / "state" / "safeupdate.db").mkdir()
    assert place.admission.share() == (None, True)


def test_salt_call_runs_without_locks_unless_an_update_changes_the_minion(place):
    place.break_locks()
    job = current.ensure(place.settings)
    current.end()
    with pytest.raises(LockUnavailableError, match=r"Nothing was changed.*safeupdate\.check"):
        job.share()
    Store(place.settings.database).save(
        Update(id="u1", kind="update", phase=Phase.INSTALLING, created=1.0)
    )
    with pytest.raises(LockHeldError, match="no new job may start"):
        current.ensure(place.settings)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser becomes another user")
def test_salt_call_of_another_user_inside_a_job_runs_without_a_share(place):
    """With ``sudo_user``; the job around it has a share."""
    lock = locks.share(place.settings.run_dir, "jobs")

    def work(hear, say):
        os.setgid(65534)
        os.setuid(65534)
        say(str(current.ensure(place.settings).lock))

    with forked(work) as child:
        assert child.hear() == "None"
    lock.close()


def test_a_job_starts_although_no_file_can_be_opened(place):
    os.makedirs(place.settings.run_dir)

    def work(hear, say):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
        kept = []
        try:
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            found = place.admission.share()
        for fd in kept:
            os.close(fd)
        say(f"{found} {len(place.told) > 0}")

    with forked(work) as child:
        assert child.hear() == "(None, True) True"
