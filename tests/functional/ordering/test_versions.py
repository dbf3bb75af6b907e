"""Versions that are patterns or comparisons are those that Salt's package module chooses."""

import pytest

OLD, NEW = "3007.15", "3008.3"
PLACES = {"salt-minion": {"3007.14": {}, OLD: {}, NEW: {}}, "vim": {"1": {}}}
ASKED = {
    "3007.*": OLD,
    "=3007.15": OLD,
    "<3008": OLD,
    "<=3007.15": OLD,
    "3008.*": NEW,
    ">=3008": NEW,
    ">3007.15": NEW,
}
WHY = "was rolled back on this minion"


@pytest.fixture
def minion(minion):
    minion.opts["safeupdate"]["packages"] = ["salt-minion"]
    minion.host.opts = minion.opts
    return minion


def has(minion, version):
    """Have the minion in another version than the one that is asked for."""
    other = NEW if version == OLD else "3007.14"
    minion.database.update(installed={"salt-minion": other}, available=PLACES)


@pytest.mark.parametrize("asked", ASKED)
def test_it_runs_last(minion, asked):
    has(minion, ASKED[asked])
    own = {"pkg.installed": [{"name": "salt-minion"}, {"version": asked}]}
    results = minion.apply({"own": own, "last": {"note.that": []}})
    assert results["own"]["changes"]["salt-minion"]["new"] == ASKED[asked], results
    assert minion.journal("note", "install") == [("note", "last"), ("install", "salt-minion")]
    assert minion.record().versions_to == {"salt-minion": ASKED[asked]}


@pytest.mark.parametrize("asked", ["=3007.15", "<3008", "3008.*"])
def test_it_is_refused_if_it_is_in_quarantine(minion, asked):
    has(minion, ASKED[asked])
    minion.store.quarantine({"salt-minion": ASKED[asked]}, "u1", "it did not start")
    results = minion.apply({"own": {"pkg.installed": [{"pkgs": ["vim", {"salt-minion": asked}]}]}})
    assert WHY in results["own"]["comment"]
    assert results["own"]["result"] is False
    assert minion.journal("install") == [("install", "vim")]


def test_another_version_in_quarantine_stops_nothing(minion):
    has(minion, OLD)
    minion.store.quarantine({"salt-minion": NEW, "salt-common": OLD}, "u1", "it did not start")
    results = minion.apply({"own": {"pkg.installed": [{"pkgs": [{"salt-minion": "<3008"}]}]}})
    assert results["own"]["result"] is True
    assert minion.database.installed["salt-minion"] == OLD


def test_metadata_that_is_young_enough_is_not_fetched_again(minion):
    has(minion, NEW)
    minion.call("pkg.install", "salt-minion", refresh=True, cache_valid_time=3600)
    assert minion.journal("refresh_db", "install") == [
        ("refresh_db", "3600"),
        ("install", "salt-minion"),
    ]


def test_a_package_file_on_the_master_is_known_by_what_it_holds(minion):
    has(minion, NEW)
    (minion.path / "roots" / f"salt-minion_{NEW}.deb").touch()
    sources = [{"salt-minion": f"salt://salt-minion_{NEW}.deb"}]
    # The repository has nothing newer than what is installed.
    minion.database.update(available={"salt-minion": {NEW: {}, "3007.14": {}}})
    minion.call("pkg.install", sources=sources)
    assert minion.record().versions_to == {"salt-minion": NEW}
