"""An update that was asked for: from the request to its end, and every way out of it."""

import dataclasses
import os

import pytest

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    LockHeldError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.generations import replaced
from saltext_safeupdate.core.generations.replaced import Row
from saltext_safeupdate.core.host import copy_names, linked_copy, locks, room
from saltext_safeupdate.core.prepare import known, resolution
from saltext_safeupdate.core.prepare.staging import Staging
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.supervisor import watchdog
from tests.support.simulated import Killed

from ..conftest import NEW, OLD

ALL = [
    *("requested", "checking", "staging", "waiting", "installing"),
    *("delivering", "stepping", "restarting", "watching"),
]


def test_it_checks_stages_waits_installs_restarts_watches_and_commits(host):
    host.ask()
    host.supervise()
    assert host.phases() == [*ALL, "committed"]
    assert host.packages.versions == NEW
    assert (host.last.versions_from, host.last.versions_to) == (OLD, NEW)
    assert host.restarts() == ["restart"]
    assert host.kept() == ["u1"], "the way back stays"
    host.assert_at_peace()


def test_everything_is_ready_when_it_begins_to_install(host):
    host.ask()
    seen = []

    def look(files):
        copy = copy_names.of([str(host.root)], host.last.id)[str(host.root)]
        seen.extend(locks.held(host.settings.run_dir, name) for name in ("jobs", "drain", "update"))
        seen.append(host.services.refuses)
        seen.append(os.path.isfile(os.path.join(copy, "modules", "test.py")))
        seen.append(watchdog.unit(host.settings) in host.services.armed)
        seen.append(all(os.path.exists(path) for _, _, path, _ in host.last.way_back.files))
        assert [file.version for file in files] == [NEW["salt"], NEW["salt-minion"]]

    host.packages.installs = look
    host.supervise()
    assert seen == [True] * 7


def test_where_nothing_restarts_the_minion_nothing_is_changed(host):
    host.services.hinders = "this host has neither systemd nor the program 'service'"
    host.ask("3007.15")
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "neither systemd nor" in host.last.reason
    assert "Nothing was changed." in host.last.reason
    assert host.packages.versions == OLD
    host.assert_at_peace()


def test_where_packages_cannot_write_nothing_is_changed(host, monkeypatch):
    monkeypatch.setattr(room, "is_read_only", lambda directory: True)
    host.ask("3007.15")
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "/usr is read-only" in host.last.reason
    assert "Nothing was changed." in host.last.reason
    assert host.packages.versions == OLD
    host.assert_at_peace()


def test_where_nothing_installs_packages_it_says_how_to_update(host, monkeypatch):
    host.ask("3007.15")
    monkeypatch.setattr(host, "packages", None)
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "'safeupdate:slots_source'" in host.last.reason
    assert "Nothing was changed." in host.last.reason


def test_a_new_version_that_has_no_service_is_none(host):
    """Its unit may have gone into another package."""
    host.ask()
    file = host.services.file
    host.packages.installs = lambda files: setattr(
        host.services, "file", file if files[0].version == OLD["salt"] else None
    )
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK, host.last
    assert host.services.active == "active"
    assert {row.version for row in host.store.quarantined()} == set(NEW.values())
    host.assert_at_peace()


def test_the_installed_version_is_no_update(host):
    host.ask("3006.28")
    host.supervise()
    assert host.phases() == ["requested", "checking", "committed"]
    assert host.restarts() == []
    host.assert_at_peace()


@pytest.mark.parametrize(
    ("version", "kwargs", "reason"),
    [
        ("3099", {}, "not on offer"),
        ("3006.28", {}, None),
        (None, {"back": True}, "not kept on this minion"),
    ],
)
def test_what_cannot_be_is_refused(host, version, kwargs, reason):
    host.ask(version, **kwargs)
    host.supervise()
    if reason is not None:
        assert host.last.phase is Phase.FAILED
        assert reason in host.last.reason
    assert host.last.reason.count("Nothing was changed") <= 1
    assert host.packages.versions == OLD
    host.assert_at_peace()


def test_an_older_version_only_where_that_is_meant(host):
    host.packages.versions.update(NEW)
    host.ask("3006.28", resolved=False)
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "allow_downgrade=True" in host.last.reason
    host.record(Phase.REQUESTED, id="u2", versions_from=dict(NEW))
    host.store.save(host.last.advance(Phase.CANCELLED))
    host.clock.now += 10
    update = host.ask("3006.28", allow_downgrade=True)
    assert update.phase is Phase.REQUESTED
    host.supervise()
    assert host.store.get("u1").phase is Phase.COMMITTED
    assert host.packages.versions == OLD


class TestWaiting:
    def test_for_idle_it_waits_as_long_as_it_takes(self, host):
        host.ask()
        job = host.job()
        host.clock.after(500, job.close)
        host.supervise()
        assert host.clock.passed >= 500
        assert host.last.phase is Phase.COMMITTED

    def test_now_holds_new_jobs_and_is_postponed_after_a_while(self, host):
        host.ask(when="now")
        host.job()
        held = []
        host.clock.after(30, lambda: held.append(locks.held(host.settings.run_dir, "drain")))
        host.supervise()
        assert held == [True]
        assert host.last.phase is Phase.POSTPONED
        assert 60 <= host.clock.passed < 62
        assert host.packages.versions == OLD
        assert host.kept() == []

    @pytest.mark.parametrize("stood_still", [0, 1000])
    def test_now_begins_when_the_jobs_have_ended(self, host, stood_still):
        host.ask(when="now")
        job = host.job()

        def wake():
            host.clock.work(stood_still)
            host.clock.after(20, job.close)

        host.clock.after(30, wake)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_it_is_cancelled_while_it_waits(self, host):
        update = host.ask()
        host.job()
        host.clock.after(
            10,
            lambda: host.store.save(
                host.store.get(update.id).advance(Phase.CANCELLED, reason="cancelled")
            ),
        )
        host.supervise()
        assert host.last.phase is Phase.CANCELLED
        assert host.packages.versions == OLD
        assert host.kept() == []

    def test_a_newer_request_is_taken_up_by_the_same_supervisor(self, host):
        first = host.ask("3007.15")
        job = host.job()

        def supersede():
            host.store.save(host.store.get(first.id).advance(Phase.CANCELLED))
            host.record(Phase.REQUESTED, id="u2", request=first.request, code=first.code, jid="")

        host.clock.after(10, supersede)
        host.clock.after(20, job.close)
        host.supervise()
        assert host.store.get("u1").phase is Phase.CANCELLED
        assert (host.last.id, host.last.phase) == ("u2", Phase.COMMITTED)

    @pytest.mark.parametrize("in_time", [True, False])
    @pytest.mark.parametrize("phase", [Phase.RESTARTING, Phase.WATCHING])
    def test_it_comes_after_a_restart_that_has_begun(self, host, phase, in_time):
        restart = host.record(phase, kind="restart")
        supervisor = host.lock("supervisor")
        assert supervisor.try_exclusive()

        def end():
            host.store.save(restart.advance(Phase.FAILED))
            supervisor.close()

        wanted = resolution.request("3008.3")
        if in_time:
            host.clock.after(30, end)
            asked = host.request_update(wanted, launch=host.supervise)
            assert host.store.get(restart.id).phase is Phase.FAILED
            assert host.store.get(asked.id).phase is Phase.COMMITTED
        else:
            with pytest.raises(LockHeldError, match=r"A restart.*is under way.*try again"):
                host.request_update(wanted)
            assert host.clock.passed >= host.settings.jobs_timeout


def test_a_salt_that_the_extension_does_not_know_is_not_installed(host, monkeypatch):
    seen = []

    def unknown(rows, targets, files, place, run):
        seen.append((rows, targets))
        return ["salt.minion.Minion is not there"]

    monkeypatch.setattr(known, "unknown", unknown)
    row = Row("salt.minion", "Minion", "x", ("self",))
    replaced.note(host.store, [row])
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert seen == [([row], NEW)]
    assert "does not know Salt 3007.15" in host.last.reason
    assert "newer than" in host.last.reason
    assert host.packages.versions == OLD
    assert host.restarts() == []
    host.assert_at_peace()


class TestStaging:
    def test_what_is_staged_is_not_fetched_again(self, host):
        host.ask()
        Staging(host.settings.state_dir, host.store, host.packages).stage(NEW)
        host.packages.download = lambda *args: pytest.fail("fetched")
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert Staging(host.settings.state_dir, host.store, host.packages).staged() == {}

    def _alter(self, host):
        host.ask()
        files = Staging(host.settings.state_dir, host.store, host.packages).stage(NEW)
        with open(files[0].path, "a", encoding="utf-8") as file:
            file.write("!")

    def test_an_altered_file_is_fetched_anew_and_told_of(self, host):
        self._alter(host)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "were altered and were staged again" in host.last.reason
        assert "not the file that was recorded" in host.last.reason
        assert host.packages.versions == NEW

    def test_one_that_cannot_be_fetched_is_refused_and_nothing_changed(self, host):
        self._alter(host)

        def download(*args):
            raise CommandError(("fetch",), "exit status 100", stderr="no route to host")

        host.packages.download = download
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "not the file that was recorded" in host.last.reason
        assert "no route to host" in host.last.reason
        assert host.packages.versions == OLD
        assert host.restarts() == []
        host.assert_at_peace()

    def test_one_that_is_altered_while_it_waits_too(self, host):
        host.ask()
        job = host.job()

        def alter():
            path = host.last.staged.files[0][2]
            with open(path, "a", encoding="utf-8") as file:
                file.write("!")
            job.close()

        host.clock.after(10, alter)
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert host.packages.versions == OLD
        host.assert_at_peace()

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_a_download_is_tried_again(self, host, times):
        host.ask()
        fails = [CommandError(("apt-get",), "no route to host")] * times
        fetch = host.packages.download

        def download(targets, directory):
            if fails:
                raise fails.pop()
            return fetch(targets, directory)

        host.packages.download = download
        host.supervise()
        assert host.last.phase is (Phase.COMMITTED if times < 3 else Phase.FAILED)
        host.assert_at_peace()

    @pytest.mark.parametrize("rollback", ["required", "optional"])
    def test_without_a_way_back_it_starts_only_where_that_is_allowed(self, host, rollback):
        object.__setattr__(host.settings, "rollback", rollback)
        host.ask()
        host.packages.secures = False
        host.supervise()
        if rollback == "required":
            assert host.last.phase is Phase.FAILED
            assert "no copy can be had" in host.last.reason
            assert host.packages.versions == OLD
        else:
            assert host.last.phase is Phase.COMMITTED
            assert "no copy can be had" in host.last.way_back.missing
        host.assert_at_peace()

    @pytest.mark.parametrize("staged", [True, False])
    def test_without_room_for_the_way_back_nothing_is_copied(self, host, staged):
        """What is installed may be larger than the update that was fetched ahead."""
        host.ask()
        if staged:
            Staging(host.settings.state_dir, host.store, host.packages).stage(NEW)
        host.packages.takes_to_secure = 1 << 60
        host.packages.secure = lambda *_: pytest.fail("copied")
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "no room" in host.last.reason
        assert "Free " in host.last.reason
        assert host.packages.versions == OLD
        assert host.kept() == []
        assert bool(Staging(host.settings.state_dir, host.store, host.packages).staged()) is staged
        host.assert_at_peace()

    def test_version_locks_are_as_before(self, host):
        host.packages.locked = {"salt"}
        host.ask()
        host.packages.installs = lambda files: host.packages.locked.clear()
        host.supervise()
        assert host.packages.locked == {"salt"}


class TestInstalling:
    def test_a_package_manager_that_changes_nothing_and_fails(self, host):
        def installs(files):
            raise CommandError(("dpkg",), "exit status 2", stderr="no space left")

        host.ask()
        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "no space left" in host.last.reason
        assert host.restarts() == []
        assert host.store.quarantined() == []
        host.assert_at_peace()

    def test_one_that_fails_among_the_files_is_rolled_back(self, host):
        """Its database has the old version still, which is no reason to call it unchanged."""
        host.ask()

        def installs(files):
            if files[0].version != NEW["salt"]:
                return host.fix(files)
            host.tear()
            raise CommandError(("rpm",), "was killed")

        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert not host.torn()
        host.assert_at_peace()

    def test_what_somebody_changed_after_a_supervisor_was_killed_is_none_of_it(
        self, host, monkeypatch
    ):
        """It had kept the old code, and not written down yet that it begins."""
        save = host.store.save

        def killed(update):
            if update.phase is Phase.INSTALLING:
                raise Killed
            return save(update)

        host.packages.write_ahead = False
        host.ask()
        monkeypatch.setattr(host.store, "save", killed)
        with pytest.raises(Killed):
            host.supervise()
        monkeypatch.undo()
        assert copy_names.of([str(host.root)], host.last.id)
        patched = host.root / "modules" / "test.py"
        patched.unlink()
        patched.write_text("patched by hand")

        def installs(files):
            raise CommandError(("rpm",), "exit status 1", stderr="no space left")

        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert patched.read_text() == "patched by hand"
        assert host.restarts() == []
        host.assert_at_peace()

    def test_one_that_leaves_it_half_done_is_rolled_back(self, host):
        def installs(files):
            if files[0].version == NEW["salt"]:
                host.packages.versions["salt"] = NEW["salt"]
                host.packages.half_done = ["salt"]
                raise CommandError(("dpkg",), "exit status 1", stderr="postinst failed")

        host.ask()
        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert "postinst failed" in host.last.reason
        assert host.packages.versions == OLD
        assert host.packages.half_done == []
        assert {row.version for row in host.store.quarantined()} == {NEW["salt"]}
        host.assert_at_peace()

    def test_one_that_fails_once_is_called_again(self, host):
        fails = [CommandError(("dpkg",), "killed")]

        def installs(files):
            if fails:
                raise fails.pop()

        host.ask()
        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.COMMITTED


class TestMaster:
    """Its word on a job is asked for afterwards where it was to be had before."""

    def _running(self, host):
        host.master = True
        host.reported(master=True)

    def test_heard_before_and_afterwards(self, host):
        self._running(host)
        host.answering()
        host.ask()
        host.supervise()
        assert host.last.progress.master is True
        assert host.last.phase is Phase.COMMITTED

    def test_heard_before_and_not_afterwards(self, host):
        self._running(host)
        host.answering()
        host.packages.installs = lambda files: setattr(host.clock, "each_second", lambda: None)
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.packages.versions == OLD
        host.assert_at_peace()

    def test_heard_although_the_minion_was_restarted_while_it_was_asked(self, host):
        """Whoever restarts it, nobody answers for the one that is gone."""
        self._running(host)
        gone, startup = host.generations.serving().process, 40

        def restarted():
            host.services.begin_restart(host.settings.service)
            host.reported(master=True)
            host.answering()

        host.clock.after(startup, restarted)
        host.ask()
        host.supervise()
        assert host.generations.of(gone).probe is not None
        assert host.last.progress.master is True
        assert host.last.phase is Phase.COMMITTED

    def test_away_before_and_afterwards(self, host):
        self._running(host)
        host.ask()
        host.supervise()
        assert host.last.progress.master is False
        assert host.last.phase is Phase.COMMITTED


class TestBack:
    def _updated(self, host):
        host.ask()
        host.supervise()
        host.clock.now += 10

    def _ask_back(self, host, **kwargs):
        request = dataclasses.replace(host.last.request, back=True)
        changes = {"request": request, "code": host.last.code, "versions_from": dict(NEW), **kwargs}
        host.record(Phase.REQUESTED, id="u2", jid="", **changes)

    def test_it_installs_what_was_kept(self, host):
        self._updated(host)
        host.packages.offers = {}
        host.packages.download = lambda *args: pytest.fail("fetched")
        self._ask_back(host)
        host.supervise()
        assert (host.last.id, host.last.phase) == ("u2", Phase.COMMITTED)
        assert host.packages.versions == OLD
        assert host.kept() == ["u2"], "now the newer one is the previous"
        host.assert_at_peace()

    def test_what_was_left_by_request_is_not_installed_by_itself(self, host):
        self._updated(host)
        self._ask_back(host)
        host.supervise()
        assert {row.package: row.version for row in host.store.quarantined()} == NEW

    def test_a_version_in_quarantine_is_refused(self, host):
        host.store.quarantine(NEW, "u0", "it did not start")
        host.ask(resolved=False)
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "The cause, of update u0: it did not start." in host.last.reason
        assert "safeupdate.unquarantine" in host.last.reason
        host.store.clear(host.store.quarantined())
        host.clock.now += 10
        host.record(
            Phase.REQUESTED, id="u2", request=host.last.request, code=host.last.code, jid=""
        )
        host.supervise()
        assert host.last.phase is Phase.COMMITTED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 15))
@pytest.mark.parametrize("healthy", [True, False])
def test_killed_at_any_write_of_the_record_then_recovered(host, kill_at, when, healthy):
    host.ask()
    host.packages.installs = lambda files: host.services.alive()
    if not healthy:
        host.services.dies_while = lambda: host.packages.versions == NEW
    host.kill_then_recover(kill_at, when)
    wanted = (Phase.COMMITTED, NEW) if healthy else (Phase.ROLLED_BACK, OLD)
    assert (host.last.phase, host.packages.versions) == wanted
    assert host.services.active == "active"
    assert len(host.kept()) == (1 if healthy else 0)


def test_the_range_of_writes_covers_it(host):
    host.ask()
    host.services.dies_while = lambda: host.packages.versions == NEW
    before = host.store.writes
    host.supervise()
    assert host.store.writes - before <= 14


def test_copies_of_an_earlier_update_are_removed(host):
    copy = linked_copy.make([str(host.root)], "older")[str(host.root)]
    host.ask()
    host.supervise()
    assert not os.path.exists(copy)


@pytest.mark.parametrize("error", [SafeUpdateError, InputError, VerificationError])
@pytest.mark.parametrize(
    ("method", "phases", "end", "said"),
    [
        ("install", ["installing"], "failed", "Nothing was changed."),
        ("install", ["installing", "rolling_back"], "failed", "Nothing was changed."),
        ("install", ["watching", "rolling_back"], "failed", "By hand: "),
        ("installed", ["installing"], "rolled_back", ""),
        ("installed", ["watching", "rolling_back"], "failed", "By hand: "),
    ],
)
def test_whatever_an_installer_raises_the_update_ends(
    host, monkeypatch, method, phases, end, said, error
):
    """A supervisor that ends by an error is started again, and would end by it again."""
    call = getattr(host.packages, method)

    def failing(*args):
        if host.last.phase.value in phases:
            raise error("It is not known what is there.")
        return call(*args)

    host.ask()
    monkeypatch.setattr(host.packages, method, failing)
    if "watching" in phases:
        host.services.report = lambda: None
    host.supervise()
    assert host.last.phase.value == end
    assert "It is not known what is there." in host.last.reason
    assert said in host.last.reason
    assert not host.services.refuses
