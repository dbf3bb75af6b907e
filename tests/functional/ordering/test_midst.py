"""A run with a reboot or a restart in its midst, by Salt's real state engine."""

from types import SimpleNamespace

import pytest

from saltext_safeupdate.admin.updates import inside
from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.ledger import State
from saltext_safeupdate.core.jobs.suspension import Suspension
from saltext_safeupdate.this_host import Host
from tests.support.midst import KEY, Run
from tests.support.minion import Minion, hooked


@pytest.fixture
def run(tmp_path, monkeypatch):
    with hooked(Minion(tmp_path)) as minion:
        yield Run(minion, tmp_path, monkeypatch)


def test_a_run_goes_on_behind_a_reboot(run):
    waits = run.suspended(run.chain(timeout=300, message="new kernel"))
    assert run.done() == ["one"]
    assert run.asked == ["new kernel"]
    assert (waits.process, waits.timeout) == (processes.identity(1), 300)
    run.goes_on(waits.process)
    results = run.attempt(run.chain(timeout=300, message="new kernel"))
    assert run.done() == ["2"]
    assert run.asked == ["new kernel"], "once"
    assert [ret["result"] for ret in results.values()] == [True] * 3
    assert list(results["boot"]["changes"]) == ["boot"]
    assert "continued after" in results["boot"]["comment"]
    assert results["one"]["__resumed__"]
    assert sorted(ret["__run_num__"] for ret in results.values()) == [0, 1, 2]


def test_what_follows_sees_that_it_has_rebooted(run):
    content = {**run.chain(), "watch": run.cmd("w", {"onchanges": [{"safeupdate": "boot"}]})}
    waits = run.suspended(content)
    run.goes_on(waits.process)
    run.attempt(content)
    assert run.done() == ["2", "w"]


def test_a_condition_that_the_reboot_has_changed_is_not_asked_again(run, tmp_path):
    (tmp_path / "needed").touch()
    content = run.chain(onlyif=f"test -e {tmp_path}/needed")
    waits = run.suspended(content)
    (tmp_path / "needed").unlink()
    run.goes_on(waits.process)
    assert run.attempt(content)["boot"]["changes"]


@pytest.mark.parametrize("condition", [{"unless": "true"}, {"onlyif": "false"}])
def test_without_need_it_does_not_reboot(run, condition):
    results = run.attempt(run.chain(**condition))
    assert (run.done(), run.asked) == (["one", "2"], [])
    assert results["boot"]["result"] is True


def test_a_system_that_does_not_go_down_fails_the_state_and_the_run_goes_on(run):
    content = {
        **run.chain(timeout=300),
        "needs": run.cmd("needs", {"require": [{"safeupdate": "boot"}]}),
    }
    run.suspended(content)
    run.goes_on()
    results = run.attempt(content)
    assert run.asked == ["safeupdate: state boot"], "not again"
    assert run.done() == ["2"]
    assert results["boot"]["result"] is False
    assert "did not go down within 300 s" in results["boot"]["comment"]
    assert results["needs"]["result"] is False


def test_a_run_may_have_several_reboots(run):
    content = {
        "one": run.cmd("one"),
        "first": {"safeupdate.rebooted": []},
        "two": run.cmd("two"),
        "second": {"safeupdate.rebooted": []},
        "three": run.cmd("three"),
    }
    for word in ("one", "two"):
        waits = run.suspended(content)
        assert run.done() == [word]
        run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["three"]
    assert len(run.asked) == 2
    assert all(ret["result"] for ret in results.values())


def test_a_reboot_that_cannot_be_asked_for_fails_the_state_alone(run):
    def refuse(message):
        raise CommandError(("systemctl",), "exit status 1")

    run.minion.services.reboot = refuse
    results = run.attempt(run.chain())
    assert run.done() == ["one", "2"]
    assert results["boot"]["result"] is False
    assert "exit status 1" in results["boot"]["comment"]
    assert run.ledger.full(KEY).awaits == ""
    assert not [tag for tag in run.ledger.chunks(KEY) if "rebooted" in tag]


def test_a_process_that_is_ended_by_the_shutdown_itself_goes_on_behind_it(run):
    """It could not write any more that it has ended."""

    def ends(message):
        raise SystemExit

    run.minion.services.reboot = ends
    with pytest.raises(SystemExit):
        run.attempt(run.chain())
    found = run.ledger.full(KEY)
    assert found.state is State.RUNNING
    run.goes_on(Suspension.of(found.awaits).process)
    assert run.attempt(run.chain())["boot"]["result"] is True
    assert run.done() == ["2"]


def test_in_test_mode_it_says_that_it_would(run):
    results = run.attempt(run.chain(), test=True)
    assert run.asked == []
    assert results["boot"]["result"] is None
    assert run.ledger.full(KEY).awaits == ""


def test_what_is_to_be_done_before_it_is_done_before_it_and_once(run):
    content = {"drain": run.cmd("drain", {"prereq": [{"safeupdate": "boot"}]}), **run.chain()}
    waits = run.suspended(content)
    assert run.done() == ["drain", "one"]
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2"]
    assert all(ret["result"] for ret in results.values())


def test_parallel_states_end_before_it_and_do_not_run_again(run):
    content = {
        "beside": run.cmd("start", {"parallel": True}, then=f"sleep 1; echo end >> {run.trace}"),
        **run.chain(),
    }
    waits = run.suspended(content)
    assert sorted(run.done()) == ["end", "one", "start"]
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2"]
    assert results["beside"]["__resumed__"]
    assert results["beside"]["result"] is True


def test_the_own_packages_change_last_also_behind_it(run):
    content = {"minion": {"pkg.latest": [{"name": "salt-minion"}]}, **run.chain()}
    waits = run.suspended(content)
    assert run.minion.database.installed["salt-minion"] == "1"
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2"]
    assert results["minion"]["changes"]["salt-minion"] == {"old": "1", "new": "2"}
    assert run.minion.database.installed["salt-minion"] == "2"


def test_a_run_inside_a_state_goes_on_behind_it_too(run):
    run.minion.sls("inner", run.chain())
    content = {
        "zero": run.cmd("zero"),
        "outer": {"module.run": [{"state.sls": [{"mods": "inner"}]}]},
        "last": run.cmd("last"),
    }
    run.minion.opts["use_superseded"] = ["module.run"]
    waits = run.suspended(content)
    assert run.done() == ["zero", "one"]
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2", "last"]
    assert all(ret["result"] for ret in results.values())


def test_it_is_refused_behind_other_functions_that_would_be_called_again(run, caplog):
    run.minion.sls("inner", run.chain())
    first = run.cmd("first")["cmd.run"][0]["name"]
    shell = {"cmd.run": [{"cmd": first}, {"python_shell": True}]}
    functions = [shell, {"state.sls": [{"mods": "inner"}]}]
    content = {"outer": {"module.run": functions}, "last": run.cmd("last")}
    run.minion.opts["use_superseded"] = ["module.run"]
    results = run.attempt(content)
    assert run.asked == []
    assert results["outer"]["result"] is False
    # Salt tells of the inner run only that it has failed; why is in its log.
    assert "Give each of its functions a state of its own" in caplog.text
    assert run.done() == ["first", "one", "2", "last"]


@pytest.mark.parametrize(
    ("given", "opts", "says"),
    [
        ({"parallel": True}, {}, "parallel"),
        ({}, {"multiprocessing": False}, "multiprocessing"),
        ({"timeout": 0}, {}, "'timeout' must be"),
        ({"timeout": "soon"}, {}, "'timeout' must be"),
    ],
)
def test_where_it_is_refused_nothing_is_done(run, given, opts, says):
    run.minion.opts.update(opts)
    results = run.attempt(run.chain(**given))
    assert run.asked == []
    assert results["boot"]["result"] is False
    assert says in results["boot"]["comment"]
    assert run.done() == ["one", "2"]


@pytest.mark.parametrize("given", [{"may_go_back": False}, {"begin": False, "may_go_back": False}])
def test_only_a_job_that_a_master_published_goes_on(run, given):
    results = run.attempt(run.chain(), **given)
    assert run.asked == []
    assert "only a job that a master published" in results["boot"]["comment"]


def test_inside_a_transaction_and_on_transactional_systems_another_state_does_it(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Host, "activation", SimpleNamespace(by_boot=True))
        system = run.attempt(run.chain())["boot"]
        patch.setattr(inside, "here", lambda: True)
        transaction = run.attempt(run.chain(), begin=False)["boot"]
    assert run.asked == []
    for ret in (system, transaction):
        assert ret["result"] is False
        assert "transactional_update.rebooted" in ret["comment"]


class TestRestart:
    @pytest.fixture
    def content(self, run):
        return {
            "one": run.cmd("one"),
            "restart": {"safeupdate.restarted": [{"now": True}]},
            "two": run.cmd("two"),
        }

    def test_a_run_goes_on_behind_a_restart_of_the_minion(self, run, content):
        waits = run.suspended(content)
        assert run.done() == ["one"]
        assert waits.process == run.main
        run.minion.services.join()
        assert run.minion.journal("minion restarts") == [("minion restarts",)]
        run.main = f"{processes.boot()}:4711:1"
        run.goes_on(waits.process)
        results = run.attempt(content)
        assert run.done() == ["two"]
        assert results["restart"]["changes"]["minion"]["new"] == "PID 4711"
        run.minion.services.join()
        assert len(run.minion.journal("minion restarts")) == 1

    def test_a_minion_that_does_not_restart_fails_the_state(self, run, content):
        run.suspended(content)
        run.goes_on()
        results = run.attempt(content)
        assert results["restart"]["result"] is False
        assert "did not restart within 600 s" in results["restart"]["comment"]
        assert run.done() == ["two"]

    def test_it_restarts_if_what_it_watches_has_changed(self, run, content):
        content["restart"]["safeupdate.restarted"].append({"watch": [{"cmd": "one"}]})
        waits = run.suspended(content)
        run.goes_on(waits.process)
        assert run.attempt(content)["restart"]["changes"]
        assert run.done() == ["two"]

    def test_it_does_not_restart_if_that_has_not_changed(self, run, content):
        content["one"]["cmd.run"].append({"unless": "true"})
        content["restart"]["safeupdate.restarted"].append({"watch": [{"cmd": "one"}]})
        results = run.attempt(content)
        assert run.done() == ["two"]
        assert results["restart"]["changes"] == {}

    def test_in_test_mode_it_says_that_it_would(self, run, content):
        results = run.attempt(content, test=True)
        assert results["restart"]["result"] is None
        assert run.minion.record() is None
