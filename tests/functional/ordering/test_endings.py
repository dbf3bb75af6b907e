"""Runs that do not end well."""

import pytest
import salt.state

from saltext_safeupdate.core.host import locks
from tests.support.minion import by_id

BOTH = ("install", "salt-common", "salt-minion")
DEFERRED = "Deferred to the end of the run"
OWN = {"pkg.latest": [{"name": "salt-minion"}]}
ABORTED = "the run was aborted"


def note(**arguments):
    return {"note.that": [{key: arguments[key]} for key in arguments]}


class TestAbortedRun:
    @pytest.mark.parametrize("parallel", [False, True])
    def test_failhard(self, minion, parallel):
        results = minion.apply(
            {
                "own": OWN,
                "bad": note(
                    result=False, failhard=True, **({"parallel": True} if parallel else {})
                ),
                **({} if parallel else {"last": note()}),
            }
        )
        assert minion.journal("note", "install") == [("note", "bad")]
        assert results["own"]["result"] is False
        assert results["own"]["changes"] == {}
        assert ABORTED in results["own"]["comment"]
        assert minion.record() is None

    def test_failhard_of_the_very_last_state(self, minion):
        results = minion.apply({"own": OWN, "bad": note(result=False, failhard=True)})
        assert ABORTED in results["own"]["comment"]
        assert minion.journal("install") == []

    def test_failhard_for_all(self, minion):
        minion.opts["failhard"] = True
        results = minion.apply({"own": OWN, "bad": note(result=False), "last": note()})
        assert ABORTED in results["own"]["comment"]
        assert minion.journal("install") == []

    def test_what_was_done_of_the_state_stays_in_its_result(self, minion):
        results = minion.apply(
            {
                "own": {"pkg.latest": [{"pkgs": ["vim", "salt-minion"]}]},
                "bad": note(result=False, failhard=True),
                "last": note(),
            }
        )
        assert minion.journal("install") == [("install", "vim")]
        assert results["own"]["changes"] == {"vim": {"old": "1", "new": "2"}}
        assert ABORTED in results["own"]["comment"]

    def test_killed_softly(self, minion):
        jid = "20260101000000000000"
        minion.sls("it", {"own": OWN, "stop": note(), "last": note()})
        minion.functions["state.soft_kill"](jid, "stop")
        results = by_id(minion.call("state.apply", "it", __pub_jid=jid))
        assert ABORTED in results["own"]["comment"]
        assert minion.journal("note", "install") == []

    def test_a_failure_without_failhard_is_no_abort(self, minion):
        results = minion.apply({"own": OWN, "bad": note(result=False), "last": note()})
        assert results["own"]["result"] is True
        assert minion.journal("install") == [BOTH]


class TestFailingUpdate:
    @pytest.fixture
    def minion(self, minion):
        minion.database.update(broken={"salt-minion": "the scriptlet failed"})
        return minion

    def test_the_result_is_truthful_and_nothing_restarts(self, minion):
        results = minion.apply({"own": OWN, "last": note()})
        own = results["own"]
        assert own["result"] is False
        assert own["changes"] == {}
        assert "the scriptlet failed" in own["comment"]
        assert DEFERRED in own["comment"]
        assert ("minion restarts",) not in minion.journal()
        assert minion.record().phase.value == "failed"
        assert "the scriptlet failed" in minion.record().reason
        assert not locks.held(minion.host.settings.run_dir, "drain")

    def test_other_packages_of_the_state_are_reported(self, minion):
        results = minion.apply({"own": {"pkg.latest": [{"pkgs": ["vim", "salt-minion"]}]}})
        assert results["own"]["result"] is False
        assert results["own"]["changes"] == {"vim": {"old": "1", "new": "2"}}

    def test_half_an_update_restarts(self, minion):
        minion.database.update(half=["salt-minion"])
        results = minion.apply({"own": OWN})
        assert results["own"]["result"] is False
        assert ("minion restarts",) in minion.journal()

    def test_what_waits_for_its_failure_runs(self, minion):
        results = minion.apply(
            {
                "own": OWN,
                "handler": note(onfail=[{"pkg": "own"}], changes=True),
                "then": note(onchanges=[{"note": "handler"}]),
                "either": note(onfail_any=[{"pkg": "own"}, {"note": "fine"}]),
                "all": note(onfail_all=[{"pkg": "own"}, {"note": "fine"}]),
                "aside": note(parallel=True, onfail=[{"pkg": "own"}]),
                "fine": note(),
                "unrelated": note(onfail=[{"note": "fine"}]),
            }
        )
        journal = minion.journal("note", "install")
        failed = journal.index(("install", "failed", "salt-minion"))
        assert journal[:failed] == [("note", "fine")]
        assert sorted(journal[failed + 1 :]) == [
            ("note", name) for name in ("aside", "either", "handler", "then")
        ]
        assert results["handler"]["comment"] == "handler ran"
        assert "not run" in results["unrelated"]["comment"]
        assert "not run" in results["all"]["comment"]

    def test_what_waits_for_its_failure_does_not_run_without_one(self, minion):
        minion.database.update(broken={})
        results = minion.apply({"own": OWN, "handler": note(onfail=[{"pkg": "own"}])})
        assert "not run" in results["handler"]["comment"]
        assert minion.journal("note") == []

    def test_in_a_run_inside_a_run(self, minion):
        minion.sls("inner", {"own": OWN, "handler": note(onfail=[{"pkg": "own"}])})
        minion.apply({"outer": {"module.run": [{"state.apply": [{"mods": "inner"}]}]}})
        assert minion.journal("note", "install") == [
            ("install", "failed", "salt-minion"),
            ("note", "handler"),
        ]


def test_another_update_is_under_way(minion):
    held = locks.acquire(minion.host.settings.run_dir, "update", "")
    try:
        results = minion.apply({"own": OWN, "last": note()})
    finally:
        held.close()
    assert minion.journal("note", "install") == [("note", "last")]
    assert results["last"]["result"] is True
    assert results["own"]["result"] is False
    assert results["own"]["changes"] == {}
    assert "Another update of the minion is under way" in results["own"]["comment"]
    assert DEFERRED in results["own"]["comment"]


def test_other_jobs_do_not_end(minion):
    minion.opts["safeupdate"]["jobs_timeout"] = 0.2
    other = locks.Lock(minion.host.settings.run_dir, "jobs")
    assert other.try_shared()
    try:
        results = minion.apply({"own": OWN, "last": note()})
    finally:
        other.close()
    assert minion.journal("install") == []
    assert results["last"]["result"] is True
    assert results["own"]["result"] is False
    assert "Other jobs did not end" in results["own"]["comment"]
    assert minion.record().phase.value == "postponed"


def test_the_record_cannot_be_written(minion):
    (minion.path / "state").write_text("no directory")
    results = minion.apply({"own": OWN, "last": note()})
    assert results["last"]["result"] is True
    assert results["own"]["result"] is False
    assert str(minion.path / "state") in results["own"]["comment"]
    (minion.path / "state").unlink()


def test_modules_are_not_loaded_again_from_the_new_tree(minion, monkeypatch):
    loaded = []
    load_modules = salt.state.State.load_modules

    def noted(self, *args, **kwargs):
        loaded.append(minion.database.installed["salt-minion"])
        return load_modules(self, *args, **kwargs)

    monkeypatch.setattr(salt.state.State, "load_modules", noted)
    minion.apply({"own": {"pkg.latest": [{"pkgs": ["vim", "salt-minion"]}]}, "last": note()})
    # For the run, and after the other package, while the tree was still the old one.
    assert loaded == ["1", "1"]


def test_a_state_whose_simulation_fails_is_deferred_if_it_names_the_own_package(minion):
    results = minion.apply(
        {"own": {"pkg.installed": [{"pkgs": [{"salt-minion": "9"}]}]}, "last": note()}
    )
    assert results["own"]["result"] is False
    assert "salt-minion 9" in results["own"]["comment"]
    assert DEFERRED in results["own"]["comment"]
    assert ("minion restarts",) not in minion.journal()


@pytest.mark.parametrize("inside", [True, False])
def test_what_is_installed_again_runs_after_a_restart(minion, capfd, inside):
    """As with plain Salt, whose packages restart the service: their files may be other ones."""
    if inside:
        state = {"pkg.installed": [{"name": "salt-minion"}, {"version": "1"}, {"reinstall": True}]}
        result = minion.apply({"minion": state})["minion"]
        assert result["result"] is True, result
    else:
        minion.call("pkg.install", "salt-minion", version="1", reinstall=True)
    record = minion.record()
    assert record.versions_to == record.versions_from
    assert record.phase.value == "committed"
    assert "restarting -> watching" in capfd.readouterr().err, record.reason
