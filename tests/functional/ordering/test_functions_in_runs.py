"""Execution functions that states call, restarts of the service, and runs inside runs."""

import pytest

BOTH = ("install", "salt-common", "salt-minion")
DEFERRED = "Deferred to the end of the run"
RESTART = "The minion restarts itself without waiting for jobs if it can be handed over"
OWN = {"pkg.latest": [{"name": "salt-minion"}]}


def note(**arguments):
    return {"note.that": [{key: arguments[key]} for key in arguments]}


def around(state):
    return {"first": note(), "own": state, "last": note()}


@pytest.mark.parametrize(
    ("state", "entry"),
    [
        ({"module.run": [{"pkg.install": [{"name": "salt-minion"}]}]}, BOTH),
        ({"module.run": [{"pkg.install": [{"pkgs": ["salt-minion"]}]}]}, BOTH),
        ({"module.run": [{"name": "pkg.install"}, {"m_name": "salt-minion"}]}, BOTH),
        (
            {"module.run": [{"pkg.upgrade": []}]},
            ("install", "nano", "plugin", "salt-common", "salt-minion", "vim"),
        ),
        (
            {"module.run": [{"name": "pkg.upgrade"}]},
            ("install", "nano", "plugin", "salt-common", "salt-minion", "vim"),
        ),
        ({"module.run": [{"pkg.remove": [{"name": "salt-minion"}]}]}, ("remove", "salt-minion")),
        ({"acts.install": [{"name": "salt-minion"}]}, BOTH),
    ],
    ids=["new", "new-pkgs", "legacy", "upgrade", "upgrade-legacy", "remove", "own-state"],
)
def test_the_state_that_calls_it_is_deferred(minion, state, entry):
    results = minion.apply(around(state))
    assert minion.journal("note", "install", "upgrade", "remove") == [
        ("note", "first"),
        ("note", "last"),
        entry,
    ]
    assert results["own"]["result"] is True
    assert "salt-minion" in str(results["own"]["changes"])
    assert DEFERRED in results["own"]["comment"]


def test_the_other_functions_of_the_state_run_once(minion):
    results = minion.apply(
        around(
            {
                "module.run": [
                    {"probe.note": ["a"]},
                    {"pkg.install": [{"name": "salt-minion"}]},
                    {"test.arg": ["b"]},
                ]
            }
        )
    )
    assert minion.journal("note", "install") == [
        ("note", "first"),
        ("note", "a"),
        ("note", "last"),
        BOTH,
    ]
    assert results["own"]["changes"]["probe.note"] == "a"
    assert "test.arg" in results["own"]["changes"]


def test_called_while_rendering_inside_a_run_the_state_that_renders_is_deferred(minion):
    minion.sls("inner", "{% set done = salt['pkg.install']('salt-minion') %}\nx: {note.that: []}\n")
    minion.apply({"outer": {"module.run": [{"state.apply": [{"mods": "inner"}]}]}, "last": note()})
    assert minion.journal("note", "install") == [("note", "last"), BOTH, ("note", "x")]


class TestRunInsideARun:
    def test_it_is_deferred_to_the_end_of_the_outermost(self, minion):
        minion.sls("inner", {"own": OWN, "x": note()})
        results = minion.apply(
            {
                "outer": {"module.run": [{"state.apply": [{"mods": "inner"}]}]},
                "last": note(),
            }
        )
        assert minion.journal("note", "install") == [("note", "x"), ("note", "last"), BOTH]
        inner = results["outer"]["changes"]["state.apply"]
        (own,) = [result for tag, result in inner.items() if "_|-own_|-" in tag]
        assert own["changes"]["salt-minion"] == {"old": "1", "new": "2"}
        assert DEFERRED in own["comment"]
        # The results of the outermost run have it as well.
        assert results["own"] == own

    def test_an_aborted_one_leaves_it_alone(self, minion):
        minion.sls("inner", {"own": OWN, "bad": note(result=False, failhard=True), "x": note()})
        results = minion.apply(
            {
                "outer": {"module.run": [{"state.apply": [{"mods": "inner"}]}]},
                "last": note(),
            }
        )
        assert minion.journal("note", "install") == [("note", "bad"), ("note", "last")]
        assert results["outer"]["result"] is False
        assert minion.record() is None


class TestRestart:
    @pytest.mark.parametrize("requisite", ["watch", "listen"])
    def test_of_the_own_service(self, minion, requisite):
        results = minion.apply(
            {
                "changed": note(changes=True),
                "svc": {
                    "service.running": [
                        {"name": "salt-minion"},
                        {requisite: [{"note": "changed"}]},
                    ]
                },
                "last": note(),
            }
        )
        assert minion.journal() == [("note", "changed"), ("note", "last"), ("minion restarts",)]
        told = [result for result in results.values() if RESTART in result["comment"]]
        assert len(told) == 1
        assert told[0]["result"] is True
        record = minion.record()
        assert (record.kind, record.phase.value) == ("restart", "committed")

    def test_of_another_service(self, minion):
        minion.apply(
            {
                "changed": note(changes=True),
                "svc": {"service.running": [{"name": "other"}, {"watch": [{"note": "changed"}]}]},
            }
        )
        assert ("service.restart", "other") in minion.journal()
        assert minion.record() is None

    @pytest.mark.parametrize(
        "state",
        [
            {"module.run": [{"service.restart": ["salt-minion"]}]},
            {"module.run": [{"service.restart": [{"name": "salt-minion.service"}]}]},
            {"module.run": [{"name": "service.restart"}, {"m_name": "salt-minion"}]},
            {"module.run": [{"minion.restart": []}]},
            {"module.run": [{"minion.kill": []}]},
            {"module.run": [{"service.restart": ["salt-minion"]}, {"parallel": True}]},
        ],
    )
    def test_by_a_function(self, minion, state):
        results = minion.apply(around(state))
        assert minion.journal() == [("note", "first"), ("note", "last"), ("minion restarts",)]
        assert results["own"]["result"] is True
        assert results["own"]["comment"].count(RESTART) == 1
        assert RESTART not in results["last"]["comment"]
        assert "__safeupdate" not in str(results)

    @pytest.mark.parametrize("requisite", ["watch", "listen"])
    def test_by_the_state_that_is_for_it(self, minion, requisite):
        results = minion.apply(
            {
                "changed": note(changes=True),
                "again": {"safeupdate.restarted": [{requisite: [{"note": "changed"}]}]},
                "last": note(),
            }
        )
        assert minion.journal() == [("note", "changed"), ("note", "last"), ("minion restarts",)]
        (asked,) = [ret for ret in results.values() if RESTART in ret["comment"]]
        assert asked["result"] is True
        assert asked["changes"] == {"restart": "deferred"}
        record = minion.record()
        assert (record.kind, record.phase.value) == ("restart", "committed")
        assert record.reason == "state again"

    def test_outside_a_run(self, minion):
        assert minion.call("service.restart", "salt-minion") is True
        assert minion.journal() == [("minion restarts",)]

    def test_by_a_run_that_updates_as_well_is_one(self, minion):
        minion.apply({"own": OWN, "again": {"module.run": [{"service.restart": ["salt-minion"]}]}})
        assert minion.journal() == [BOTH, ("minion restarts",)]
        assert len(minion.store.updates(9)) == 1

    def test_that_cannot_be_asked_for_is_told_where_it_was_asked(self, minion):
        (minion.path / "state").write_text("no directory")
        results = minion.apply(around({"module.run": [{"service.restart": ["salt-minion"]}]}))
        assert results["own"]["result"] is False
        assert str(minion.path / "state") in results["own"]["comment"]
        assert results["last"]["result"] is True
        (minion.path / "state").unlink()


def test_the_run_is_over_when_it_is_over(minion):
    minion.apply(around(OWN))
    assert minion.call("probe.in_a_run") is False
