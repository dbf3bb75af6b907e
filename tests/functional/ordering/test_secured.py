"""
A deferred change gets what the package manager resolved at its position, or it fails.

What becomes of real repositories, files and locks behind the position: tests/lab/test_update.py.
"""

import sys

import pytest

from saltext_safeupdate import factory
from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host.service import ServiceState

LATEST = {"pkg.latest": [{"name": "salt-minion"}]}
_LATER = """
import json
with open({path!r}) as file:
    data = json.load(file)
data["available"]["salt-minion"] = {versions}
with open({path!r}, "w") as file:
    json.dump(data, file)
"""


def later(minion, versions):
    """Return a state after which the repository offers something else."""
    script = minion.path / "later.py"
    script.write_text(_LATER.format(path=str(minion.database.path), versions=versions))
    return {"cmd.run": [{"name": f"{sys.executable} {script}"}]}


def run(minion, state, versions, **more):
    return minion.apply({"minion": state, **more, "later": later(minion, versions)})


STATES = {
    "latest": LATEST,
    "installed": {"pkg.installed": [{"name": "salt-minion"}, {"version": "2"}]},
    "uptodate": {"pkg.uptodate": []},
    "module": {"module.run": [{"pkg.install": [{"name": "salt-minion"}]}]},
    "own state": {"acts.install": [{"name": "salt-minion"}]},
}
OFFERS = {
    "gone": {"1": {"salt-common": "1"}},
    "newer": {"1": {}, "2": {"salt-common": "2"}, "3": {"salt-common": "2"}},
}


@pytest.mark.parametrize("offers", OFFERS)
@pytest.mark.parametrize("state", STATES)
def test_it_installs_what_was_on_offer_at_the_position(minion, state, offers):
    results = run(minion, STATES[state], OFFERS[offers])
    assert results["later"]["result"] is True
    assert results["minion"]["result"] is True, results["minion"]
    assert "salt-minion" in str(results["minion"]["changes"])
    assert minion.database.installed["salt-minion"] == "2"
    assert minion.record().phase.value == "committed"
    assert not list((minion.path / "state").glob("deferred *"))


def test_what_was_on_offer_before_does_not_count(minion):
    results = minion.apply({"before": later(minion, OFFERS["newer"]), "minion": LATEST})
    assert results["minion"]["changes"]["salt-minion"] == {"old": "1", "new": "3"}


def test_a_prediction_that_does_not_come_true_is_a_failure(minion):
    minion.manager.online = False
    note = {"note.that": [{"onchanges": [{"pkg": "minion"}]}]}
    results = run(minion, LATEST, OFFERS["gone"], reacts=note, other={"note.that": []})
    result = results["minion"]
    assert result["result"] is False
    assert "salt-minion is 1, not 2" in result["comment"]
    assert "could not be taken here" in result["comment"]
    assert "change that did not come: reacts." in result["comment"]
    assert minion.record().phase.value == "failed"
    assert "salt-minion is 1, not 2" in minion.record().reason


@pytest.mark.parametrize("state", ["latest", "installed", "module", "own state"])
@pytest.mark.parametrize("times", [1, 99])
def test_what_the_package_manager_could_not_say_comes_true_or_fails(
    minion, monkeypatch, state, times
):
    """It cannot be asked for a moment, or not until the repository is gone."""
    plain, asked = minion.manager.simulate, []

    def simulate(request):
        asked.append(request)
        if len(asked) <= times:
            raise CommandError(("fake-simulate",), "timed out")
        return plain(request)

    monkeypatch.setattr(minion.manager, "simulate", simulate)
    result = run(minion, STATES[state], OFFERS["gone"])["minion"]
    come = times == 1
    assert result["result"] is come, result
    assert minion.database.installed["salt-minion"] == ("2" if come else "1")
    assert minion.record().phase.value == ("committed" if come else "failed")


def test_it_comes_true_if_what_could_not_be_taken_stays(minion):
    minion.manager.online = False
    results = minion.apply({"minion": LATEST})
    assert results["minion"]["result"] is True
    assert "have to stay as they are until the end" in results["minion"]["comment"]


def test_a_disk_too_full_is_said_at_the_position(minion, monkeypatch):
    monkeypatch.setattr(minion.manager, "needs", lambda what: 1 << 60)
    note = {"note.that": [{"require": [{"pkg": "minion"}]}]}
    results = minion.apply({"minion": LATEST, "next": note})
    assert results["minion"]["result"] is False
    assert "There is no room to download" in results["minion"]["comment"]
    assert results["next"]["result"] is False
    assert minion.record() is None


def test_a_lock_that_the_call_does_not_lift_is_left_to_salt(minion, monkeypatch):
    """Only the module for apt lifts locks by itself; the fake one stands for the others."""
    minion.database.update(locked=["salt-minion"])
    taken = []
    monkeypatch.setattr(minion.manager, "download", lambda *args: taken.append(args))
    minion.apply({"minion": LATEST})
    assert taken == []


def test_what_is_removed_and_installed_comes_from_its_position(minion):
    gone = {"pkg.removed": [{"name": "salt-minion"}]}
    results = minion.apply({"gone": gone, "minion": LATEST, "later": later(minion, OFFERS["gone"])})
    assert (results["gone"]["result"], results["minion"]["result"]) == (True, True), results
    assert minion.database.installed["salt-minion"] == "2"
    assert minion.record().phase.value == "committed"


def test_a_run_that_is_aborted_leaves_no_files(minion):
    results = minion.apply(
        {"minion": LATEST, "bad": {"note.that": [{"result": False}, {"failhard": True}]}}
    )
    assert "aborted" in results["minion"]["comment"]
    assert not list((minion.path / "state").glob("deferred *"))


ENDED = {"module.run": [{"test.raise_exception": ["SystemExit"]}]}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(("enabled", "armed"), [("enabled", 0), ("disabled", 1)])
def test_a_host_that_goes_down_leaves_it_to_the_boot(minion, monkeypatch, enabled, armed, ended):
    """
    This run cannot continue after the boot: no master has published it.

    The engine begins the update then. A watchdog does if no minion starts with the host. systemd
    may have *ended* the run before its end.
    """
    armings = []
    later_ = {"minion": LATEST, "later": later(minion, OFFERS["gone"])}
    with monkeypatch.context() as down:
        down.setattr(minion.services, "goes_down", lambda: True)
        down.setattr(minion.services, "arm", lambda *args: armings.append(args))
        state = ServiceState("deactivating", enabled, 0)
        down.setattr(minion.services, "state", lambda unit: state)
        if ended:
            with pytest.raises(SystemExit):
                minion.apply({**later_, "end": ENDED})
        else:
            ret = minion.apply(later_)["minion"]
            assert (ret["result"], ret["changes"]) == (None, {})
            assert "after the boot" in ret["comment"]
    assert len(armings) == armed
    assert minion.record().ran_before is (not armed)
    assert minion.record().phase.value == "requested"
    assert not list((minion.path / "state").glob("deferred *"))
    minion.end_job()
    factory.launch(minion.host)
    minion.end_job()
    assert minion.record().phase.value == "committed", minion.record().reason
    assert minion.database.installed["salt-minion"] == "2"


def test_a_run_that_somebody_ends_leaves_nothing(minion):
    with pytest.raises(SystemExit):
        minion.apply({"minion": LATEST, "end": ENDED})
    assert minion.record() is None
    assert not list((minion.path / "state").glob("deferred *"))


GONE = {"pkg.removed": [{"name": "plugin"}, {"name": "salt-minion"}]}


def test_only_packages_to_install_are_left_to_the_boot(minion, monkeypatch):
    monkeypatch.setattr(minion.services, "goes_down", lambda: True)
    results = minion.apply({"gone": GONE, "minion": LATEST})
    assert [results[name]["result"] for name in ("gone", "minion")] == [False, False]
    assert "Run this again after the boot" in results["minion"]["comment"]
    assert minion.record() is None


@pytest.mark.parametrize("theirs", ["2", "3"])
def test_what_a_later_state_installs_stays(minion, theirs):
    """A dependency is taken in version 2, and nobody else's version of it is replaced."""
    available = minion.database.load()["available"]
    available["salt-minion"]["2"]["helper"] = None
    minion.database.update(available={**available, "helper": {"1": {}, "2": {}}})
    offers = later(minion, {})
    script = minion.path / "later.py"
    offered = {"2": {}, "3": {}}
    script.write_text(
        _LATER.format(path=str(minion.database.path), versions=offered).replace(
            "salt-minion", "helper"
        )
    )
    later_one = {"pkg.installed": [{"name": "helper"}, {"version": theirs}]}
    results = minion.apply({"minion": LATEST, "offers": offers, "helper": later_one})
    assert results["minion"]["result"] is True
    assert results["helper"]["result"] is True
    assert minion.database.installed["helper"] == theirs
