"""What is not set up right, each problem by itself."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import salt.config

import saltext_safeupdate
from saltext_safeupdate import hooks, patches
from saltext_safeupdate.admin.setup.set_up import SetUp
from saltext_safeupdate.admin.status import check
from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.extensions import ourselves
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.host.engine_at_rest import Rest
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.parts import Boot
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from tests.support.simulated import FakeTransactional
from tests.support.this_host import record


def _found(made, answer="3008.3"):
    """Return the problems of a minion whose master gives this *answer*."""
    return check.check(made, {"publish.runner": lambda function: answer})


def _codes(made):
    return [problem["code"] for problem in _found(made)]


def test_nothing_is_found_where_all_is_well(made):
    assert _found(made) == []
    record(made, Phase.COMMITTED)
    assert _found(made) == []


def test_configuration(made):
    made.opts["safeupdate"]["job_timeout"] = 1
    (problem,) = _found(made)
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


@pytest.mark.parametrize(
    "executors", ["[safeupdate, direct_call]", ["a", {"b": 1}], {"safeupdate": {}}, 5]
)
def test_executors_that_are_no_list_of_names(made, executors):
    made.opts["module_executors"] = executors
    assert _codes(made) == ["executor"]


@pytest.mark.parametrize(
    ("before", "seen"), [(["splay"], True), (["direct_call"], False), (["splay", "sudo"], False)]
)
def test_executors_that_come_first(made, before, seen):
    made.opts["module_executors"] = [*before, "safeupdate", "direct_call"]
    assert _codes(made) == ([] if seen else ["executor-order"])


def test_a_set_up_that_hides_what_has_been_added_since(made, tmp_path):
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(tmp_path / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
    }
    SetUp(made, None, True).carry_out()
    assert _found(made) == []
    (tmp_path / "minion").write_text("engines: [a]")
    (problem,) = _found(made)
    assert problem["code"] == "set-up-outdated"
    assert str(tmp_path / "minion.d") in problem["problem"]
    SetUp(made, None, True).carry_out()
    assert _found(made) == []
    (tmp_path / "minion").write_text("engines: [")
    (problem,) = _found(made)
    assert problem["code"] == "set-up"
    assert "'state.single safeupdate.enabled name=safeupdate'" in problem["fix"]


def test_right_after_the_set_up_a_restart_is_pending_and_that_is_all(made, tmp_path, monkeypatch):
    """It was told three times over, each with the advice to set the minion up."""
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(tmp_path / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
        "module_executors": ["direct_call"],
        "engines": [],
    }
    monkeypatch.setattr(hooks, "_installed", {})
    assert _codes(made) == ["executor", "engine", "hooks"]
    SetUp(made, None, True).carry_out()
    (problem,) = _found(made)
    assert problem["code"] == "restart-pending"
    assert check.quick(made) == [problem["problem"]]
    made.opts |= {"module_executors": ["safeupdate", "direct_call"], "engines": ["safeupdate"]}
    assert _codes(made) == ["hooks"]


@pytest.mark.parametrize("option", ["executor_dirs", "engines_dirs"])
@pytest.mark.parametrize("named", [None, [], ["/nowhere"], "text"])
def test_nothing_stands_in_for_a_package_that_is_gone(made, option, named):
    made.opts[option] = named
    (problem,) = _found(made)
    assert problem["code"] == "stand-in"
    assert "no job at all" in problem["problem"]


def test_stand_ins_that_the_minion_has_not_read_yet(made, tmp_path):
    """It was set up by hand, and the state has run since."""
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(tmp_path / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
    }
    del made.opts["executor_dirs"]
    SetUp(made, None, True).carry_out()
    assert _codes(made) == ["restart-pending"]


def test_a_stand_in_that_was_changed(made, tmp_path):
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(tmp_path / "etc" / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
    }
    SetUp(made, None, True).carry_out()
    assert _found(made) == []
    (changed,) = tmp_path.rglob("safeupdate_executor.py")
    changed.write_text("")
    (problem,) = _found(made)
    assert (problem["code"], str(changed) in problem["problem"]) == ("stand-in", True)


@pytest.mark.parametrize(
    ("text", "named"), [('__version__ = "9.9"\n', "9.9"), (None, "no longer in")]
)
def test_another_version_of_the_extension_on_the_disk(made, monkeypatch, tmp_path, text, named):
    if text:
        (tmp_path / "__init__.py").write_text(text)
    monkeypatch.setattr(ourselves, "home", lambda: str(tmp_path))
    (problem,) = _found(made)
    assert problem["code"] == "extension"
    assert named in problem["problem"]
    assert saltext_safeupdate.__version__ in problem["problem"]


@pytest.mark.parametrize("standing", [Standing.OVERLAPPING, Standing.LEAVING])
def test_an_earlier_minion_says_that_it_is_leaving(made, monkeypatch, tmp_path, standing):
    """Another version of the extension is installed already: that is the next one's."""
    (tmp_path / "__init__.py").write_text('__version__ = "9.9"\n')
    monkeypatch.setattr(ourselves, "home", lambda: str(tmp_path))
    main = processes.identity(os.getppid())
    Generations(made.store).stands(main, standing)
    assert _codes(made) == ["leaving"]
    made.opts["__cli"] = "salt-call"
    assert "leaving" not in _codes(made)
    assert "extension" in _codes(made)
    del made.opts["__cli"]
    Generations(made.store).stands(main, Standing.SERVING)
    assert "leaving" not in _codes(made)


@pytest.mark.parametrize("answer", [{}, "'safeupdate.master_version' is not available", None])
def test_a_master_that_does_not_answer(made, answer):
    (problem,) = _found(made, answer)
    assert problem["code"] == "master"


@pytest.mark.parametrize("option", [{"master_type": "disable"}, {"file_client": "local"}])
def test_a_minion_without_a_master_asks_none(made, option):
    made.opts |= option
    assert _found(made, None) == []


@pytest.mark.parametrize("engines", [None, [], [{"other": {}}], {"other": {}}])
def test_engine(made, engines):
    made.opts["engines"] = engines
    assert _codes(made) == ["engine"]


def test_code_that_was_replaced_below_the_minion_that_runs(made):
    generations = Generations(made.store)
    generations.reports(processes.me(), Report(at=1.0))
    generations.notes_changed(processes.me(), "/usr/lib/libssl.so.3")
    found = {each["code"]: each["problem"] for each in _found(made)}
    assert "/usr/lib/libssl.so.3" in found["code-replaced"]
    with made.store.transaction() as db:
        db.execute("UPDATE generations SET changed = '{'")
    assert "code-replaced" not in _codes(made)
    generations.reports("another boot:1:1", Report(at=2.0))
    generations.notes_changed("another boot:1:1", "/usr/lib/libssl.so.3")
    assert _codes(made) == []


def test_an_engine_that_salt_has_ended(made, tmp_path):
    Generations(made.store).reports(processes.me(), Report(at=1.0))
    assert _codes(made) == ["engine-gone"]
    lock = locks.Lock(made.settings.run_dir, "engine")
    assert lock.try_exclusive()
    assert _codes(made) == []
    now = processes.since_boot()
    Rest(processes.me(), "signs", now, now).write(lock)
    lock.close()
    assert _codes(made) == [], "it rests, and the minion starts it again"
    locks.Lock(made.settings.run_dir, "engine").close()
    (tmp_path / "run" / "engine.lock").write_text("")
    assert _codes(made) == ["engine-gone"]
    Generations(made.store).reports("another boot:1:1", Report(at=2.0))
    assert _codes(made) == []


@pytest.mark.parametrize("engines", [["safeupdate"], {"safeupdate": {}}, [{"safeupdate": {}}]])
def test_every_way_to_write_an_engine(made, engines):
    made.opts["engines"] = engines
    assert _found(made) == []


@pytest.mark.parametrize(
    "engines",
    [
        ["safeupdate", "safeupdate"],
        ["safeupdate", {"other": {}}, {"safeupdate": {}}],
        [{"safeupdate": None}, {"second": {"engine_module": "safeupdate"}}],
    ],
)
def test_an_engine_that_is_named_twice(made, engines):
    made.opts["engines"] = engines
    assert _codes(made) == ["engine-twice"]


def test_hooks_that_are_nowhere(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    (problem,) = _found(made)
    assert problem["code"] == "hooks"
    assert "'state.single safeupdate.enabled name=safeupdate'" in problem["fix"]
    assert "'safeupdate.restart'" in problem["fix"]


def test_hooks_that_only_this_job_has(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
    assert _codes(made) == ["hooks"]


@pytest.mark.parametrize(
    "more", [{"__cli": "salt-call"}, {"__cli": "venv-salt-call"}, {"multiprocessing": False}]
)
def test_hooks_of_this_process_where_it_is_the_main_one(made, monkeypatch, more):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getpid()})
    made.opts.update(more)
    assert _found(made) == []


def test_hooks_that_stood_down_say_why(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    monkeypatch.setattr(hooks, "stood_down", lambda: "This Salt is not known.", raising=False)
    (problem,) = _found(made)
    assert (problem["code"], problem["problem"]) == ("hooks", "This Salt is not known.")
    assert "Install a version" in problem["fix"]


def test_an_unknown_salt(made, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {})
    monkeypatch.setattr(hooks, "_stood_down", ["This Salt is not known: it differs."])
    (problem,) = _found(made)
    assert problem["code"] == "hooks"
    assert problem["problem"] == "This Salt is not known: it differs."
    assert "Install a version" in problem["fix"]


def test_an_error_of_a_hook(made, monkeypatch):
    monkeypatch.setattr(patches, "_troubles", {"salt.x.call": "KeyError: 'jid'"})
    (problem,) = _found(made)
    assert problem["code"] == "hook-error"
    assert "salt.x.call: KeyError: 'jid'" in problem["problem"]


def test_package_manager(made):
    made.manager = None
    assert _codes(made) == ["package-manager"]


def test_own_packages_that_nobody_knows(made):
    made.found = Own(frozenset(), False)
    assert _codes(made) == ["own-packages"]


def test_a_salt_that_is_not_from_packages(made):
    """The interpreter and the unit may be from packages all the same."""
    made.manager.owners = lambda paths: set()
    (problem,) = _found(made)
    assert problem["code"] == "own-packages"
    assert "No package owns Salt's code" in problem["problem"]


def test_own_packages_that_are_configured_and_not_installed(made):
    made.found = Own(frozenset({"salt", "nosuch"}), True)
    (problem,) = _found(made)
    assert problem["code"] == "own-packages"
    assert "nosuch" in problem["problem"]
    assert "salt," not in problem["problem"]


def test_own_packages_that_cannot_be_asked_for(made):
    made.found = CommandError(("dpkg-query",), "exit status 2", stderr="broken")
    (problem,) = _found(made)
    assert problem["code"] == "own-packages"
    assert "broken" in problem["problem"]
    assert "'dpkg --configure -a'" in problem["fix"]
    assert "'safeupdate.check'" in problem["fix"]


def test_half_done(made):
    made.manager.half_done = ["salt-minion"]
    assert _codes(made) == ["half-done"]


def test_service(made):
    made.services.enabled = ""
    assert _codes(made) == ["service"]


def test_state_dir(made):
    record(made, Phase.COMMITTED)
    os.chmod(made.settings.state_dir, 0o755)
    (problem,) = _found(made)
    assert problem["code"] == "state-dir"
    assert "0755" in problem["problem"]


def test_space(made, monkeypatch):
    record(made, Phase.COMMITTED)
    full = SimpleNamespace(f_bavail=250, f_frsize=4096)
    monkeypatch.setattr(check.os, "statvfs", lambda path: full)
    (problem,) = _found(made)
    assert problem["code"] == "space"
    assert "1000 kB free" in problem["problem"]


def test_database(made):
    os.makedirs(made.settings.database, mode=0o700)
    os.chmod(made.settings.state_dir, 0o700)
    (problem,) = _found(made)
    assert problem["code"] == "database"
    assert "'safeupdate:state_dir'" in problem["fix"]


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
def test_interrupted(made, phase):
    record(made, phase)
    assert _codes(made) == ["interrupted"]


@pytest.mark.parametrize("name", ["supervisor", "update"])
def test_what_somebody_works_on_is_not_interrupted(made, name):
    record(made, Phase.INSTALLING)
    holder = locks.acquire(made.settings.run_dir, name, "")
    assert _found(made) == []
    holder.close()


def test_an_update_that_somebody_has_applied(made):
    made.manager = FakeTransactional(**made.manager.versions)
    update = Update(id="u1", kind="update", phase=Phase.WAITING_FOR_BOOT)
    versions = {"salt-minion": "3009.0"}
    boot = Boot(awaits=update.this_boot)
    made.store.save(replace(update, boot=boot, versions_to=versions))
    assert "applied" not in _codes(made)
    made.manager.snapshots.contents[1].update(versions)
    assert "applied" in _codes(made)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.ROLLED_BACK])
def test_last_update(made, phase):
    record(made, phase, reason="no space left")
    (problem,) = _found(made)
    assert problem["code"] == "last-update"
    assert "no space left" in problem["problem"]
    assert "'safeupdate.history'" in problem["fix"]
    assert problem["fix"].endswith("request the update again with 'safeupdate.update'.")
    record(made, phase, id="u2", created=2.0, kind="restart")
    (problem,) = _found(made)
    assert problem["fix"].endswith("request the restart again with 'safeupdate.restart'.")


def test_a_last_update_whose_version_is_in_quarantine(made):
    record(made, Phase.ROLLED_BACK, reason="no answer")
    made.store.quarantine({"salt": "3008.3-1", "salt-minion": "3008.3-1"}, "u1", "no answer")
    made.store.quarantine({"salt": "3008.2-1"}, "u0", "an earlier one")
    (problem,) = _found(made)
    assert "safeupdate.unquarantine \"'3008.3-1'\", and request it" in problem["fix"]
    assert "3008.2" not in problem["fix"]


@pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.POSTPONED])
def test_other_ends_are_no_problems(made, phase):
    record(made, phase)
    assert _found(made) == []


def test_inhibited(made):
    record(made, Phase.COMMITTED)
    made.services.refuses = True
    assert _codes(made) == ["inhibited"]


def test_inhibited_by_an_update_that_is_under_way(made):
    record(made, Phase.INSTALLING)
    made.services.refuses = True
    holder = locks.acquire(made.settings.run_dir, "update", "")
    assert _found(made) == []
    holder.close()


def test_several_at_once(made):
    made.opts.update(module_executors=[], engines=[])
    made.manager.half_done = ["salt"]
    assert _codes(made) == ["executor", "engine", "half-done"]


def test_every_entry_says_how_to_fix_it(made):
    made.opts.update(module_executors=[], engines=[])
    for problem in _found(made):
        assert set(problem) == {"code", "problem", "fix"}
        assert all(problem.values())


def test_locks_that_cannot_be_used(made, tmp_path):
    record(made, Phase.WAITING)
    (tmp_path / "run").write_text("not a directory")
    (problem,) = _found(made)
    assert problem["code"] == "locks"
    assert "Jobs run as without safeupdate" in problem["problem"]
    assert "run_dir" in problem["fix"]


def test_locks_of_another_user_than_the_minion(made):
    made.opts["user"] = "nobody"
    assert _codes(made) == ["locks"]


def test_a_database_that_cannot_be_made(made, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (problem,) = _found(made)
    assert problem["code"] == "database"
    assert "cannot be written" in problem["problem"]
    assert "'safeupdate:state_dir'" in problem["fix"]
