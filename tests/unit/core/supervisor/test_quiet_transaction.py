import dataclasses
import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    LockHeldError,
    RecordError,
    SafeUpdateError,
)
from saltext_safeupdate.core.host import copy_names, linked_copy, locks, processes
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.record.facts import RESTART
from saltext_safeupdate.core.record.phase import BEFORE_INSTALLING, Phase
from saltext_safeupdate.core.supervisor import initiator as module
from saltext_safeupdate.core.supervisor.quiet_transaction import PostponedError
from tests.support.forked import forked
from tests.support.simulated import Killed

from ..conftest import NEW, OLD


def _upgrade(host):
    """Return what a package manager does, with a look at what holds while it does it."""

    def work():
        assert host.services.refuses
        assert host.last.phase is Phase.INSTALLING
        assert locks.held(host.settings.run_dir, "jobs")
        assert locks.held(host.settings.run_dir, "drain")
        assert locks.held(host.settings.run_dir, "update")
        copies = host.redirected[-1]
        assert os.path.isfile(os.path.join(copies[str(host.root)], "modules", "test.py"))
        host.packages.versions.update(NEW)
        return "done"

    return work


def test_a_change_is_made_alone_and_left_to_the_supervisor(host):
    job = host.job()
    result = host.transaction().change(_upgrade(host), job, jid="2026", reason="because")
    assert result == "done"
    last = host.last
    assert (last.phase, last.jid, last.reason) == (Phase.DELIVERING, "2026", "because")
    assert (last.versions_from, last.versions_to) == (OLD, NEW)
    assert last.unit == {
        "active": "active",
        "enabled": "enabled",
        "file": host.services.file,
    }
    assert host.phases(last.id) == ["requested", "waiting", "installing", "delivering"]
    # The restart is not ours, and until this process has ended no job may start.
    assert host.restarts() == []
    assert host.services.refuses
    assert locks.held(host.settings.run_dir, "jobs")
    assert not locks.held(host.settings.run_dir, "update")


def test_then_the_supervisor_brings_it_to_its_end(host):
    job = host.job()
    host.transaction().change(_upgrade(host), job)
    job.close()
    host.end_supervisor()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.restarts() == ["restart"]
    host.assert_at_peace()


def test_where_nothing_changed_all_is_as_before_and_nothing_restarts(host):
    job = host.job()
    assert host.transaction().change(lambda: 5, job) == 5
    assert host.last.phase is Phase.COMMITTED
    assert "nothing to change" in host.last.reason
    assert not host.services.refuses
    # What this process reads from now on is in its old place: the copies go.
    there, back = host.redirected
    assert back == {copy: root for root, copy in there.items()}
    # The hold of the job is shared again, and it is still there.
    host.end_supervisor()
    assert host.lock("jobs").try_shared()
    assert not host.lock("jobs").try_exclusive()
    host.supervise()
    host.assert_at_peace()


def test_a_failure_that_changed_nothing_is_told_and_restarts_nothing(host):
    host.transaction().change(lambda: "E: gone", host.job(), failure=lambda result: result)
    assert (host.last.phase, host.last.reason) == (Phase.FAILED, "E: gone")
    assert not host.services.refuses
    host.all_die()
    host.supervise()
    assert host.restarts() == []
    host.assert_at_peace()


def test_work_that_raises_passes_through(host):
    def work():
        raise CommandError(("apt-get",), "exit status 100", stderr="E: no network")

    with pytest.raises(CommandError, match="no network"):
        host.transaction().change(work, host.job())
    assert host.last.phase is Phase.FAILED
    assert host.last.reason == "CommandError: apt-get: exit status 100: E: no network"
    host.all_die()
    host.supervise()
    host.assert_at_peace()


def test_work_that_changed_something_and_then_raises_leads_to_a_restart(host):
    def work():
        host.packages.versions.update(NEW)
        raise RuntimeError("late")

    with pytest.raises(RuntimeError):
        host.transaction().change(work, host.job())
    assert host.last.phase is Phase.DELIVERING
    assert host.last.versions_to == NEW
    assert host.services.refuses


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_job_that_is_ended_leaves_it_all_to_the_supervisor(host, end):
    """Its package manager may go on: what was changed is not known now."""

    def work():
        host.packages.at_work = lambda: host.packages.versions == OLD
        host.clock.after(10, lambda: host.packages.versions.update(NEW))
        raise end

    with pytest.raises(end):
        host.transaction().change(work, host.job())
    assert host.last.phase is Phase.INSTALLING
    assert locks.held(host.settings.run_dir, "jobs")
    host.all_die()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.last.versions_to == NEW
    host.assert_at_peace()


def test_half_done_is_told_and_left_to_the_supervisor(host):
    def work():
        host.packages.versions["salt"] = NEW["salt"]
        host.packages.half_done = ["salt-minion"]
        return "exit status 1"

    host.transaction().change(work, host.job(), failure=lambda result: result)
    assert host.last.phase is Phase.DELIVERING
    assert host.last.reason == "half done: salt-minion (exit status 1)"
    assert host.last.progress.unfinished == ("salt-minion",)


@pytest.mark.parametrize("secured", [True, False])
def test_files_of_both_versions_are_not_called_no_change(host, secured):
    """The package manager was killed before its database knew of what it had replaced."""
    host.packages.secures = secured
    host.packages.installs = host.fix

    def work():
        host.tear()
        return "killed"

    host.transaction().change(work, host.job(), failure=lambda result: result)
    assert host.last.reason == f"half done: {host.root} (killed)"
    assert host.last.phase is (Phase.DELIVERING if secured else Phase.FAILED)
    host.all_die()
    host.supervise()
    assert host.last.phase is (Phase.ROLLED_BACK if secured else Phase.FAILED)
    assert host.torn() is not secured
    host.assert_at_peace()


def test_files_of_both_versions_are_seen_also_beside_a_new_database(host):
    """The old one was damaged, and set aside, while the packages were installed."""

    def work():
        host.tear()
        for path in pathlib.Path(host.settings.state_dir).glob("safeupdate.db*"):
            path.unlink()
        host.store.anchor()
        return "killed"

    host.transaction().change(work, host.job(), failure=lambda result: result)
    assert host.last.reason == f"half done: {host.root} (killed)"
    assert host.last.phase is Phase.DELIVERING


@pytest.mark.parametrize("failure", ["exit status 1", ""])
def test_half_done_with_the_old_version_in_place_restarts_nothing(host, failure):
    def work():
        host.packages.half_done = ["salt-minion"]
        return failure

    host.transaction().change(work, host.job(), failure=lambda result: result)
    assert host.last.phase is Phase.FAILED
    assert host.last.reason.startswith("half done: salt-minion")
    host.all_die()
    host.supervise()
    assert host.restarts() == []
    host.assert_at_peace()


class TestRemovedAndInstalledAgain:
    """A change that removes own packages and installs them again ends with a minion."""

    @pytest.fixture
    def config(self, tmp_path):
        """A file of the minion's configuration that goes with its package."""
        path = tmp_path / "minion.conf"
        path.write_text("master: mine\n")
        return path

    def _swap(self, host, config, installs, **given):
        def work():
            host.packages.versions.clear()
            config.unlink()
            installs()
            return "" if host.packages.versions else "exit status 100"

        transaction = host.transaction(backup_paths=(str(config),), **given)
        transaction.change(work, host.job(), again=["salt-minion"], failure=lambda result: result)

    def _went_back(self, host, config):
        host.all_die()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.packages.versions == OLD
        assert config.read_text() == "master: mine\n"
        assert host.services.active == "active"
        # No version is to blame.
        assert host.store.quarantined() == []
        host.assert_at_peace()

    @pytest.mark.parametrize("versions", [OLD, NEW], ids=["same", "another"])
    def test_it_restarts_with_the_configuration_of_before(self, host, config, versions):
        self._swap(host, config, lambda: host.packages.versions.update(versions))
        assert host.last.phase is Phase.DELIVERING
        assert config.read_text() == "master: mine\n"
        host.all_die()
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.restarts() == ["restart"]
        host.assert_at_peace()

    def test_it_goes_back_if_the_installation_failed(self, host, config):
        self._swap(host, config, lambda: None)
        assert host.last.reason == "half done: salt-minion (exit status 100)"
        self._went_back(host, config)

    @pytest.mark.parametrize("versions", [{}, OLD, NEW], ids=["none", "same", "another"])
    def test_it_goes_back_if_the_job_was_killed_in_it(self, host, config, versions):
        store = host.dying(0, "after")

        def killed():
            host.packages.versions.update(versions)
            store.die()

        with pytest.raises(Killed):
            self._swap(host, config, killed, store=store)
        self._went_back(host, config)

    def test_without_a_way_back_nothing_is_removed(self, host, config):
        host.packages.secures = False
        with pytest.raises(SafeUpdateError, match="no way back if the installation fails"):
            self._swap(host, config, lambda: pytest.fail("removed"))
        assert host.last.phase is Phase.FAILED
        assert (host.packages.versions, config.exists()) == (OLD, True)
        host.all_die()
        host.supervise()
        assert host.restarts() == []
        host.assert_at_peace()


def test_the_update_lock_is_held_by_somebody_else(host):
    host.record(Phase.INSTALLING, jid="777")
    holder = locks.acquire(host.settings.run_dir, "update", "")
    job = host.job()
    with pytest.raises(LockHeldError, match=r"u1, installing, job 777.*Nothing was changed"):
        host.transaction().change(lambda: pytest.fail("changed"), job)
    holder.close()
    assert host.launched == 0
    assert len(host.store.updates()) == 1


def test_an_update_that_is_under_way_is_not_disturbed(host):
    for phase in (Phase.INSTALLING, Phase.DELIVERING, Phase.RESTARTING, Phase.WATCHING):
        host.record(phase)
        alive_one = host.lock("supervisor")
        assert alive_one.try_exclusive()
        with pytest.raises(LockHeldError, match="under way"):
            host.transaction().change(lambda: pytest.fail("changed"), host.job())
        assert host.last.phase is phase
        host.all_die()


def test_an_interrupted_record_is_put_in_order_first(host):
    host.record(Phase.INSTALLING)
    with pytest.raises(LockHeldError, match="was interrupted while installing"):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.launched == 1
    assert not locks.held(host.settings.run_dir, "update")


def test_a_supervisor_that_is_just_ending_is_waited_for(host):
    host.record(Phase.COMMITTED)
    ending = host.lock("supervisor")
    assert ending.try_exclusive()
    host.clock.after(3, ending.close)
    host.transaction().change(lambda: None, host.job())
    assert host.last.phase is Phase.COMMITTED
    assert host.clock.passed >= 3


def test_a_supervisor_that_does_not_end(host):
    host.record(Phase.COMMITTED)
    assert host.lock("supervisor").try_exclusive()
    with pytest.raises(LockHeldError):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.clock.passed >= module._SUPERVISOR_TIMEOUT


def test_the_supervisor_does_not_start(host):
    host.launches = False
    with pytest.raises(SafeUpdateError, match=r"did not start within 30 s.*journalctl"):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.last.phase is Phase.FAILED
    assert "did not start" in host.last.reason
    assert not locks.held(host.settings.run_dir, "update")


def test_the_supervisor_cannot_be_started(host):
    def launch():
        raise CommandError(("systemd-run",), "exit status 1", stderr="no bus")

    with pytest.raises(CommandError, match="no bus"):
        host.transaction(launch=launch).change(lambda: pytest.fail("changed"), host.job())
    assert (host.last.phase, host.last.reason) == (
        Phase.FAILED,
        "systemd-run: exit status 1: no bus",
    )
    host.all_die()
    host.assert_at_peace()


def test_there_is_no_space_for_the_supervisor(host):
    def launch():
        raise OSError(28, "No space left on device")

    with pytest.raises(SafeUpdateError, match="No space left on device"):
        host.transaction(launch=launch).change(lambda: pytest.fail("changed"), host.job())
    assert host.last.phase is Phase.FAILED
    host.all_die()
    host.assert_at_peace()


def test_a_supervisor_without_the_drain_is_not_ready(host):
    def launch():
        assert host.lock("supervisor").try_exclusive()

    with pytest.raises(SafeUpdateError, match="did not start"):
        host.transaction(launch=launch).change(lambda: pytest.fail("changed"), host.job())


def test_other_jobs_do_not_end(host):
    job, other = host.job(), host.job()
    transaction = host.transaction(names=lambda: ["99 test.sleep"])
    with pytest.raises(PostponedError, match=r"within 60 s \(running: 99 test\.sleep\)"):
        transaction.change(lambda: pytest.fail("changed"), job)
    assert host.last.phase is Phase.POSTPONED
    assert "jobs_timeout" in host.last.reason
    assert 60 <= host.clock.passed < 61
    # Our own job still counts, for whoever is next.
    other.close()
    assert not host.lock("jobs").try_exclusive()
    assert not locks.held(host.settings.run_dir, "update")


def test_other_jobs_end_in_time(host):
    other = host.job()
    host.clock.after(20, other.close)
    host.transaction().change(_upgrade(host), host.job())
    assert host.last.phase is Phase.DELIVERING
    assert 20 <= host.clock.passed < 21


def test_a_job_from_before_the_extension_was_there_is_waited_for(host):
    with forked(lambda hear, say: hear()) as older:
        host.clock.after(10, older.kill)
        transaction = host.transaction(pids=lambda: [older.pid])
        transaction.change(_upgrade(host), host.job())
    assert 10 <= host.clock.passed < 11


def test_a_job_from_before_that_does_not_end_postpones_the_update(host):
    with forked(lambda hear, say: hear()) as older:
        transaction = host.transaction(pids=lambda: [older.pid])
        with pytest.raises(PostponedError):
            transaction.change(lambda: pytest.fail("changed"), host.job())
    assert 60 <= host.clock.passed < 61


def test_the_job_that_started_this_one_is_not_waited_for(host):
    transaction = host.transaction(pids=lambda: list(processes.ancestors()))
    transaction.change(_upgrade(host), host.job())
    assert host.clock.passed < 1


def test_the_tree_cannot_be_kept_readable(host, monkeypatch):
    def full(source, target, bounds):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(linked_copy, "_link_tree", full)
    with pytest.raises(SafeUpdateError, match=r"No space left on device.*Nothing was changed"):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.last.phase is Phase.FAILED
    assert "No space" in host.last.reason
    assert host.redirected == []
    host.all_die()
    host.supervise()
    host.assert_at_peace()


def test_copies_of_an_earlier_update_are_removed(host):
    copy = linked_copy.make([str(host.root)], "older")[str(host.root)]
    host.transaction().change(_upgrade(host), host.job())
    assert not os.path.exists(copy)


def test_somebody_has_made_a_mark_for_the_scripts_since_the_pre_flight(host, tmp_path):
    mark = tmp_path / "mark"
    mark.symlink_to("/etc")
    host.packages.marks = [str(mark)]
    with pytest.raises(SafeUpdateError, match="is no regular file"):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.last.phase is Phase.FAILED
    assert "Nothing was changed" in host.last.reason
    assert host.restarts() == []


def test_the_service_cannot_be_inhibited(host):
    host.services.fails = ["inhibit"]
    with pytest.raises(CommandError, match="inhibit failed"):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert host.last.phase is Phase.FAILED
    host.all_die()
    host.supervise()
    host.assert_at_peace()


def test_a_record_that_cannot_be_written_changes_nothing(host, monkeypatch):
    def full(update, **fence):
        raise RecordError("disk full")

    monkeypatch.setattr(host.store, "save", full)
    with pytest.raises(RecordError):
        host.transaction().change(lambda: pytest.fail("changed"), host.job())
    assert not locks.held(host.settings.run_dir, "update")
    assert not locks.held(host.settings.run_dir, "jobs")


class TestRequestRestart:
    def test_it_waits_for_the_supervisor_and_returns(self, host):
        update = host.request_restart(jid="5", reason="config")
        assert (update.kind, update.phase, update.jid, update.reason) == (
            "restart",
            Phase.WAITING,
            "5",
            "config",
        )
        assert not locks.held(host.settings.run_dir, "update")
        assert host.restarts() == []

    def test_a_second_one_is_the_first_one(self, host):
        first = host.request_restart()
        second = host.request_restart()
        assert (second.id, host.launched) == (first.id, 1)

    def test_an_update_that_will_restart_anyway_is_enough(self, host):
        host.record(Phase.INSTALLING)
        assert host.lock("supervisor").try_exclusive()
        assert host.request_restart().id == "u1"

    def test_after_a_restart_that_is_done_there_is_a_new_one(self, host):
        host.record(Phase.COMMITTED, kind="restart")
        assert host.request_restart().id != "u1"

    def test_it_knows_the_jobs_from_before(self, host):
        update = host.request_restart(pids=lambda: [os.getpid(), 2**22 + 1])
        assert update.processes == {str(os.getpid()): processes.me()}


class TestSuperseded:
    def _wait(self, host):
        restart = host.request_restart(jid="5", reason="config")
        # The supervisor sees that it is cancelled, and ends.
        host.clock.after(0.1, host.end_supervisor)
        return restart

    def test_a_restart_that_waits_gives_way_to_an_update(self, host):
        restart = self._wait(host)
        host.transaction().change(_upgrade(host), host.job())
        assert host.store.get(restart.id).phase is Phase.CANCELLED
        assert host.last.phase is Phase.DELIVERING
        assert host.last.owed.reason == "config"

    def test_where_the_update_restarts_the_minion_there_is_no_second_restart(self, host):
        self._wait(host)
        job = host.job()
        host.transaction().change(_upgrade(host), job)
        host.all_die()
        host.supervise()
        assert host.restarts() == ["restart"]
        assert host.last.kind == "update"
        host.assert_at_peace()

    @pytest.mark.parametrize("end", ["unchanged", "failed", "postponed"])
    def test_where_it_does_not_the_restart_comes_all_the_same(self, host, end):
        self._wait(host)
        job = host.job()
        if end == "postponed":
            host.job()
            with pytest.raises(PostponedError):
                host.transaction().change(lambda: pytest.fail("changed"), job)
        else:
            failure = "no" if end == "failed" else ""
            host.transaction().change(lambda: None, job, failure=lambda result: failure)
        assert host.restarts() == []
        host.all_die()
        host.supervise()
        assert host.restarts() == ["restart"]
        assert (host.last.kind, host.last.phase, host.last.reason) == (
            "restart",
            Phase.COMMITTED,
            "config",
        )
        host.assert_at_peace()

    def test_a_supervisor_that_does_not_let_go(self, host):
        host.request_restart()
        with pytest.raises(LockHeldError):
            host.transaction().change(lambda: pytest.fail("changed"), host.job())


def _installs(host):
    host.packages.versions.update(NEW)


def _breaks(host):
    host.packages.versions["salt"] = NEW["salt"]
    host.packages.half_done = ["salt-minion"]
    host.packages.repairs = lambda: (host.packages.versions.update(NEW), _mended(host))


def _mended(host):
    host.packages.half_done = []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "work", [_installs, _breaks, lambda host: None], ids=["installs", "breaks", "nothing"]
)
@pytest.mark.parametrize("kill_at", range(1, 8))
def test_killed_at_any_write_of_the_record_then_recovered(host, kill_at, when, work):
    store = host.dying(kill_at, when)
    try:
        host.transaction(store=store).change(lambda: work(host), host.job())
    except Killed:
        assert store.dead
    else:
        # The last of the parameters are beyond the last write: this shows that all were tried.
        assert store.writes < kill_at
    host.all_die()
    if host.last is not None:
        host.supervise()
        host.assert_at_peace()
    changed = host.packages.versions != OLD
    assert host.restarts() == (["restart"] if changed else [])
    assert host.services.active == "active"
    assert host.packages.half_done == []
    if changed:
        assert host.last.phase is Phase.COMMITTED
        assert host.packages.versions == NEW


def resolved(version, serial=0):
    return dataclasses.replace(resolution.request(version), serial=serial)


class TestRequestUpdate:
    def _ask(self, host, version=None, *, number=0, **kwargs):
        return host.request_update(resolution.request(version, **kwargs), serial=number)

    def test_it_is_written_down_and_supervised(self, host):
        update = host.request_update(
            resolution.request("3007.15"), jid="5", serial=5, reason="asked"
        )
        assert (update.kind, update.phase, update.jid) == ("update", Phase.REQUESTED, "5")
        assert update.versions_from == OLD
        assert update.code.own == ("salt", "salt-minion")
        assert update.code.roots == (str(host.root),)
        assert (update.request.serial, update.versions_to) == (5, NEW)
        assert host.launched == 1
        assert not locks.held(host.settings.run_dir, "update")

    def test_the_same_request_again_is_the_same_update(self, host):
        first = self._ask(host, "3007.15", number=5)
        assert self._ask(host, "3007.15", number=6).id == first.id
        assert host.launched == 1

    def test_the_same_number_again_is_the_same_update_after_its_end_too(self, host):
        first = self._ask(host, "3007.15", number=5)
        host.store.save(first.advance(Phase.CANCELLED))
        host.clock.now += 1
        assert self._ask(host, "3007.15", number=5).id == first.id
        host.all_die()
        assert self._ask(host, "3007.15", number=6).id != first.id

    @pytest.mark.parametrize("phase", BEFORE_INSTALLING)
    def test_another_one_takes_the_place_of_what_has_not_begun(self, host, phase):
        host.record(phase, request=resolved("3007.14", 5))
        host.clock.now += 1
        update = self._ask(host, "3007.15", number=6)
        assert host.store.get("u1").phase is Phase.CANCELLED
        assert host.store.latest().id == update.id

    def test_an_older_one_is_refused(self, host):
        host.record(Phase.COMMITTED, request=resolved("3007.15", 5))
        host.store.take(5, "u1")
        told = "of 1970-01-01 00:00:00 UTC, is older than update u1, of 1970-01-01 00:00:00 UTC"
        with pytest.raises(InputError, match=told):
            self._ask(host, "3007.14", number=4)
        assert len(host.store.updates()) == 1

    @pytest.mark.parametrize(
        "phase",
        [Phase.INSTALLING, Phase.DELIVERING, Phase.RESTARTING, Phase.WATCHING, Phase.ROLLING_BACK],
    )
    def test_what_has_begun_is_not_disturbed(self, host, phase):
        host.record(phase, request=resolved("3007.15"))
        with pytest.raises(LockHeldError, match="under way"):
            self._ask(host, "3007.14")
        assert host.last.phase is phase

    def test_a_run_that_installs_is_not_disturbed(self, host):
        host.record(Phase.WAITING)
        with pytest.raises(LockHeldError, match="under way"):
            self._ask(host)
        assert host.last.phase is Phase.WAITING

    def test_the_update_lock_is_held_for_longer_than_a_moment(self, host):
        holder = locks.acquire(host.settings.run_dir, "update", "")
        with pytest.raises(LockHeldError):
            self._ask(host)
        holder.close()
        assert host.last is None

    def test_a_restart_that_waits_gives_way_and_is_owed(self, host):
        host.request_restart(jid="5", reason="config")
        host.clock.now += 1
        update = self._ask(host)
        assert update.owed.reason == "config"
        # And the debt goes on from one request to the next.
        host.clock.now += 1
        assert self._ask(host, "3007.15").owed.reason == "config"

    def test_the_supervisor_does_not_start(self, host):
        host.launches = False
        with pytest.raises(SafeUpdateError, match="did not start"):
            self._ask(host)
        assert host.last.phase is Phase.FAILED


class TestWayBack:
    def test_the_old_packages_are_secured_and_it_is_looked_after(self, host):
        armed = []
        host.transaction(arm=armed.append).change(_upgrade(host), host.job())
        assert [row[:2] for row in host.last.way_back.files] == sorted(OLD.items())
        assert armed == [copy_names.of([str(host.root)], host.last.id)]
        assert list(armed[0]) == [str(host.root)]

    def test_where_they_cannot_be_secured_it_goes_on_and_says_so(self, host):
        host.packages.secures = False
        transaction = host.transaction()
        transaction.change(_upgrade(host), host.job())
        assert host.last.phase is Phase.DELIVERING
        assert "no copy can be had" in host.last.way_back.missing
        assert "no way back" in transaction.warning

    def test_where_nobody_can_look_after_it_nothing_is_changed(self, host):
        def arm(copies):
            raise SafeUpdateError("/etc cannot be written")

        with pytest.raises(SafeUpdateError, match="/etc cannot be written"):
            host.transaction(arm=arm).change(lambda: pytest.fail("changed"), host.job())
        assert host.last.phase is Phase.FAILED
        host.all_die()
        host.supervise()
        assert host.kept() == []
        host.assert_at_peace()


@pytest.mark.parametrize("phase", [Phase.WATCHING, Phase.ROLLING_BACK])
def test_a_restart_that_is_asked_for_while_an_update_is_watched_is_not_forgotten(host, phase):
    host.record(phase)
    assert host.lock("supervisor").try_exclusive()
    assert host.request_restart(jid="5", reason="config").id == "u1"
    assert host.store.fact(RESTART).reason == "config"
