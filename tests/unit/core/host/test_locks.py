import contextlib
import errno
import os
import pathlib
import pwd

import pytest

from saltext_safeupdate.core.errors import LockHeldError, LockUnavailableError, SafeUpdateError
from saltext_safeupdate.core.host import locks, processes
from tests.support.forked import forked
from tests.support.simulated import Clock

fetches = pytest.mark.skipif(
    os.geteuid() != 0, reason="fetching the file of a parent process needs its permission"
)


@pytest.fixture
def run_dir(tmp_path):
    return str(tmp_path / "run")


def _process_with(run_dir, name, take):
    """Return the work of a process that keeps a lock until it is told something."""

    def work(hear, say):
        lock = locks.Lock(run_dir, name)
        say(str(getattr(lock, take)()))
        hear()

    return work


def test_jobs_share_and_an_update_is_alone(run_dir):
    mine = locks.Lock(run_dir, "jobs")
    assert mine.try_shared()
    with forked(_process_with(run_dir, "jobs", "try_shared")) as other:
        assert other.hear() == "True"
        third = locks.Lock(run_dir, "jobs")
        assert not third.try_exclusive()
    with forked(_process_with(run_dir, "jobs", "try_exclusive")) as update:
        assert update.hear() == "False"
    mine.close()
    with forked(_process_with(run_dir, "jobs", "try_exclusive")) as update:
        assert update.hear() == "True"
        assert not locks.Lock(run_dir, "jobs").try_shared()


def test_a_link_is_no_lock(run_dir, tmp_path):
    """The directory may be another user's: root would open a device, or lock a file of others."""
    (tmp_path / "aim").touch()
    os.makedirs(run_dir, exist_ok=True)
    os.symlink(tmp_path / "aim", os.path.join(run_dir, "jobs.lock"))
    with pytest.raises(LockUnavailableError):
        locks.Lock(run_dir, "jobs")


def test_the_kernel_gives_back_what_a_killed_process_held(run_dir):
    with forked(_process_with(run_dir, "update", "try_exclusive")) as holder:
        assert holder.hear() == "True"
        assert locks.held(run_dir, "update")
        holder.kill()
    assert not locks.held(run_dir, "update")


def test_a_job_that_runs_keeps_an_update_from_being_alone_until_it_ends(run_dir):
    with forked(_process_with(run_dir, "jobs", "try_shared")) as job:
        assert job.hear() == "True"
        mine = locks.Lock(run_dir, "jobs")
        assert mine.try_shared()
        clock = Clock()

        def sleep(seconds):
            clock.sleep(seconds)
            if clock.passed > 1 and job._code is None:
                job.say()
                job.wait()

        assert mine.wait_exclusive(60, clock=clock, sleep=sleep)
        assert 1 < clock.passed < 2


def test_waiting_is_bounded_and_costs_the_share(run_dir):
    with forked(_process_with(run_dir, "jobs", "try_shared")) as job:
        job.hear()
        mine = locks.Lock(run_dir, "jobs")
        assert mine.try_shared()
        clock = Clock()
        assert not mine.wait_exclusive(10, clock=clock, sleep=clock.sleep)
        assert clock.passed == pytest.approx(10, abs=0.1)
        # The documented price: another process could have it now, so the share is taken again.
        job.kill()
        locks.acquire(run_dir, "jobs", "held").close()
        assert mine.try_shared()


def test_turns_are_as_many_as_there_are_locks(run_dir):
    clock = Clock()

    def take():
        return locks.take_turn(run_dir, locks.RETURNS, 10, clock=clock, sleep=clock.sleep)

    turns = [take() for _ in locks.RETURNS]
    assert {turn.name for turn in turns} == set(locks.RETURNS)
    assert clock.passed == 0
    assert take() is None
    assert clock.passed == pytest.approx(10, abs=0.5)
    turns[2].close()
    turns.append(take())
    assert turns[-1].name == turns[2].name
    for turn in turns:
        turn.close()


def test_who_has_waited_longer_tries_at_least_as_often(run_dir):
    clock, tries = Clock(), []
    turns = [locks.acquire(run_dir, name, "held") for name in locks.RETURNS]

    def sleep(seconds):
        tries.append(seconds)
        clock.sleep(seconds)

    assert locks.take_turn(run_dir, locks.RETURNS, 2, clock=clock, sleep=sleep) is None
    assert tries == sorted(tries, reverse=True)
    assert tries[0] > 4 * tries[-1]
    for turn in turns:
        turn.close()


def test_a_turn_that_is_taken_or_not_leaves_no_file_open(run_dir):
    before = os.listdir("/proc/self/fd")
    clock = Clock()
    turns = [locks.take_turn(run_dir, locks.RETURNS, 1) for _ in locks.RETURNS]
    assert locks.take_turn(run_dir, locks.RETURNS, 1, clock=clock, sleep=clock.sleep) is None
    assert len(os.listdir("/proc/self/fd")) == len(before) + len(turns)
    for turn in turns:
        turn.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_an_exclusive_lock_becomes_a_share_again(run_dir):
    mine = locks.Lock(run_dir, "jobs")
    assert mine.try_exclusive()
    assert locks.held(run_dir, "jobs")
    assert mine.try_shared()
    assert not locks.held(run_dir, "jobs")


def test_looking_at_a_lock_takes_nothing(run_dir):
    assert not locks.held(run_dir, "drain")
    holder = locks.acquire(run_dir, "drain", "no")
    assert locks.held(run_dir, "drain")
    holder.release()
    assert not locks.held(run_dir, "drain")
    assert holder.try_exclusive()


def open_files():
    """Return the paths of the open files; others may vanish meanwhile."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_acquire_says_what_it_was_told_and_leaves_no_file_open(run_dir):
    holder = locks.acquire(run_dir, "update", "unused")
    with pytest.raises(LockHeldError, match="busy: u1"):
        locks.acquire(run_dir, "update", "busy: u1")
    assert open_files().count(os.path.realpath(holder.path)) == 1
    holder.close()
    locks.acquire(run_dir, "update", "unused").close()


def test_exclusive_waits_for_another_process(run_dir):
    with forked(_process_with(run_dir, "drain", "try_exclusive")) as holder:
        holder.hear()

        def waits(hear, say):
            lock = locks.Lock(run_dir, "drain")
            say("waiting")
            lock.exclusive()
            say("mine")

        with forked(waits) as waiter:
            assert waiter.hear() == "waiting"
            holder.say()
            assert waiter.hear() == "mine"


def test_a_child_that_was_forked_keeps_the_share_of_a_job_after_its_parent_let_go(run_dir):
    lock = locks.Lock(run_dir, "jobs")
    assert lock.try_shared()
    with forked(lambda hear, say: hear()) as job:
        lock.close()
        assert not locks.Lock(run_dir, "jobs").try_exclusive()
        job.kill()
        assert locks.Lock(run_dir, "jobs").try_exclusive()


def test_a_program_does_not_inherit_a_lock(run_dir):
    assert not os.get_inheritable(locks.Lock(run_dir, "jobs").fd)


def _grandchild(run_dir, lock, work):
    """Run *work* as a child of a child that does not have the file of the lock open itself."""

    def child(hear, say):
        os.close(lock.fd)

        def grandchild(hear_more, say_more):
            work(locks.adopt(run_dir, "jobs"), say)

        with forked(grandchild) as deeper:
            say(f"ended {deeper.wait()}")

    return forked(child)


@fetches
def test_salt_call_inside_a_job_makes_their_common_lock_exclusive(run_dir):
    job = locks.Lock(run_dir, "jobs")
    assert job.try_shared()

    def work(adopted, say):
        say(str(adopted.try_exclusive()))
        say(str(locks.Lock(run_dir, "jobs").try_shared()))

    with _grandchild(run_dir, job, work) as call:
        # Alone, although the job that started it "still has" its share.
        assert [call.hear(), call.hear(), call.hear()] == ["True", "False", "ended 0"]
    # It is the lock of both: it outlives the call until the job has ended.
    assert not locks.Lock(run_dir, "jobs").try_shared()
    job.close()
    assert locks.Lock(run_dir, "jobs").try_exclusive()


@fetches
def test_salt_call_inside_a_job_waits_for_other_jobs(run_dir):
    job = locks.Lock(run_dir, "jobs")
    assert job.try_shared()
    with forked(_process_with(run_dir, "jobs", "try_shared")) as other:
        other.hear()
        with _grandchild(run_dir, job, lambda adopted, say: say(str(adopted.try_exclusive()))) as c:
            assert c.hear() == "False"


@fetches
def test_adopt_sees_through_symbolic_links(tmp_path, run_dir):
    (tmp_path / "alias").symlink_to(tmp_path)
    aliased = str(tmp_path / "alias" / "run")
    job = locks.Lock(run_dir, "jobs")
    with _grandchild(aliased, job, lambda adopted, say: say(str(adopted is not None))) as call:
        assert call.hear() == "True"


@fetches
def test_adopt_knows_the_lock_by_what_it_is_and_not_by_its_path(tmp_path, run_dir):
    job = locks.Lock(run_dir, "jobs")
    # The same file under another path, as a mount makes it, and another file under the same one.
    other = tmp_path / "other"
    other.mkdir()
    os.link(job.path, other / "jobs.lock")
    with _grandchild(str(other), job, lambda adopted, say: say(str(adopted is not None))) as call:
        assert call.hear() == "True"
    os.unlink(job.path)
    pathlib.Path(job.path).write_text("")
    with _grandchild(run_dir, job, lambda adopted, say: say(str(adopted))) as call:
        assert call.hear() == "None"


def test_a_kernel_that_does_not_share_the_lock_is_a_clear_error(run_dir, monkeypatch):
    # No system call has this number: what a filter answers for one that it does not know.
    monkeypatch.setattr(locks, "_SYS_PIDFD_GETFD", 0xFFFFFF)
    job = locks.Lock(run_dir, "jobs")
    assert job.try_shared()

    def work(hear, say):
        with pytest.raises(SafeUpdateError, match="pidfd_getfd") as caught:
            locks.adopt(run_dir, "jobs")
        say(str(caught.value))

    with forked(work) as child:
        assert "Nothing was done" in child.hear()


def test_adopt_finds_nothing_where_no_ancestor_has_the_lock(run_dir):
    def work(hear, say):
        say(str(locks.adopt(run_dir, "jobs")))

    # Our own file is no ancestor's, for us; and a sibling is none either.
    with forked(_process_with(run_dir, "jobs", "try_shared")) as sibling:
        sibling.hear()
        with forked(work) as child:
            assert child.hear() == "None"
        assert locks.adopt(run_dir, "jobs") is None


def test_ancestors_are_our_parents():
    me = os.getpid()

    def work(hear, say):
        say(" ".join(str(pid) for pid in processes.ancestors()))

    with forked(work) as child:
        found = [int(pid) for pid in child.hear().split()]
    assert found[0] == me
    assert found[1:] == list(processes.ancestors())
    assert 1 not in found


def test_the_directory_is_private(run_dir):
    locks.Lock(run_dir, "jobs")
    assert pathlib.Path(run_dir).stat().st_mode & 0o777 == 0o700
    assert pathlib.Path(run_dir, "jobs.lock").stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LockUnavailableError, match=r"jobs\.lock.*run_dir") as caught:
        locks.Lock(str(tmp_path / "file"), "jobs")
    assert locks.problem(str(tmp_path / "file")) == str(caught.value)


def test_a_file_system_without_locks_is_a_clear_error(run_dir, monkeypatch):
    lock = locks.Lock(run_dir, "jobs")

    def flock(fd, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    for use in (lock.try_shared, lock.exclusive, lambda: locks.share(run_dir, "jobs")):
        with pytest.raises(LockUnavailableError, match="No locks available"):
            use()


def test_locks_that_another_user_has_made_do_not_work_for_the_minion(run_dir):
    assert locks.problem(run_dir) == ""
    assert locks.problem(run_dir, pwd.getpwuid(os.geteuid()).pw_name) == ""
    assert "belongs to another user" in locks.problem(run_dir, "nobody")
    assert "not known" in locks.problem(run_dir, "no such user")


def test_an_unknown_name_is_a_mistake(run_dir):
    with pytest.raises(ValueError, match="nonsense"):
        locks.Lock(run_dir, "nonsense")


def test_a_closed_lock_cannot_be_used(run_dir):
    lock = locks.Lock(run_dir, "jobs")
    lock.close()
    lock.close()
    with pytest.raises(ValueError, match="closed"):
        lock.try_shared()
