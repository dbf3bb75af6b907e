"""What is not set up right, each problem by itself."""

import os
from types import SimpleNamespace

import pytest

from saltext_safeupdate import hooks
from saltext_safeupdate.admin import check
from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.phase import Phase
from tests.support.factory import record


def _codes(made):
    return [problem["code"] for problem in check.check(made)]


def test_nothing_is_found_where_all_is_well(made):
    assert check.check(made) == []
    record(made, Phase.COMMITTED)
    assert check.check(made) == []


def test_configuration(made):
    made.opts["safeupdate"]["job_timeout"] = 1
    (problem,) = check.check(made)
    assert problem["code"] == "configuration"
    assert "safeupdate:job_timeout" in problem["problem"]


@pytest.mark.parametrize("executors", [None, [], ["direct_call"], "direct_call"])
def test_executor(made, executors):
    made.opts["module_executors"] = executors
    assert _codes(made) == ["executor"]


@pytest.mark.parametrize("executors", [["safeupdate"], ["sudo", "safeupdate"], "safeupdate"])
def test_executor_last(made, executors):
    made.opts["module_executors"] = executors
    assert _codes(made) == ["executor-last"]


@pytest.mark.parametrize("engines", [None, [], [{"other": {}}], {"other": {}}])
def test_engine(made, engines):
    made.opts["engines"] = engines
    assert _codes(made) == ["engine"]


@pytest.mark.parametrize("engines", [["safeupdate"], {"safeupdate": {}}, [{"safeupdate": {}}]])
def test_every_way_to_write_an_engine(made, engines):
    made.opts["engines"] = engines
    assert check.check(made) == []


def test_hooks_that_are_nowhere(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    assert _codes(made) == ["hooks"]


def test_hooks_that_only_this_job_has(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
    assert _codes(made) == ["hooks"]


@pytest.mark.parametrize(
    "more", [{"__cli": "salt-call"}, {"__cli": "venv-salt-call"}, {"multiprocessing": False}]
)
def test_hooks_of_this_process_where_it_is_the_main_one(made, monkeypatch, more):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
    made.opts.update(more)
    assert check.check(made) == []


def test_hooks_that_stood_down_say_why(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    monkeypatch.setattr(hooks, "stood_down", lambda: "This Salt is not known.", raising=False)
    (problem,) = check.check(made)
    assert (problem["code"], problem["problem"]) == ("hooks", "This Salt is not known.")
    assert "Install a version" in problem["fix"]


def test_an_unknown_salt(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    monkeypatch.setattr(hooks, "_stood_down", ["This Salt is not known: it differs."])
    (problem,) = check.check(made)
    assert problem["code"] == "hooks"
    assert problem["problem"] == "This Salt is not known: it differs."
    assert "Install a version" in problem["fix"]


def test_package_manager(made):
    made.manager = None
    assert _codes(made) == ["package-manager"]


def test_own_packages_that_nobody_knows(made):
    made.found = Own(frozenset(), False)
    assert _codes(made) == ["own-packages"]


def test_own_packages_that_are_configured_and_not_installed(made):
    made.found = Own(frozenset({"salt", "nosuch"}), True)
    (problem,) = check.check(made)
    assert problem["code"] == "own-packages"
    assert "nosuch" in problem["problem"]
    assert "salt," not in problem["problem"]


def test_own_packages_that_cannot_be_asked_for(made):
    made.found = CommandError(("dpkg-query",), "exit status 2", stderr="broken")
    (problem,) = check.check(made)
    assert problem["code"] == "own-packages"
    assert "broken" in problem["problem"]


def test_half_done(made):
    made.manager.half_done = ["salt-minion"]
    assert _codes(made) == ["half-done"]


def test_service(made):
    made.services.enabled = ""
    assert _codes(made) == ["service"]


def test_state_dir(made):
    record(made, Phase.COMMITTED)
    os.chmod(made.settings.state_dir, 0o755)
    (problem,) = check.check(made)
    assert problem["code"] == "state-dir"
    assert "0755" in problem["problem"]


def test_space(made, monkeypatch):
    record(made, Phase.COMMITTED)
    full = SimpleNamespace(f_bavail=250, f_frsize=4096)
    monkeypatch.setattr(check.os, "statvfs", lambda path: full)
    (problem,) = check.check(made)
    assert problem["code"] == "space"
    assert "1000 kB free" in problem["problem"]


def test_database(made):
    os.makedirs(made.settings.database, mode=0o700)
    os.chmod(made.settings.state_dir, 0o700)
    assert _codes(made) == ["database"]


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_interrupted(made, phase):
    record(made, phase)
    assert _codes(made) == ["interrupted"]


@pytest.mark.parametrize("name", ["supervisor", "update"])
def test_what_somebody_works_on_is_not_interrupted(made, name):
    record(made, Phase.INSTALLING)
    holder = locks.acquire(made.settings.run_dir, name, "")
    assert check.check(made) == []
    holder.close()


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.ROLLED_BACK])
def test_last_update(made, phase):
    record(made, phase, reason="no space left")
    (problem,) = check.check(made)
    assert problem["code"] == "last-update"
    assert "no space left" in problem["problem"]


@pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.POSTPONED])
def test_other_ends_are_no_problems(made, phase):
    record(made, phase)
    assert check.check(made) == []


def test_inhibited(made):
    record(made, Phase.COMMITTED)
    made.services.refuses = True
    assert _codes(made) == ["inhibited"]


def test_inhibited_by_an_update_that_is_under_way(made):
    record(made, Phase.INSTALLING)
    made.services.refuses = True
    holder = locks.acquire(made.settings.run_dir, "update", "")
    assert check.check(made) == []
    holder.close()


def test_several_at_once(made):
    made.opts.update(module_executors=[], engines=[])
    made.manager.half_done = ["salt"]
    assert _codes(made) == ["executor", "engine", "half-done"]


def test_every_entry_says_how_to_fix_it(made):
    made.opts.update(module_executors=[], engines=[])
    for problem in check.check(made):
        assert set(problem) == {"code", "problem", "fix"}
        assert all(problem.values())


def test_locks_that_cannot_be_used(made, tmp_path):
    record(made, Phase.WAITING)
    (tmp_path / "run").write_text("not a directory")
    (problem,) = check.check(made)
    assert problem["code"] == "locks"
    assert "Jobs run as without safeupdate" in problem["problem"]
    assert "run_dir" in problem["fix"]


def test_locks_of_another_user_than_the_minion(made):
    made.opts["user"] = "nobody"
    assert _codes(made) == ["locks"]


def test_a_database_that_cannot_be_made(made, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (problem,) = check.check(made)
    assert problem["code"] == "database"
    assert "cannot be written" in problem["problem"]
