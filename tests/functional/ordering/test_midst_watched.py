"""States of ours that watch or listen to others, and what they say if they fail."""

import pytest

from saltext_safeupdate.core.errors import CommandError
from tests.support.midst import Run
from tests.support.minion import Minion, hooked


@pytest.fixture
def run(tmp_path, monkeypatch):
    with hooked(Minion(tmp_path)) as minion:
        yield Run(minion, tmp_path, monkeypatch)


def refuse(message):
    raise CommandError(("systemctl",), "exit status 1")


@pytest.mark.parametrize("requisite", ["watch", "watch_any"])
def test_it_reboots_if_what_it_watches_has_changed(run, requisite):
    content = run.chain(**{requisite: [{"cmd": "one"}]})
    waits = run.suspended(content)
    assert (run.done(), len(run.asked)) == (["one"], 1)
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert (run.done(), len(run.asked)) == (["2"], 1)
    assert list(results["boot"]["changes"]) == ["boot"]


def test_it_does_not_reboot_if_that_has_not_changed(run):
    content = run.chain(watch=[{"cmd": "one"}])
    content["one"]["cmd.run"].append({"unless": "true"})
    results = run.attempt(content)
    assert (run.done(), run.asked) == (["2"], [])
    assert results["boot"]["result"] is True
    assert results["boot"]["changes"] == {}


def test_one_that_others_watch_watches_nothing_itself(run):
    content = run.chain(watch_in=[{"cmd": "two"}])
    run.suspended(content)
    assert len(run.asked) == 1


@pytest.mark.parametrize("given", [{"watch": [{"cmd": "one"}]}, {"listen": [{"cmd": "one"}]}])
def test_a_reboot_that_is_refused_is_no_success_whoever_it_watches(run, given):
    run.minion.services.reboot = refuse
    results = run.attempt(run.chain(**given))
    boots = [ret for key, ret in results.items() if "boot" in key and ret["result"] is False]
    assert len(boots) == 1
    assert "exit status 1" in boots[0]["comment"]
    assert run.minion.record() is None, "the minion does not restart instead"


@pytest.mark.parametrize("listens", [{"listen": [{"cmd": "one"}]}, {}])
def test_one_that_listens_reboots_at_the_end_and_once(run, listens):
    content = run.chain(**listens)
    if not listens:
        content["one"]["cmd.run"].append({"listen_in": [{"safeupdate": "boot"}]})
    waits = run.suspended(content)
    assert (run.done(), len(run.asked)) == (["one", "2"], 1)
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert (run.done(), len(run.asked)) == ([], 1)
    assert all(ret["result"] for ret in results.values())
    assert results["boot"]["changes"] == {}
    assert list(results["listener_boot"]["changes"]) == ["boot"]


def test_a_restart_that_listens_comes_at_the_end_and_once(run):
    restart = {"safeupdate.restarted": [{"now": True}, {"listen": [{"cmd": "one"}]}]}
    content = {"one": run.cmd("one"), "restart": restart, "two": run.cmd("two")}
    waits = run.suspended(content)
    assert run.done() == ["one", "two"]
    run.goes_on(waits.process)
    results = run.attempt(content)
    assert run.done() == []
    assert list(results["listener_restart"]["changes"]) == ["minion"]


def test_an_update_that_is_refused_is_no_success_if_it_watches_something(run):
    content = {
        "one": run.cmd("one"),
        "up": {"safeupdate.updated": [{"version": "99"}, {"watch": [{"cmd": "one"}]}]},
    }
    results = run.attempt(content)
    assert results["up"]["result"] is False
    assert "99" in results["up"]["comment"]
    run.minion.services.join()
    assert run.minion.record() is None


def test_one_that_has_nothing_to_do_restarts_the_minion_for_what_it_watches(run):
    content = {
        "one": run.cmd("one"),
        "up": {"safeupdate.updated": [{"version": "1"}, {"watch": [{"cmd": "one"}]}]},
    }
    results = run.attempt(content)
    assert results["up"]["changes"] == {"restart": "deferred"}
