"""The execution module and the reports behind it, with a real record on disk."""

import os
from types import SimpleNamespace

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate import factory, hooks
from saltext_safeupdate.admin import report
from saltext_safeupdate.core.errors import CommandError, InputError, TransitionError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.parts import Request
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import initiator, requests
from saltext_safeupdate.factory import Factory
from saltext_safeupdate.modules import safeupdate as module
from tests.support.simulated import FakePackages, FakeServices

VERSIONS = {"salt": "3006.28", "salt-minion": "3006.28"}


class SimulatedFactory(Factory):
    """The real one, with a simulated package manager and init system."""

    manager = None
    services = None
    stop_guard = None
    found = Own(frozenset(VERSIONS), False)

    def own(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def running_jobs(self, but=""):
        return ["5 test.sleep"]


@pytest.fixture
def opts(tmp_path):
    return {
        "id": "minion",
        "__role": "minion",
        "cachedir": str(tmp_path / "cache"),
        "module_executors": ["safeupdate", "direct_call"],
        "engines": [{"safeupdate": {}}],
        "safeupdate": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
    }


@pytest.fixture
def made(opts, monkeypatch):
    """Return a factory of a minion that is set up well, in the process of one of its jobs."""
    made = SimulatedFactory(opts)
    made.manager = FakePackages(**VERSIONS)
    made.services = FakeServices()
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    return made


def _record(made, phase, **changes):
    return made.store.save(
        Update(**{"id": "u1", "kind": "update", "phase": phase, "created": 1.0, **changes})
    )


def _codes(made):
    return [problem["code"] for problem in report.check(made)]


class TestCheck:
    def test_nothing_is_found_where_all_is_well(self, made):
        assert report.check(made) == []
        _record(made, Phase.COMMITTED)
        assert report.check(made) == []

    def test_configuration(self, made):
        made.opts["safeupdate"]["job_timeout"] = 1
        (problem,) = report.check(made)
        assert problem["code"] == "configuration"
        assert "safeupdate:job_timeout" in problem["problem"]

    @pytest.mark.parametrize("executors", [None, [], ["direct_call"], "direct_call"])
    def test_executor(self, made, executors):
        made.opts["module_executors"] = executors
        assert _codes(made) == ["executor"]

    @pytest.mark.parametrize("executors", [["safeupdate"], ["sudo", "safeupdate"], "safeupdate"])
    def test_executor_last(self, made, executors):
        made.opts["module_executors"] = executors
        assert _codes(made) == ["executor-last"]

    @pytest.mark.parametrize("engines", [None, [], [{"other": {}}], {"other": {}}])
    def test_engine(self, made, engines):
        made.opts["engines"] = engines
        assert _codes(made) == ["engine"]

    @pytest.mark.parametrize("engines", [["safeupdate"], {"safeupdate": {}}, [{"safeupdate": {}}]])
    def test_every_way_to_write_an_engine(self, made, engines):
        made.opts["engines"] = engines
        assert report.check(made) == []

    def test_hooks_that_are_nowhere(self, made, monkeypatch):
        monkeypatch.setattr(hooks, "_installed", {})
        assert _codes(made) == ["hooks"]

    def test_hooks_that_only_this_job_has(self, made, monkeypatch):
        monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
        assert _codes(made) == ["hooks"]

    @pytest.mark.parametrize(
        "more", [{"__cli": "salt-call"}, {"__cli": "venv-salt-call"}, {"multiprocessing": False}]
    )
    def test_hooks_of_this_process_where_it_is_the_main_one(self, made, monkeypatch, more):
        monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
        made.opts.update(more)
        assert report.check(made) == []

    def test_an_unknown_salt(self, made, monkeypatch):
        monkeypatch.setattr(hooks, "_installed", {})
        monkeypatch.setattr(hooks, "_stood_down", ["This Salt is not known: it differs."])
        (problem,) = report.check(made)
        assert problem["code"] == "hooks"
        assert problem["problem"] == "This Salt is not known: it differs."
        assert "Install a version" in problem["fix"]

    def test_package_manager(self, made):
        made.manager = None
        assert _codes(made) == ["package-manager"]

    def test_own_packages_that_nobody_knows(self, made):
        made.found = Own(frozenset(), False)
        assert _codes(made) == ["own-packages"]

    def test_own_packages_that_are_configured_and_not_installed(self, made):
        made.found = Own(frozenset({"salt", "nosuch"}), True)
        (problem,) = report.check(made)
        assert problem["code"] == "own-packages"
        assert "nosuch" in problem["problem"]
        assert "salt," not in problem["problem"]

    def test_own_packages_that_cannot_be_asked_for(self, made):
        made.found = CommandError(("dpkg-query",), "exit status 2", stderr="broken")
        (problem,) = report.check(made)
        assert problem["code"] == "own-packages"
        assert "broken" in problem["problem"]

    def test_half_done(self, made):
        made.manager.half_done = ["salt-minion"]
        assert _codes(made) == ["half-done"]

    def test_service(self, made):
        made.services.enabled = ""
        assert _codes(made) == ["service"]

    def test_state_dir(self, made):
        _record(made, Phase.COMMITTED)
        os.chmod(made.settings.state_dir, 0o755)
        (problem,) = report.check(made)
        assert problem["code"] == "state-dir"
        assert "0755" in problem["problem"]

    def test_space(self, made, monkeypatch):
        _record(made, Phase.COMMITTED)
        full = SimpleNamespace(f_bavail=250, f_frsize=4096)
        monkeypatch.setattr(report.os, "statvfs", lambda path: full)
        (problem,) = report.check(made)
        assert problem["code"] == "space"
        assert "1000 kB free" in problem["problem"]

    def test_database(self, made):
        os.makedirs(made.settings.database, mode=0o700)
        os.chmod(made.settings.state_dir, 0o700)
        assert _codes(made) == ["database"]

    @pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
    def test_interrupted(self, made, phase):
        _record(made, phase)
        assert _codes(made) == ["interrupted"]

    @pytest.mark.parametrize("name", ["supervisor", "update"])
    def test_what_somebody_works_on_is_not_interrupted(self, made, name):
        _record(made, Phase.INSTALLING)
        holder = locks.acquire(made.settings.run_dir, name, "")
        assert report.check(made) == []
        holder.close()

    @pytest.mark.parametrize("phase", [Phase.FAILED, Phase.ROLLED_BACK])
    def test_last_update(self, made, phase):
        _record(made, phase, reason="no space left")
        (problem,) = report.check(made)
        assert problem["code"] == "last-update"
        assert "no space left" in problem["problem"]

    @pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.POSTPONED])
    def test_other_ends_are_no_problems(self, made, phase):
        _record(made, phase)
        assert report.check(made) == []

    def test_inhibited(self, made):
        _record(made, Phase.COMMITTED)
        made.services.refuses = True
        assert _codes(made) == ["inhibited"]

    def test_inhibited_by_an_update_that_is_under_way(self, made):
        _record(made, Phase.INSTALLING)
        made.services.refuses = True
        holder = locks.acquire(made.settings.run_dir, "update", "")
        assert report.check(made) == []
        holder.close()

    def test_several_at_once(self, made):
        made.opts.update(module_executors=[], engines=[])
        made.manager.half_done = ["salt"]
        assert _codes(made) == ["executor", "engine", "half-done"]

    def test_every_entry_says_how_to_mend_it(self, made):
        made.opts.update(module_executors=[], engines=[])
        for problem in report.check(made):
            assert set(problem) == {"code", "problem", "fix"}
            assert all(problem.values())


class TestStatus:
    def test_idle_where_there_never_was_an_update(self, made):
        found = report.status(made)
        assert found["phase"] == "idle"
        assert found["installed"] == VERSIONS
        assert found["draining"] is False
        assert found["undelivered"] == 0
        assert not made.store.exists()

    def test_the_newest_update(self, made):
        _record(made, Phase.WAITING, jid="5", reason="why", versions_from=VERSIONS)
        found = report.status(made)
        assert (found["phase"], found["update"], found["jid"]) == ("waiting", "u1", "5")
        assert (found["from"], found["to"], found["reason"]) == (VERSIONS, {}, "why")

    def test_draining(self, made):
        drain = locks.acquire(made.settings.run_dir, "drain", "")
        assert report.status(made)["draining"] is True
        assert report.drain(made) == {"draining": True, "running": ["5 test.sleep"], "held": []}
        drain.close()


class TestHistory:
    def test_every_phase_newest_update_first(self, made):
        _record(made, Phase.WAITING)
        _record(made, Phase.POSTPONED, reason="busy")
        _record(made, Phase.COMMITTED, id="u2", created=2.0)
        newest, oldest = report.history(made, 20)
        assert newest["update"] == "u2"
        assert [(each["phase"], each["reason"]) for each in oldest["phases"]] == [
            ("waiting", ""),
            ("postponed", "busy"),
        ]
        assert len(report.history(made, 1)) == 1

    def test_none(self, made):
        assert report.history(made, 20) == []

    @pytest.mark.parametrize("limit", [0, -1, "5", None, True, 1.5])
    def test_a_limit_that_is_none(self, made, limit):
        with pytest.raises(InputError, match="limit"):
            report.history(made, limit)


class TestCancel:
    def test_a_restart_that_waits(self, made):
        _record(made, Phase.WAITING, kind="restart")
        assert report.cancel(made)["phase"] == "cancelled"
        assert made.store.latest().phase is Phase.CANCELLED
        assert not locks.held(made.settings.run_dir, "update")

    def test_nothing_is_under_way(self, made):
        with pytest.raises(TransitionError, match="nothing was changed"):
            report.cancel(made)
        _record(made, Phase.COMMITTED)
        with pytest.raises(TransitionError, match="nothing was changed"):
            report.cancel(made)

    @pytest.mark.parametrize(
        ("kind", "phase"), [("update", Phase.WAITING), ("restart", Phase.RESTARTING)]
    )
    def test_what_has_begun_goes_on(self, made, kind, phase):
        _record(made, phase, kind=kind)
        with pytest.raises(TransitionError, match=phase.value):
            report.cancel(made)
        assert made.store.latest().phase is phase

    def test_an_update_that_was_asked_for_and_has_not_begun(self, made):
        _record(made, Phase.STAGING, request=Request())
        assert report.cancel(made)["phase"] == "cancelled"

    def test_a_restart_that_begins_just_now_is_not_cancelled_behind_its_back(
        self, made, monkeypatch
    ):
        monkeypatch.setattr(initiator, "_WRITE_TIMEOUT", 0.0)
        _record(made, Phase.WAITING, kind="restart")
        supervisor = locks.acquire(made.settings.run_dir, "update", "")
        with pytest.raises(locks.LockHeldError, match="under way"):
            report.cancel(made)
        assert made.store.latest().phase is Phase.WAITING
        supervisor.close()


class TestModule:
    @pytest.fixture(autouse=True)
    def _loaded(self, made, monkeypatch):
        monkeypatch.setattr(module, "__opts__", made.opts, raising=False)
        monkeypatch.setattr(module, "Factory", lambda opts: made)

    def test_it_is_always_there(self):
        assert module.__virtual__() == "safeupdate"

    def test_it_gives_what_the_reports_say(self, made):
        assert module.status()["phase"] == "idle"
        assert module.check() == []
        assert module.history() == []
        assert module.drain()["draining"] is False
        assert module.jobs()["running"] == ["5 test.sleep"]
        assert module.accepted(["1"]) == {}

    @pytest.mark.parametrize(
        "call",
        [
            lambda: module.history(limit="x"),
            module.cancel,
            lambda: module.accepted("1"),
        ],
    )
    def test_errors_are_salts(self, call):
        with pytest.raises(CommandExecutionError):
            call()

    def test_a_database_that_cannot_be_read_is_an_error(self, made):
        os.makedirs(made.settings.database)
        with pytest.raises(CommandExecutionError, match="cannot be used"):
            module.status()

    def test_restart_asks_for_one(self, made, monkeypatch):
        asked = []

        def restart(by, *, jid, reason):
            asked.append((by.versions(), jid, reason))
            return Update(id="u1", kind="restart", phase=Phase.WAITING)

        monkeypatch.setattr(requests, "restart", restart)
        found = module.restart(reason="config")
        assert asked == [(VERSIONS, "", "config")]
        assert found["phase"] == "waiting"
        assert "as soon as every job has ended" in found["comment"]


def test_the_real_factory_builds_everything_from_the_opts(opts, monkeypatch):
    monkeypatch.setattr(factory.wiring, "package_manager", lambda: FakePackages(**VERSIONS))
    monkeypatch.setattr(factory.init_system, "detect", FakeServices)
    real = Factory(opts)
    assert real.settings.state_dir == opts["safeupdate"]["state_dir"]
    assert real.store.path == real.ledger.path == real.settings.database
    assert real.own() == Own(frozenset(VERSIONS), False)
    assert all(os.path.isabs(root) for root in real.roots())
    by = real.transaction(print, "5").by
    assert by.installation.own == ("salt", "salt-minion")
    assert by.jobs.processes() == {}
