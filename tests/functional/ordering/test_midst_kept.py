"""What a run had done before a restart in its midst stays as it was, whatever it was."""

import pytest
import salt.loader.lazy

from saltext_safeupdate.core.jobs.suspension import Interrupted, Suspended
from tests.support.midst import KEY, Run
from tests.support.minion import Minion, by_id, hooked


@pytest.fixture
def run(tmp_path, monkeypatch):
    with hooked(Minion(tmp_path)) as minion:
        yield Run(minion, tmp_path, monkeypatch)


def behind(run, content, after=None, **kwargs):
    """Have a run go on behind its reboot, with what its states are *after* that."""
    waits = run.suspended(content, **kwargs)
    run.goes_on(waits.process)
    return run.attempt(after or content, **kwargs)


def test_a_state_that_had_failed_does_not_run_again_and_its_requisites_see_that(run):
    content = {
        "bad": run.cmd("bad", then="false"),
        "mend": run.cmd("mend", {"onfail": [{"cmd": "bad"}]}),
        "needs": run.cmd("needs", {"require": [{"cmd": "bad"}]}),
        **run.chain(),
        "late": run.cmd("late", {"onfail": [{"cmd": "bad"}]}),
        "never": run.cmd("never", {"require": [{"cmd": "bad"}]}),
    }
    results = behind(run, content)
    assert run.done() == ["2", "late"]
    wanted = {"bad": False, "mend": True, "needs": False, "late": True, "never": False}
    assert {name: results[name]["result"] for name in wanted} == wanted
    assert "before the minion was restarted" in results["bad"]["comment"]
    numbers = sorted(ret["__run_num__"] for ret in results.values())
    assert numbers == sorted(set(numbers))


def test_a_state_that_had_nothing_to_do_is_not_asked_again(run, tmp_path):
    """The boot may have changed what it looked at."""
    done = tmp_path / "done"
    done.touch()
    content = {"idle": run.cmd("idle", {"unless": f"test -e {done}"}), **run.chain()}
    waits = run.suspended(content)
    done.unlink()
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2"]
    assert results["idle"]["changes"] == {}


def test_a_state_that_the_boot_has_changed_does_not_run_again(run):
    before = {"one": run.cmd("one"), **run.chain()}
    after = {**before, "one": {"cmd.run": [*before["one"]["cmd.run"], {"env": [{"A": "b"}]}]}}
    results = behind(run, before, after)
    assert run.done() == ["2"]
    assert results["one"]["__resumed__"]


def test_the_result_of_a_state_that_is_there_no_more_stays(run):
    before = {"gone": run.cmd("gone", then="false"), **run.chain()}
    after = {name: state for name, state in before.items() if name != "gone"}
    results = behind(run, before, after)
    assert run.done() == ["2"]
    assert results["gone"]["result"] is False


@pytest.mark.parametrize("inside", [True, False])
def test_one_that_must_not_run_twice_goes_on_behind_its_own_reboot(run, inside):
    run.minion.opts["use_superseded"] = ["module.run"]
    once = {"safeupdate_rerun": False}
    content = run.chain(**{} if inside else once)
    if inside:
        run.minion.sls("inner", content)
        content = {"outer": {"module.run": [{"state.sls": [{"mods": "inner"}]}, once]}}
    results = behind(run, content)
    assert run.done() == ["2"]
    assert all(ret["result"] for ret in results.values())


def test_what_had_failed_in_an_inner_run_does_not_run_again(run):
    run.minion.opts["use_superseded"] = ["module.run"]
    run.minion.sls("inner", {"bad": run.cmd("bad", then="false"), **run.chain()})
    content = {
        "zero": run.cmd("zero", then="false"),
        "outer": {"module.run": [{"state.sls": [{"mods": "inner"}]}]},
        "last": run.cmd("last"),
    }
    waits = run.suspended(content)
    assert run.done() == ["zero", "bad", "one"]
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == ["2", "last"]
    assert results["zero"]["result"] is False


def test_a_state_alone_reboots_once_and_returns(run):
    run.begin()
    with pytest.raises(Suspended):
        run.minion.call("state.single", "safeupdate.rebooted", "boot")
    waits = run.put_back()
    run.goes_on(waits.process)
    run.begin()
    results = by_id(run.minion.call("state.single", "safeupdate.rebooted", "boot"))
    assert list(results["boot"]["changes"]) == ["boot"]
    assert len(run.asked) == 1


def test_several_states_of_one_id_go_on_where_they_were(run):
    content = {
        "it": {
            **run.cmd("one", then="false"),
            "safeupdate.rebooted": [{"order": 2}],
            "file.touch": [{"name": str(run.trace.parent / "touched")}, {"order": 3}],
        }
    }
    content["it"]["cmd.run"].append({"order": 1})
    run.minion.sls("several", content)
    run.begin()
    with pytest.raises(Suspended):
        run.minion.call("state.sls_id", "it", "several")
    assert run.done() == ["one"]
    waits = run.put_back()
    run.goes_on(waits.process)
    run.begin()
    results = run.minion.call("state.sls_id", "it", "several")
    assert run.done() == []
    assert sorted(ret["result"] for ret in results.values()) == [False, True, True]


def test_own_packages_that_an_inner_run_has_deferred_change_at_the_end_nevertheless(run):
    run.minion.opts["use_superseded"] = ["module.run"]
    run.minion.sls("inner", {"minion": {"pkg.latest": [{"name": "salt-minion"}]}})
    content = {"outer": {"module.run": [{"state.sls": [{"mods": "inner"}]}]}, **run.chain()}
    behind(run, content)
    assert run.minion.database.installed["salt-minion"] == "2"


def test_a_minion_that_was_to_restart_after_the_run_does_so_if_the_system_did_not_reboot(run):
    watch = {"safeupdate.restarted": [{"watch": [{"cmd": "one"}]}]}
    chain = run.chain()
    content = {"one": chain["one"], "later": watch, "boot": chain["boot"], "two": chain["two"]}
    run.suspended(content)
    run.goes_on()
    assert run.attempt(content)["boot"]["result"] is False
    run.minion.services.join()
    assert run.minion.journal("minion restarts") == [("minion restarts",)]


def test_whether_the_boot_was_worth_it_is_checked_behind_it(run):
    results = behind(run, run.chain(check_cmd=["false"]))
    assert results["boot"]["result"] is False
    assert len(run.asked) == 1


def test_states_whose_names_change_with_each_boot_do_not_reboot_for_ever(run):
    for count in range(3):
        waits = run.suspended({f"boot-{count}": {"safeupdate.rebooted": []}})
        run.goes_on(waits.process)
    results = run.attempt({"boot-3": {"safeupdate.rebooted": []}, "two": run.cmd("two")})
    assert (run.done(), len(run.asked)) == (["two"], 3)
    assert results["boot-3"]["result"] is False
    assert "boot-0, boot-1, boot-2" in results["boot-3"]["comment"]


def test_a_run_whose_records_cannot_be_read_does_not_begin_anew(run):
    waits = run.suspended(run.chain())
    run.goes_on(waits.process)
    with run.ledger.transaction() as db:
        db.execute("UPDATE chunks SET result = x'00ff' WHERE tag LIKE 'results%'")
    with pytest.raises(Interrupted, match="cannot be read"):
        run.attempt(run.chain())
    assert run.done() == []


def test_a_run_whose_records_are_gone_does_not_begin_anew(run):
    waits = run.suspended(run.chain())
    run.goes_on(waits.process)
    run.begin()
    with run.ledger.transaction() as db:
        db.execute("DELETE FROM jobs WHERE key = ?", (KEY,))
        db.execute("DELETE FROM chunks WHERE key = ?", (KEY,))
    with pytest.raises(Interrupted, match="gone"):
        run.minion.apply(run.chain())
    assert run.done() == []


def test_a_state_that_has_run_for_one_that_changed_nothing_keeps_its_result(run):
    """Salt asks the other one again, which has nothing left to do."""
    wants = {"test.fail_with_changes": []}
    content = {
        "drain": run.cmd("drain", {"prereq": [{"test": "wants"}]}, then="false"),
        "wants": wants,
        **run.chain(),
    }
    results = behind(run, content)
    assert run.done() == ["2"]
    assert results["drain"]["result"] is False
    assert results["drain"]["changes"]


def test_a_state_that_others_failed_is_failed_for_those_that_wait_for_it(run):
    """It is the first one, which Salt judges again."""
    content = {
        "first": run.cmd("first", {"require": [{"cmd": "bad"}]}),
        "bad": run.cmd("bad", then="false"),
        **run.chain(),
        "needs": run.cmd("needs", {"require": [{"cmd": "first"}]}),
    }
    results = behind(run, content)
    assert run.done() == ["2"]
    assert [results[name]["result"] for name in ("first", "bad", "needs")] == [False] * 3


def test_a_new_state_that_is_to_come_before_one_that_has_run_is_run(run):
    before = {"wants": {"test.succeed_with_changes": []}, **run.chain()}
    new = {"new": run.cmd("new", {"prereq": [{"test": "wants"}]})}
    results = behind(run, before, {**new, **before})
    assert run.done() == ["new", "2"], "it is new"
    assert "Recursive" not in str(results["new"]["comment"])


def test_whoever_catches_everything_does_not_go_on_before_the_restart(run, monkeypatch):
    """A function that swallows what it does not know had the next states run before the boot."""
    run.minion.opts["use_superseded"] = ["module.run"]
    run.minion.sls("inner", run.chain())
    original = salt.loader.lazy.LoadedFunc.__call__

    def swallows(function, *args, **kwargs):
        if function.name != "state.sls":
            return original(function, *args, **kwargs)
        try:
            return original(function, *args, **kwargs)
        except BaseException:  # noqa: BLE001 (as others do)
            return "swallowed"

    content = {
        "outer": {"module.run": [{"state.sls": [{"mods": "inner"}]}]},
        "last": run.cmd("last"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(salt.loader.lazy.LoadedFunc, "__call__", swallows)
        waits = run.suspended(content)
    assert run.done() == ["one"]
    run.goes_on(waits.process)
    run.attempt(content)
    assert run.done() == ["2", "last"]
    assert len(run.asked) == 1
