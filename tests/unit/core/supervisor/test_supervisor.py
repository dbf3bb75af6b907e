import json
import os
import pathlib
from dataclasses import replace

import pytest

from saltext_safeupdate.core import program
from saltext_safeupdate.core.errors import CommandError, RecordError
from saltext_safeupdate.core.host import linked_copy, locks, processes
from saltext_safeupdate.core.record.facts import RESTART
from saltext_safeupdate.core.record.parts import (
    Former,
    Owed,
    Progress,
    Request,
    Staged,
    Watched,
    WayBack,
)
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.supervisor import context, ending, supervisor, watch, watchdog
from tests.support.forked import forked

from ..conftest import NEW, OLD

HALF_DONE = Progress(unfinished=("salt",))


def _installed(host, phase=Phase.DELIVERING, **changes):
    """The job has installed and ended: everything is there that the supervisor finds."""
    host.packages.versions.update(NEW)
    host.keep_tree()
    host.services.refuses = True
    return host.record(phase, versions_to=dict(NEW), **changes)


def test_without_a_record_there_is_nothing_to_do(host):
    host.supervise()
    assert host.last is None


def test_it_restarts_watches_and_commits(host):
    _installed(host)
    host.supervise()
    assert host.phases() == ["delivering", "stepping", "restarting", "watching", "committed"]
    assert host.restarts() == ["restart"]
    host.assert_at_peace()


@pytest.mark.parametrize("final", [phase for phase in Phase if phase.final])
def test_a_record_that_is_final_is_left_as_it_is_and_cleaned_up_after(host, final):
    _installed(host, final)
    host.supervise()
    assert host.phases() == [final.value]
    assert host.restarts() == []
    host.assert_at_peace()


@pytest.mark.parametrize(
    "phase", [Phase.REQUESTED, Phase.CHECKING, Phase.STAGING, Phase.WAITING, Phase.ROLLING_BACK]
)
def test_an_update_that_never_began_fails_without_a_restart(host, phase):
    host.record(phase)
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert host.last.reason
    assert host.restarts() == []
    host.assert_at_peace()


@pytest.mark.parametrize("phase", [Phase.INSTALLING, Phase.DELIVERING])
def test_an_update_that_has_changed_something_is_restarted(host, phase):
    _installed(host, phase)
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.last.versions_to == NEW
    assert host.restarts() == ["restart"]
    host.assert_at_peace()


def test_the_minion_is_not_restarted_before_the_job_has_ended(host):
    _installed(host)
    job = host.job()
    host.clock.after(20, job.close)
    ended = []
    host.services.report = lambda: (ended.append(host.clock.passed), host.report())
    host.supervise()
    assert ended[0] >= 20
    assert host.last.phase is Phase.COMMITTED


def test_the_minion_is_not_restarted_before_the_return_has_arrived(host):
    _installed(host)
    host.ledger.add_undelivered("2026:1", jid="2026", fun="state.apply", master="m", payload=b"x")
    host.clock.after(15, lambda: host.ledger.delivered("2026:1"))
    host.supervise()
    assert host.clock.passed >= 15
    assert host.last.phase is Phase.COMMITTED


def test_a_return_of_another_job_is_not_waited_for(host):
    _installed(host)
    host.ledger.add_undelivered("1:1", jid="1", fun="test.ping", master="m", payload=b"x")
    host.supervise()
    assert host.clock.passed < 10


def test_a_return_that_never_arrives_delays_the_restart_by_a_bounded_time(host):
    _installed(host)
    host.ledger.add_undelivered("2026:1", jid="2026", fun="state.apply", master="m", payload=b"x")
    host.supervise()
    assert 60 <= host.clock.passed < 70
    assert host.last.phase is Phase.COMMITTED


def test_a_return_is_not_waited_for_if_the_minion_was_killed_meanwhile(host):
    _installed(host)
    host.ledger.add_undelivered("2026:1", jid="2026", fun="state.apply", master="m", payload=b"x")
    host.engine = False
    host.services.report = lambda: (setattr(host, "engine", True), host.report())
    host.supervise()
    assert host.clock.passed < 60
    assert host.last.phase is Phase.COMMITTED


class TestServiceState:
    """After the update the unit is what it was before, whatever packages did to it."""

    def test_inactive_before(self, host):
        host.services.active, host.services.pid = "inactive", 0
        _installed(
            host, unit={"active": "inactive", "enabled": "enabled", "file": host.services.file}
        )
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.services.active == "inactive"
        assert host.restarts() == []
        host.assert_at_peace()

    def test_inactive_before_and_started_by_a_scriptlet(self, host):
        _installed(
            host, unit={"active": "inactive", "enabled": "disabled", "file": host.services.file}
        )
        host.supervise()
        assert (host.services.active, host.services.enabled) == ("inactive", "disabled")
        assert host.restarts() == ["stop"]
        host.assert_at_peace()

    def test_failed_before(self, host):
        host.services.active, host.services.pid = "failed", 0
        _installed(host, unit={"active": "failed", "enabled": "enabled", "file": "/x"})
        host.supervise()
        assert host.restarts() == []
        assert host.last.phase is Phase.COMMITTED

    def test_running_although_masked(self, host):
        host.services.enabled = "masked"
        _installed(host, unit={"active": "active", "enabled": "masked", "file": "/x"})
        host.supervise()
        assert (host.services.active, host.services.enabled) == ("active", "masked")
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    def test_masked_by_a_scriptlet(self, host):
        host.services.enabled = "masked"
        _installed(host)
        host.supervise()
        assert (host.services.active, host.services.enabled) == ("active", "enabled")

    def test_disabled_by_a_scriptlet(self, host):
        host.services.enabled = "disabled"
        _installed(host)
        host.supervise()
        assert (host.services.active, host.services.enabled) == ("active", "enabled")

    def test_enabled_by_a_scriptlet(self, host):
        _installed(host, unit={"active": "active", "enabled": "disabled", "file": "/x"})
        host.supervise()
        assert (host.services.active, host.services.enabled) == ("active", "disabled")

    def test_stopped_by_a_scriptlet(self, host):
        host.services.active, host.services.pid = "inactive", 0
        _installed(host)
        host.supervise()
        assert host.services.active == "active"
        assert host.restarts() == ["start"]
        assert host.last.phase is Phase.COMMITTED

    def test_every_package_removed(self, host):
        _installed(host)
        host.packages.versions.clear()
        host.record(Phase.DELIVERING, versions_to={}, code=host.last.code)
        host.supervise()
        assert host.services.active == "inactive"
        assert host.restarts() == ["stop"]
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    @pytest.mark.parametrize("ends", [True, False])
    def test_a_removal_waits_for_the_jobs_that_run_during_it(self, host, ends):
        """No other minion comes after this one; a job that hangs has the time of a stop."""
        _installed(host)
        host.packages.versions.clear()
        beside = Progress(beside=(processes.me(),))
        host.record(Phase.RESTARTING, versions_to={}, code=host.last.code, progress=beside)
        job, seen, removed = host.job(), [], []

        def each_second():
            seen.append(host.services.active)
            if ends and len(seen) == 30:
                assert locks.held(host.settings.run_dir, "drain")
                job.close()

        host.clock.each_second = each_second
        host.supervise(remove_guard=lambda: removed.append("guard"))
        assert set(seen[: 30 if ends else int(host.settings.stop_timeout) - 60]) == {"active"}
        assert host.services.active == "inactive"
        assert (host.last.phase, removed) == (Phase.COMMITTED, ["guard"])
        job.close()

    def test_the_package_with_the_unit_removed(self, host):
        _installed(host)
        host.record(Phase.DELIVERING, versions_to={"salt": "3007.15"}, code=host.last.code)
        host.services.file = None
        host.supervise()
        assert host.services.active == "inactive"
        assert host.restarts() == ["stop"]
        assert host.last.phase is Phase.COMMITTED

    def test_nothing_is_removed_where_there_never_was_a_unit_file(self, host):
        _installed(host, unit={"active": "active", "enabled": "enabled", "file": ""})
        host.supervise()
        assert host.restarts() == ["restart"]


class TestComingUp:
    @pytest.mark.parametrize("dies", [1, 2, 3])
    def test_a_unit_that_dies_after_the_update_is_started_again(self, host, dies):
        _installed(host)
        host.services.dies = dies
        host.supervise()
        assert host.restarts() == ["restart"] + ["start"] * dies
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    def test_but_not_for_ever(self, host):
        _installed(host)
        host.services.dies = 100
        host.supervise()
        assert host.restarts() == ["restart"] + ["start"] * watch._START_ATTEMPTS
        assert host.last.phase is Phase.FAILED
        assert "salt-minion is failed" in host.last.reason
        host.assert_at_peace()

    def test_a_start_that_fails_is_no_end(self, host):
        _installed(host)
        host.services.dies = 1
        host.services.fails = ["start"]
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_a_service_that_never_reports_has_failed_with_a_reason(self, host):
        _installed(host)
        host.reports = False
        host.services.enabled = "disabled"
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "salt-minion is active, but no minion" in host.last.reason
        assert "30 s" in host.last.reason
        assert host.services.enabled == "enabled"
        assert 30 <= host.clock.passed < 35
        host.assert_at_peace()

    def test_the_old_minion_does_not_count_as_the_new_one(self, host):
        """The engine of the old one may be started anew, and report, until the restart."""
        _installed(host)
        host.reports = False
        host.services.run = lambda: None
        host.services._up = lambda: None
        host.clock.after(5, host.reported)
        host.supervise()
        assert host.last.phase is Phase.FAILED

    def test_the_same_pid_in_another_invocation_is_a_new_one(self, host):
        _installed(host)
        up = host.services.run

        def same_pid():
            pid = host.services.pid
            up()
            host.services.pid = pid

        host.services.run = same_pid
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_without_invocations_the_pid_tells(self, host):
        _installed(host)
        up = host.services.run
        host.services.invocation = ""
        host.services.run = lambda: (up(), setattr(host.services, "invocation", ""))
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_a_clock_that_is_set_back_does_not_hide_the_new_minion(self, host):
        _installed(host)

        def report():
            host.clock.now -= 3600
            host.report()
            host.clock.now += 3600

        host.services.report = report
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_jobs_may_start_before_the_new_one_has_reported(self, host):
        _installed(host)
        seen = []

        def look():
            seen.append(locks.held(host.settings.run_dir, "drain"))
            seen.append(locks.held(host.settings.run_dir, "jobs"))
            host.report()

        host.services.report = lambda: host.clock.after(5, look)
        host.supervise()
        assert seen == [False, False]
        assert host.last.phase is Phase.COMMITTED

    def test_and_not_before_the_old_one_is_gone(self, host):
        _installed(host)
        held = []
        host.services.report = lambda: (
            held.extend(locks.held(host.settings.run_dir, name) for name in ("drain", "jobs")),
            host.report(),
        )
        host.supervise()
        assert held == [True, True]


class TestDirect:
    """Without systemd there is no PID to look at: the report alone tells."""

    @pytest.fixture(autouse=True)
    def _direct(self, host):
        host.services.name = "direct"

    def test_it_restarts_and_commits(self, host):
        _installed(host, unit={"active": "active", "enabled": "", "file": ""})
        host.supervise()
        assert host.restarts() == ["restart"]
        assert host.last.phase is Phase.COMMITTED

    @pytest.mark.parametrize("secured", [True, False])
    def test_nothing_is_committed_that_may_run_and_was_not_seen_to_restart(self, host, secured):
        """The state is not known, and what is asked for a restart does none."""
        host.services.active = "unknown"
        host.services.report = lambda: None
        host.services.run = lambda: None
        parts = {"way_back": host.secured()} if secured else {}
        _installed(host, unit={"active": "unknown", "enabled": "", "file": ""}, **parts)
        host.supervise()
        assert host.restarts()[0] == "restart"
        assert host.last.phase is Phase.FAILED
        assert "no minion with this extension reported" in host.last.reason

    def test_a_minion_that_did_not_run_is_not_started(self, host):
        host.services.active, host.services.pid, host.engine = "inactive", 0, False
        _installed(host, unit={"active": "inactive", "enabled": "", "file": ""})
        host.supervise()
        assert host.restarts() == []
        assert host.last.phase is Phase.COMMITTED
        assert host.last.reason == "The service does not run, as before."

    def test_a_minion_outside_of_the_service_is_said_to_be_the_old_one(self, host):
        host.services.active, host.services.pid = "inactive", 0
        _installed(host, unit={"active": "inactive", "enabled": "", "file": ""})
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert (
            "a minion runs outside of salt-minion, and continues with its old" in host.last.reason
        )

    def test_a_host_that_cannot_restart_anything(self, host):
        _installed(host)
        host.services.fails = ["restart"] * 10
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "restart failed" in host.last.reason


class TestPackageManager:
    def test_killed_while_it_installed_and_nothing_changed(self, host):
        host.services.refuses = True
        host.keep_tree()
        host.record(Phase.INSTALLING)
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "changed nothing" in host.last.reason
        assert host.restarts() == []
        host.assert_at_peace()

    @pytest.mark.parametrize("secured", [True, False])
    def test_killed_before_its_database_knew_what_it_had_changed(self, host, secured):
        """Files of both versions: the old one comes back, or it is said."""
        way_back = host.secured() if secured else WayBack()
        host.services.refuses = True
        host.packages.installs = host.fix
        host.keep_tree()
        host.tear()
        host.record(Phase.INSTALLING, versions_to=dict(OLD), way_back=way_back)
        host.supervise()
        assert host.last.phase is (Phase.ROLLED_BACK if secured else Phase.FAILED)
        assert f"half done: {host.root}" in host.last.reason
        assert host.torn() is not secured
        assert bool(host.restarts()) is secured
        assert host.store.quarantined() == []
        host.assert_at_peace()

    def test_the_package_manager_of_a_killed_run_is_waited_for(self, host):
        """It is an orphan that goes on: what it does is known when it has ended."""
        host.record(Phase.INSTALLING)
        work = {"busy": True}

        def end():
            host.packages.versions.update(NEW)
            work["busy"] = False

        host.clock.after(40, end)
        host.packages.at_work = lambda: work["busy"]
        host.supervise()
        assert host.clock.passed >= 40
        assert host.last.phase is Phase.COMMITTED
        assert host.last.versions_to == NEW
        assert host.restarts() == ["restart"]

    def test_one_that_hangs_is_waited_for_no_longer_than_that(self, host):
        host.record(Phase.INSTALLING)
        host.packages.at_work = lambda: True
        host.packages.half_done = ["salt"]
        host.supervise()
        assert host.clock.passed < 2 * context.REPAIR_WAIT
        assert host.packages.repaired == 0
        assert host.last.phase is Phase.COMMITTED
        assert host.last.reason == "half done: salt"
        host.assert_at_peace()

    @pytest.mark.parametrize("phase", [Phase.INSTALLING, Phase.DELIVERING])
    def test_half_done_is_completed_before_the_restart(self, host, phase):
        _installed(host, phase, reason="half done: salt", progress=HALF_DONE)
        host.packages.half_done = ["salt"]
        host.packages.repairs = host.packages.half_done.clear
        host.supervise()
        assert host.packages.repaired == 1
        assert "completed" in host.last.reason
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    def test_a_package_that_stays_behind_the_others_is_half_done(self, host):
        """zypper calls rpm for each package. If it is killed, one of them is complete."""

        def repairs():
            host.packages.half_done.clear()
            host.packages.versions.update(salt=NEW["salt"], **{"salt-minion": OLD["salt-minion"]})

        progress = {"progress": HALF_DONE, "way_back": host.secured()}
        _installed(host, reason="half done: salt", **progress)
        host.packages.half_done = ["salt"]
        host.packages.repairs = repairs
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.last.progress.unfinished == ("salt-minion",)
        assert host.packages.versions == OLD
        host.assert_at_peace()

    @pytest.mark.parametrize("fails", [True, False])
    def test_what_cannot_be_completed_is_tried_a_few_times(self, host, fails):
        def repairs():
            if fails:
                raise CommandError(("dpkg",), "exit status 1", stderr="postinst failed")

        _installed(host, reason="half done: salt", progress=HALF_DONE)
        host.packages.half_done = ["salt"]
        host.packages.repairs = repairs
        host.supervise()
        assert host.packages.repaired == context.REPAIR_ATTEMPTS
        assert host.clock.passed < 60
        assert host.last.progress.unfinished == ("salt",)
        assert host.last.reason == "half done: salt"
        host.assert_at_peace()

    def test_without_a_package_manager_the_minion_is_restarted_to_be_sure(self, host):
        _installed(host, Phase.INSTALLING)
        host.supervise(manager=None)
        assert host.restarts() == ["restart"]
        assert host.last.phase is Phase.COMMITTED


class TestFailingPrograms:
    @pytest.mark.parametrize("verb", ["release", "restart"])
    def test_a_program_that_fails_once_is_called_again(self, host, verb):
        _installed(host)
        host.services.fails = [verb]
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    def test_one_that_fails_always_is_a_reason(self, host):
        _installed(host)
        host.services.fails = ["restart"] * 10
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "restart failed" in host.last.reason
        assert "safeupdate.restart" in host.last.reason
        assert host.restarts() == ["restart"] * supervisor._STEP_ATTEMPTS
        host.assert_at_peace()

    def test_what_cannot_be_written_is_raised_and_the_service_is_let_go(self, host, monkeypatch):
        _installed(host)

        def full(update):
            raise RecordError("disk full")

        monkeypatch.setattr(host.store, "save", full)
        with pytest.raises(RecordError):
            host.supervise()
        assert not host.services.refuses
        monkeypatch.undo()
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        host.assert_at_peace()

    def test_what_an_update_is_done_with_cannot_be_had_and_the_service_is_let_go(self, host):
        _installed(host, request=Request(extension=True))

        def extension(update):
            raise CommandError(("python3",), "exit status 1", stderr="No module named pip")

        with pytest.raises(CommandError):
            host.supervise(extension=extension)
        assert not host.services.refuses

    @pytest.mark.parametrize("fails", ["release", "lock", "remove", ""])
    def test_what_fails_of_the_clean_up_holds_up_nothing_else(self, host, monkeypatch, fails):
        """Nor does a database that nobody can write to: nothing of it is kept there."""

        def failing(*args):
            raise (CommandError(("apt-mark",), "exit status 1") if fails == "lock" else OSError(5))

        host.keep_tree()
        host.services.refuses = True
        update = replace(host.record(Phase.FAILED), staged=Staged(version_locked=("salt",)))
        if fails == "release":
            monkeypatch.setattr(host.services, "release", failing)
        elif fails == "lock":
            monkeypatch.setattr(host.packages, "lock_versions", failing)
        elif fails == "remove":
            monkeypatch.setattr(linked_copy, "remove", failing)
        for path in pathlib.Path(host.settings.state_dir).glob("safeupdate.db*"):
            path.unlink()
        pathlib.Path(host.settings.database).mkdir()
        ending.clean(
            host.context([host.lock(name) for name in ("jobs", "drain", "packages", "update")]),
            update,
        )
        done = {
            "release": not host.services.refuses,
            "lock": host.packages.locked == {"salt"},
            "remove": os.listdir(host.root.parent) == ["salt"],
        }
        assert done == {name: name != fails for name in done}


class TestWaitingRestart:
    def _wait(self, host, **changes):
        return host.record(
            Phase.WAITING, kind="restart", versions_from={}, reason="config", **changes
        )

    def test_it_restarts_at_once_where_nothing_runs(self, host):
        self._wait(host)
        host.supervise()
        assert host.phases() == ["waiting", "delivering", "restarting", "watching", "committed"]
        assert host.restarts() == ["restart"]
        host.assert_at_peace()

    @pytest.mark.parametrize("phase", [Phase.WAITING, Phase.RESTARTING])
    def test_it_is_known_that_no_job_of_that_minion_ran_any_more(self, host, phase):
        before = host.generations.serving().process
        host.record(phase, kind="restart", jid="2026")
        host.supervise()
        assert host.generations.of(before).idle == "2026"

    @pytest.mark.parametrize("column", ["report", "masters", "probe", "refused", "idle", "changed"])
    def test_damage_of_what_was_known_of_the_minion_ends_with_it(self, host, column):
        before = host.generations.serving().process
        with host.store.transaction() as db:
            db.execute(f"UPDATE generations SET {column} = '{{' WHERE process = ?", (before,))
        self._wait(host)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.generations.serving().process != before
        assert getattr(host.generations.serving(), column) == (
            host.generations.report() if column == "report" else None
        )

    def test_that_is_not_known_of_one_that_could_not_be_restarted(self, host):
        before = host.generations.serving().process
        host.services.fails = ["restart"] * 10
        host.record(Phase.RESTARTING, kind="restart", jid="2026")
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert host.generations.of(before).idle is None

    def test_a_job_that_the_restart_does_not_wait_for_may_be_ended_by_it(self, host):
        before = host.generations.serving().process
        job = host.job()
        host.clock.after(500, job.close)
        host.record(Phase.RESTARTING, kind="restart", jid="2026")
        host.supervise()
        assert host.generations.of(before).idle is None

    def test_a_requester_that_died_is_no_reason_not_to(self, host):
        host.record(Phase.REQUESTED, kind="restart")
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_it_waits_for_jobs_and_holds_no_new_ones_at_first(self, host):
        self._wait(host)
        job = host.job()
        held = []
        host.clock.after(30, lambda: held.append(locks.held(host.settings.run_dir, "drain")))
        host.clock.after(50, job.close)
        host.supervise()
        assert held == [False]
        assert 50 <= host.clock.passed < 60

    def test_then_it_holds_new_jobs_and_then_lets_them_in_again(self, host):
        """A job that takes longer gets its time, and the others do not wait for it for ever."""
        self._wait(host)
        job = host.job()
        held = {}
        for seconds in (30, 90, 150, 210):
            host.clock.after(
                seconds,
                lambda at=seconds: held.update({at: locks.held(host.settings.run_dir, "drain")}),
            )
        host.clock.after(220, job.close)
        host.supervise()
        assert held == {30: False, 90: True, 150: False, 210: True}
        assert host.last.phase is Phase.COMMITTED

    def test_a_job_that_hangs_holds_up_the_others_ever_more_seldom(self, host, caplog):
        self._wait(host)
        job = host.job()
        held = []

        def look():
            held.append(locks.held(host.settings.run_dir, "drain"))
            if len(held) < 64:
                host.clock.after(30, look)
            else:
                job.close()

        host.clock.after(30, look)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        # Half of the first 240 seconds, and ever less of the others.
        assert sum(held[:8]) == 4
        assert sum(held[8:]) <= len(held[8:]) // 8
        assert not any(held[-20:])
        assert "safeupdate.jobs" in caplog.text

    def test_it_is_cancelled_while_it_waits(self, host):
        update = self._wait(host)
        host.job()
        host.clock.after(
            10, lambda: host.store.save(update.advance(Phase.CANCELLED, reason="cancelled"))
        )
        host.supervise()
        assert host.restarts() == []
        assert host.last.phase is Phase.CANCELLED
        assert host.clock.passed < 11

    def test_a_job_from_before_the_extension_was_there_is_waited_for(self, host):
        with forked(lambda hear, say: hear()) as older:
            from saltext_safeupdate.core.host import processes

            self._wait(host, processes={str(older.pid): processes.identity(older.pid)})
            host.clock.after(10, older.kill)
            host.supervise()
        assert 10 <= host.clock.passed < 20

    def test_another_process_with_its_pid_is_not_waited_for(self, host):
        self._wait(host, processes={str(os.getpid()): f"-:{os.getpid()}:1"})
        host.supervise()
        assert host.clock.passed < 10

    def test_a_service_that_does_not_run_is_not_started(self, host):
        host.services.active, host.services.pid = "inactive", 0
        self._wait(host)
        host.record(
            Phase.WAITING, kind="restart", unit={"active": "inactive", "enabled": "enabled"}
        )
        host.supervise()
        assert host.restarts() == []
        assert host.last.phase is Phase.COMMITTED


class TestSomebodyStartsIt:
    @pytest.mark.parametrize("looks", range(8))
    def test_after_any_look_at_a_minion_that_has_died(self, host, looks):
        """What comes up then is the new one; systemd starts nothing that is starting."""
        _installed(host)
        services, seen, asked = host.services, [], host.services.start
        services.active, services.pid = "failed", 0
        look = services.state

        def state(unit):
            found = look(unit)
            seen.append(found)
            if len(seen) == looks + 1 and found.active == "failed":
                services._up()
            return found

        services.state = state
        services.start = lambda unit: None if services.active == "active" else asked(unit)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last.reason
        assert host.clock.passed < 60
        host.assert_at_peace()


class TestAfterAPowerCut:
    def test_watching_goes_on_although_the_deadline_has_passed(self, host):
        watched = Watched(boot=processes.boot(), until=host.clock.monotonic() - 1000)
        _installed(host, Phase.WATCHING, watched=watched, former=Former(pid=1))
        host.clock.after(10, host.report)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.restarts() == []
        host.assert_at_peace()

    def test_a_minion_that_the_boot_has_started_is_not_restarted_once_more(self, host):
        former = Former(pid=77, invocation="before", report=0.5)
        _installed(host, Phase.RESTARTING, progress=Progress(restarted=1.0), former=former)
        host.supervise()
        assert host.restarts() == []
        assert host.last.phase is Phase.COMMITTED


SCENARIOS = {
    "nothing installed": lambda host: host.record(Phase.WAITING),
    "interrupted, unchanged": lambda host: (host.keep_tree(), host.record(Phase.INSTALLING)),
    "interrupted, changed": lambda host: _installed(host, Phase.INSTALLING),
    "half done": lambda host: (
        _installed(host, progress=HALF_DONE),
        setattr(host.packages, "half_done", ["salt"]),
        setattr(host.packages, "repairs", host.packages.half_done.clear),
    ),
    "stepping": lambda host: (host.steps("3007-a"), _installed(host)),
    "delivering": _installed,
    "watching": lambda host: (
        _installed(host, Phase.WATCHING, former=Former(pid=1), progress=Progress(restarted=1.0)),
        host.report(),
    ),
    "rolling back": lambda host: host.record(Phase.ROLLING_BACK),
    "masked": lambda host: (
        _installed(host, unit={"active": "active", "enabled": "masked", "file": "/x"}),
        setattr(host.services, "enabled", "masked"),
    ),
    "restart": lambda host: host.record(Phase.WAITING, kind="restart", versions_from={}),
    "restart, requested": lambda host: host.record(Phase.REQUESTED, kind="restart"),
    "a restart is owed": lambda host: host.record(Phase.WAITING, owed=Owed(reason="config")),
}
RESTARTS = {
    "nothing installed": 0,
    "interrupted, unchanged": 0,
    "watching": 0,
    "rolling back": 0,
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 10))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_any_write_of_the_record_then_recovered(host, scenario, kill_at, when):
    SCENARIOS[scenario](host)
    enabled = host.services.enabled
    killed = host.kill_then_recover(kill_at, when)
    assert host.services.active == "active"
    assert host.services.enabled == enabled
    assert host.packages.half_done == []
    wanted = RESTARTS.get(scenario, 1)
    if scenario == "a restart is owed" and host.last.kind == "update":
        # The one write that is lost: the supervisor died between the two records.
        wanted = 0
    # Killed between an act and its record, the act is done once more, and does no harm.
    again = 1 if wanted and killed and when == "before" else 0
    assert wanted <= len(host.restarts()) <= wanted + again


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_range_of_writes_covers_every_scenario(host, scenario):
    SCENARIOS[scenario](host)
    before = host.store.writes
    host.supervise()
    assert host.store.writes - before <= 9


class TestMain:
    @pytest.fixture(autouse=True)
    def _logs_nowhere(self, monkeypatch):
        monkeypatch.setattr(supervisor.logging, "basicConfig", lambda **kwargs: None)

    @pytest.fixture
    def run(self, host, tmp_path):
        """Run the program with the directories of the host; return its exit status."""

        def run(state_dir=host.settings.state_dir, **kwargs):
            path = tmp_path / "settings.json"
            path.write_text(json.dumps({"state_dir": state_dir, "run_dir": host.settings.run_dir}))
            return program.main([str(path)], **kwargs)

        return run

    def test_the_program_gets_its_settings(self, host, tmp_path):
        check = ("/usr/bin/check", "--password", "secret")
        settings = Settings(state_dir=str(tmp_path), health_check=check, jobs_timeout=5.0)
        argv = watchdog.argv(settings, host.services, "/opt/salt/bin/python3")
        python, *options, program, given = argv
        assert python == "/opt/salt/bin/python3"
        assert "-I" in options
        assert os.path.isfile(program)
        assert watchdog.read_settings(given) == settings
        assert "secret" not in str(argv)
        assert os.stat(given).st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("text", [None, "{", '{"jobs_timeout": -1}'])
    def test_settings_that_are_none_end_it(self, tmp_path, text):
        path = tmp_path / "settings.json"
        if text is not None:
            path.write_text(text)
        assert program.main([str(path)]) == 1

    def test_what_an_armed_watchdog_names_stays(self, host, tmp_path):
        armed = Settings(state_dir=str(tmp_path), jobs_timeout=5.0)
        path = watchdog.argv(armed, host.services, "python3")[-1]
        launcher = str(tmp_path / "supervisor-old" / "core" / "launch.py")
        for name in ("supervisor-old", "supervisor-older"):
            (tmp_path / name).mkdir()
        host.services.arm(watchdog.unit(armed), ["python3", launcher, path])
        watchdog.argv(replace(armed, jobs_timeout=6.0), host.services, "python3")
        newest = watchdog.argv(replace(armed, jobs_timeout=7.0), host.services, "python3")[-1]
        kept = sorted(str(each) for each in tmp_path.glob("settings-*"))
        assert kept == sorted([path, newest])
        assert os.path.isdir(tmp_path / "supervisor-old")
        assert not os.path.isdir(tmp_path / "supervisor-older")
        watchdog.disarm(armed, host.services)
        watchdog.argv(armed, host.services, "python3")
        assert len(list(tmp_path.glob("settings-*"))) == 1
        assert not os.path.isdir(tmp_path / "supervisor-old")

    def test_a_second_supervisor_ends_at_once(self, host, run):
        assert host.lock("supervisor").try_exclusive()
        _installed(host)
        assert run(sole_timeout=0.0) == 0
        assert host.last.phase is Phase.DELIVERING

    def test_an_error_is_an_exit_status_so_that_systemd_starts_it_again(
        self, host, run, monkeypatch, caplog
    ):
        monkeypatch.setattr(program.init_system, "detect", lambda: host.services)
        monkeypatch.setattr(program.wiring, "package_manager", lambda: host.packages)
        (host.root / "file").write_text("")
        assert run(str(host.root / "file")) == 1
        assert "cannot be" in caplog.text

    @pytest.mark.parametrize("what", ["a request", "a restart"])
    def test_what_is_asked_for_while_it_ends_is_done(self, host, run, monkeypatch, what):
        """Who asks sees that a supervisor lives, so it is that one's."""
        monkeypatch.setattr(program.init_system, "detect", lambda: host.services)
        monkeypatch.setattr(program.wiring, "package_manager", lambda: host.packages)
        _installed(host, Phase.COMMITTED)
        before, runs, really = host.last, [], supervisor.Supervisor.run

        def another(acting):
            runs.append(locks.held(host.settings.run_dir, "supervisor"))
            if len(runs) == 1:
                really(acting)
                assert not acting.is_needed()
                if what == "a request":
                    later = replace(before, id="next", phase=Phase.REQUESTED)
                    host.store.save(replace(later, created=before.created + 1))
                else:
                    host.store.set_fact(RESTART, Owed(reason="config"))
            elif what == "a request":
                host.store.save(host.last.advance(Phase.CANCELLED, reason="-"))
            else:
                host.store.drop_fact(RESTART)

        monkeypatch.setattr(supervisor.Supervisor, "run", another)
        assert run() == 0
        assert runs == [True, True]
        assert not locks.held(host.settings.run_dir, "supervisor")
        assert not locks.held(host.settings.run_dir, "update")

    def test_nothing_to_do_is_a_success(self, host, run, monkeypatch):
        monkeypatch.setattr(program.init_system, "detect", lambda: host.services)
        monkeypatch.setattr(program.wiring, "package_manager", lambda: host.packages)
        _installed(host, Phase.COMMITTED)
        assert run() == 0
        assert not host.services.refuses


def test_versions_are_told(host):
    _installed(host)
    host.supervise()
    assert (host.last.versions_from, host.last.versions_to) == (OLD, NEW)


class TestDelay:
    """A restart that is to come at another time than those of the other minions."""

    def _waiting(self, host):
        return host.record(Phase.WAITING, kind="restart", progress=Progress(delay=40.0))

    def test_it_waits_at_first_and_jobs_run_meanwhile(self, host):
        self._waiting(host)
        drained = []
        host.clock.after(39, lambda: drained.append(locks.held(host.settings.run_dir, "drain")))
        host.supervise()
        assert host.clock.passed >= 40
        assert (host.last.phase, drained) == (Phase.COMMITTED, [False])

    def test_the_end_may_come_while_the_record_is_read(self, host, monkeypatch):
        self._waiting(host)
        get = type(host.store).get

        def slowly(store, update_id):
            host.clock.work(45)
            return get(store, update_id)

        monkeypatch.setattr(type(host.store), "get", slowly)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_it_can_be_called_off_meanwhile(self, host):
        update = self._waiting(host)
        host.clock.after(5, lambda: host.store.save(update.advance(Phase.CANCELLED)))
        host.supervise()
        assert host.clock.passed < 10
        assert (host.last.phase, host.restarts()) == (Phase.CANCELLED, [])
