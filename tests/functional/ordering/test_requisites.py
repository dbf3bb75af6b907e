"""What other states see of the own package, and it of them."""

import pytest

from tests.support.minion import by_id

BOTH = ("install", "salt-common", "salt-minion")
DEFERRED = "Deferred to the end of the run"


def own(**arguments):
    return {"pkg.latest": [{"name": "salt-minion"}, *({key: arguments[key]} for key in arguments)]}


def note(**arguments):
    return {"note.that": [{key: arguments[key]} for key in arguments]}


OWN = [{"pkg": "own"}]


@pytest.mark.parametrize(
    ("other", "entry"),
    [
        (note(require=OWN), ("note", "other")),
        (note(watch=OWN), ("watch", "other")),
        (note(onchanges=OWN), ("note", "other")),
        (note(prereq=OWN), ("note", "other")),
        (note(listen=OWN), ("watch", "other")),
        (note(require_any=OWN), ("note", "other")),
        (note(onchanges_any=OWN), ("note", "other")),
        (note(watch_any=OWN), ("watch", "other")),
    ],
    ids=lambda value: next(iter(value["note.that"][0])) if isinstance(value, dict) else "",
)
def test_what_depends_on_it_runs_before_it(minion, other, entry):
    results = minion.apply({"own": own(), "other": other, "last": note()})
    journal = minion.journal("note", "watch", "install")
    assert entry in journal
    assert journal[-1] == BOTH
    assert ("note", "last") in journal
    assert results["own"]["result"] is True
    assert all(
        item["result"] is True
        for result in results.values()
        for item in (result if isinstance(result, list) else [result])
    )


@pytest.mark.parametrize("requisite", ["require_in", "watch_in", "onchanges_in", "listen_in"])
def test_requisites_written_at_the_own_package(minion, requisite):
    minion.apply({"own": own(**{requisite: [{"note": "other"}]}), "other": note()})
    journal = minion.journal("note", "watch", "install")
    assert journal[-1] == BOTH
    word = {"watch_in": "watch", "listen_in": "watch"}.get(requisite, "note")
    assert (word, "other") in journal


def test_it_is_not_changed_if_its_requisite_failed(minion):
    results = minion.apply(
        {"bad": note(result=False), "own": own(require=[{"note": "bad"}]), "other": note()}
    )
    assert results["own"]["result"] is False
    assert minion.journal("install") == []
    assert minion.record() is None


def test_it_is_not_changed_if_nothing_changed(minion):
    results = minion.apply({"same": note(), "own": own(onchanges=[{"note": "same"}])})
    assert results["own"]["result"] is True
    assert minion.journal("install") == []


@pytest.mark.parametrize("requisite", ["require", "onchanges", "watch", "prereq"])
def test_its_own_requisites_count_where_it_stands(minion, requisite):
    results = minion.apply(
        {"own": own(**{requisite: [{"note": "other"}]}), "other": note(changes=True)}
    )
    assert minion.journal("note", "install") == [("note", "other"), BOTH]
    assert results["own"]["changes"]["salt-minion"] == {"old": "1", "new": "2"}


def test_it_may_be_the_handler_of_a_failure(minion):
    results = minion.apply(
        {"bad": note(result=False), "own": own(onfail=[{"note": "bad"}]), "last": note()}
    )
    assert minion.journal("note", "install") == [("note", "bad"), ("note", "last"), BOTH]
    assert DEFERRED in results["own"]["comment"]


def test_use(minion):
    results = minion.apply(
        {
            "template": {"pkg.latest": [{"name": "vim"}, {"refresh": False}]},
            "own": own(use=[{"pkg": "template"}]),
        }
    )
    assert minion.journal("install") == [("install", "vim"), BOTH]
    assert DEFERRED in results["own"]["comment"]


def test_aggregate(minion):
    results = minion.apply(
        {
            "a": {"pkg.latest": [{"pkgs": ["curl"]}, {"aggregate": True}]},
            "own": {"pkg.latest": [{"pkgs": ["salt-minion"]}, {"aggregate": True}]},
            "b": {"pkg.latest": [{"pkgs": ["vim"]}, {"aggregate": True}]},
            "last": note(),
        }
    )
    journal = minion.journal("note", "install")
    assert journal[-2:] == [("note", "last"), BOTH]
    assert {name for entry in journal[:-2] for name in entry[1:]} == {"curl", "vim"}
    assert all(result["result"] is True for result in results.values())
    assert minion.database.installed["salt-minion"] == "2"


def test_beacons_and_listeners_run_before_it(minion):
    minion.apply(
        {
            "own": own(),
            "a": note(beacon=True, changes=True),
            "b": note(listen=[{"note": "a"}]),
        }
    )
    journal = minion.journal("note", "watch", "beacon", "install")
    assert sorted(journal[:-1]) == [
        ("beacon", "a"),
        ("note", "a"),
        ("note", "b"),
        ("watch", "b"),
    ]
    assert journal[-1] == BOTH


@pytest.mark.parametrize("name", ["salt-minion", "plugin"])
def test_parallel(minion, name):
    results = minion.apply(
        {
            "own": {"pkg.latest": [{"name": name}, {"parallel": True}]},
            "a": note(parallel=True),
            "b": note(require=[{"pkg": "own"}]),
        }
    )
    journal = minion.journal("note", "install")
    assert sorted(journal[:-1]) == [("note", "a"), ("note", "b")]
    assert journal[-1] == ("install", *sorted({"salt-common", "salt-minion", name}))
    assert results["own"]["result"] is True
    assert DEFERRED in results["own"]["comment"]
    assert not any(key.startswith("__safeupdate") for key in results["own"])


def test_parallel_with_a_run_inside(minion):
    minion.sls("inner", {"own": own(), "x": note()})
    results = minion.apply(
        {
            "outer": {"module.run": [{"state.apply": [{"mods": "inner"}]}, {"parallel": True}]},
            "a": note(),
        }
    )
    journal = minion.journal("note", "install")
    assert sorted(journal[:-1]) == [("note", "a"), ("note", "x")]
    assert journal[-1] == BOTH
    (inner,) = [
        result for tag, result in results["outer"]["changes"]["state.apply"].items() if "own" in tag
    ]
    assert DEFERRED in inner["comment"]
    assert "__safeupdate" not in str(results)


def test_retry(minion):
    minion.database.update(broken={"salt-minion": "it broke"})
    results = minion.apply({"own": own(retry={"attempts": 2, "interval": 0}), "last": note()})
    assert minion.journal("note", "install") == [
        ("note", "last"),
        ("install", "failed", "salt-minion"),
        ("install", "failed", "salt-minion"),
    ]
    assert results["own"]["result"] is False
    assert results["own"]["comment"].count(DEFERRED) == 1


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ({"unless": ["false"]}, True),
        ({"unless": ["true"]}, False),
        ({"onlyif": ["true"]}, True),
        ({"onlyif": ["false"]}, False),
        ({"creates": "/nowhere/at/all"}, True),
    ],
)
def test_conditions(minion, condition, runs):
    results = minion.apply({"own": own(**condition), "last": note()})
    assert bool(minion.journal("install")) is runs
    assert (DEFERRED in results["own"]["comment"]) is runs


def test_a_condition_is_judged_once_and_where_the_state_stands(minion):
    marker = minion.path / "marker"
    minion.apply(
        {
            "own": own(unless=[f"test -e {marker}"]),
            "then": {"cmd.run": [{"name": f"touch {marker}"}]},
        }
    )
    assert minion.journal("install") == [BOTH]


@pytest.mark.parametrize("good", [True, False])
def test_check_cmd_judges_the_real_thing(minion, good):
    version = "2" if good else "3"
    check = f"""grep -q '"salt-minion": "{version}", "salt' {minion.database.path}"""
    results = minion.apply(
        {
            "own": {
                "pkg.latest": [
                    {"pkgs": ["vim", "salt-minion"]},
                    {"check_cmd": [check]},
                ]
            },
            "last": note(),
        }
    )
    assert minion.journal("note", "install") == [("install", "vim"), ("note", "last"), BOTH]
    assert results["own"]["result"] is good


def test_a_state_that_is_disabled_is_not_deferred(minion):
    minion.opts["grains"]["state_runs_disabled"] = ["pkg.latest"]
    minion.apply({"own": own(), "last": note()})
    assert minion.journal("note", "install") == [("note", "last")]


def test_two_states_are_one_transaction(minion):
    results = minion.apply(
        {
            "common": {"pkg.installed": [{"name": "salt-common"}, {"version": "2"}]},
            "own": own(),
            "last": note(),
        }
    )
    assert minion.journal("note", "install")[0] == ("note", "last")
    assert minion.database.journal().count(("inhibit",)) == 1
    assert minion.journal().count(("minion restarts",)) == 1
    assert results["common"]["result"] is True
    assert results["own"]["result"] is True
    assert len(minion.store.updates(9)) == 1


def test_in_test_mode_it_says_what_it_would_do(minion):
    results = minion.apply(
        {
            "own": own(),
            "pulled": {"pkg.latest": [{"name": "plugin"}]},
            "all": {"pkg.uptodate": []},
            "gone": {"pkg.removed": [{"name": "salt-common"}]},
            "other": {"pkg.latest": [{"name": "vim"}]},
            "same": {"pkg.installed": [{"name": "salt-minion"}]},
            "service": {"service.running": [{"name": "salt-minion"}, {"watch": [{"note": "n"}]}]},
            "n": note(changes=True),
        },
        test=True,
    )
    for name in ("own", "pulled", "all", "gone"):
        assert results[name]["result"] is None
        assert "would be deferred to the end" in results[name]["comment"], name
    for name in ("other", "same"):
        assert "deferred" not in results[name]["comment"]
    assert "deferred to the end of the run" in results["service"]["comment"]
    assert "without waiting for jobs if it can be handed over" in results["service"]["comment"]
    assert minion.journal("install", "remove", "upgrade", "note") == []
    assert minion.record() is None


def test_a_state_that_does_not_know_test_mode_is_still_caught_in_a_prereq(minion):
    results = by_id(
        minion.call(
            "state.template_str",
            """
prepare:
  note.that:
    - prereq:
      - acts: own
own:
  acts.install:
    - name: salt-minion
""",
        )
    )
    assert minion.journal("note", "install") == [("note", "prepare"), BOTH]
    assert DEFERRED in results["own"]["comment"]
