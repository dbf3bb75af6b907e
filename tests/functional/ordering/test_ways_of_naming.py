"""The own package changes at the end, however a ``pkg`` state names it."""

import json

import pytest

BOTH = ("install", "salt-common", "salt-minion")
UPDATED = {
    "salt-minion": {"old": "1", "new": "2"},
    "salt-common": {"old": "1", "new": "2"},
}
DEFERRED = "Deferred to the end of the run"


def packages(result):
    """Return the changes without Salt's own account of what was purged."""
    return {name: change for name, change in result["changes"].items() if name != "purge_desired"}


def around(state):
    """Put the state between two others."""
    return {"first": {"note.that": []}, "own": state, "last": {"note.that": []}}


def with_files(minion, state):
    """Put package files where ``sources`` names them."""
    for name in ("salt-minion_2.deb", "vim_2.deb"):
        (minion.path / name).touch()
    return json.loads(json.dumps(state).replace("{files}", str(minion.path)))


@pytest.mark.parametrize(
    "state",
    [
        {"pkg.latest": [{"name": "salt-minion"}]},
        {"pkg.installed": [{"name": "salt-minion"}, {"version": "2"}]},
        {"pkg.latest": [{"pkgs": ["salt-minion"]}]},
        {"pkg.installed": [{"pkgs": [{"salt-minion": "2"}]}]},
        {"pkg.latest": [{"pkgs": ["salt-minion", "salt-common"]}]},
        {"pkg.installed": [{"sources": [{"salt-minion": "{files}/salt-minion_2.deb"}]}]},
        {"pkg.latest": [{"name": "salt-minion"}, {"order": 1}]},
        {"pkg.latest": [{"name": "salt-minion"}, {"refresh": True}]},
    ],
    ids=["name", "version", "pkgs", "versions", "siblings", "sources", "order", "refresh"],
)
def test_alone_it_runs_last(minion, state):
    results = minion.apply(around(with_files(minion, state)))
    assert minion.journal("note", "install") == [("note", "first"), ("note", "last"), BOTH]
    own = results["own"]
    assert own["result"] is True
    assert packages(own) == UPDATED
    assert own["comment"].count(DEFERRED) == 1
    assert own["duration"] > 0
    assert own["__run_num__"] > results["last"]["__run_num__"]
    assert minion.record().phase.value == "committed"
    assert minion.journal()[-1] == ("minion restarts",)


@pytest.mark.parametrize(
    ("state", "elsewhere"),
    [
        ({"pkg.latest": [{"pkgs": ["vim", "salt-minion", "nano"]}]}, ("install", "nano", "vim")),
        (
            {"pkg.installed": [{"pkgs": ["curl", {"salt-minion": "2"}, {"vim": "2"}]}]},
            ("install", "curl", "vim"),
        ),
        (
            {
                "pkg.installed": [
                    {
                        "sources": [
                            {"vim": "{files}/vim_2.deb"},
                            {"salt-minion": "{files}/salt-minion_2.deb"},
                        ]
                    }
                ]
            },
            ("install", "vim"),
        ),
    ],
    ids=["pkgs", "versions", "sources"],
)
def test_other_packages_of_the_state_stay_where_they_are(minion, state, elsewhere):
    results = minion.apply(around(with_files(minion, state)))
    assert minion.journal("note", "install") == [
        ("note", "first"),
        elsewhere,
        ("note", "last"),
        BOTH,
    ]
    own = results["own"]
    assert own["result"] is True
    assert set(packages(own)) == {*elsewhere[1:], *UPDATED}
    assert own["changes"]["salt-minion"] == UPDATED["salt-minion"]
    for name in elsewhere[1:]:
        assert name in own["comment"]


def test_names_are_states_of_their_own(minion):
    results = minion.apply(around({"pkg.latest": [{"names": ["vim", "salt-minion", "nano"]}]}))
    assert minion.journal("note", "install") == [
        ("note", "first"),
        ("install", "vim"),
        ("install", "nano"),
        ("note", "last"),
        BOTH,
    ]
    deferred = [result for result in results["own"] if DEFERRED in result["comment"]]
    assert [result["name"] for result in deferred] == ["salt-minion"]
    assert all(result["result"] is True for result in results["own"])


@pytest.mark.parametrize("function", ["removed", "purged"])
def test_removal(minion, function):
    word = {"removed": "remove", "purged": "purge"}[function]
    results = minion.apply(around({f"pkg.{function}": [{"pkgs": ["vim", "salt-minion"]}]}))
    assert minion.journal("note", word) == [
        ("note", "first"),
        (word, "vim"),
        ("note", "last"),
        (word, "salt-minion"),
    ]
    assert results["own"]["result"] is True
    assert {"vim", "salt-minion"} <= set(str(results["own"]["changes"]).split("'"))


@pytest.mark.parametrize("named", [["salt-minion", "vim"], ["plugin", "vim"], ["salt-minion"]])
def test_uptodate_updates_what_it_names(minion, named):
    results = minion.apply(around({"pkg.uptodate": [{"pkgs": named}]}))
    assert results["own"]["result"] is True, results["own"]
    assert packages(results["own"]).keys() == {*named, *UPDATED}
    assert minion.database.installed["nano"] == "1"


def test_uptodate_updates_everything_else_where_it_stands(minion):
    # What needs the new minion cannot be updated without it, so it is deferred as well.
    results = minion.apply(around({"pkg.uptodate": []}))
    assert minion.journal("note", "upgrade", "install") == [
        ("note", "first"),
        ("upgrade", "nano", "vim"),
        ("note", "last"),
        ("install", "plugin", "salt-common", "salt-minion"),
    ]
    assert results["own"]["result"] is True
    assert set(results["own"]["changes"]) == {*UPDATED, "nano", "vim", "plugin"}


def test_a_whole_distribution_that_needs_it_is_changed_at_the_end(minion):
    results = minion.apply(around({"pkg.uptodate": [{"dist_upgrade": True}]}))
    assert minion.journal("note", "upgrade", "install") == [
        ("note", "first"),
        ("note", "last"),
        ("install", "nano", "plugin", "salt-common", "salt-minion", "vim"),
    ]
    assert results["own"]["result"] is True


class TestWithoutAWayToKeepPackages:
    """dnf and zypper: the others are named instead."""

    @pytest.fixture
    def minion(self, minion):
        minion.manager.can_keep = False
        return minion

    def test_uptodate_names_the_others(self, minion):
        # "plugin" is deferred.
        minion.database.update(
            installed={k: v for k, v in minion.database.installed.items() if k != "plugin"}
        )
        results = minion.apply(around({"pkg.uptodate": [{"fromrepo": "testing"}]}))
        assert minion.journal("note", "upgrade", "install") == [
            ("note", "first"),
            ("upgrade", "nano", "vim"),
            ("note", "last"),
            ("install", "salt-common", "salt-minion"),
        ]
        assert {request.release for request in minion.manager.simulated} == {"testing"}
        assert set(results["own"]["changes"]) == {*UPDATED, "nano", "vim"}

    def test_uptodate_defers_what_pulls_it_along(self, minion):
        minion.apply(around({"pkg.uptodate": []}))
        assert minion.journal("note", "upgrade", "install") == [
            ("note", "first"),
            ("upgrade", "nano", "vim"),
            ("note", "last"),
            ("install", "plugin", "salt-common", "salt-minion"),
        ]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"pkg.downloaded": [{"name": "salt-minion"}, {"version": "2"}]}, "download"),
        ({"pkg.held": [{"name": "salt-minion"}]}, "hold"),
    ],
)
def test_what_changes_nothing_that_runs_stays(minion, state, word):
    results = minion.apply(around(state))
    kinds = [entry[0] for entry in minion.journal("note", word, "install")]
    assert kinds == ["note", word, "note"]
    assert results["own"]["result"] is True
    assert DEFERRED not in results["own"]["comment"]
    assert minion.record() is None


class TestPulledAlong:
    def test_by_a_package_alone(self, minion):
        results = minion.apply(around({"pkg.latest": [{"name": "plugin"}]}))
        assert minion.journal("note", "install") == [
            ("note", "first"),
            ("note", "last"),
            ("install", "plugin", "salt-common", "salt-minion"),
        ]
        assert set(results["own"]["changes"]) == {"plugin", *UPDATED}
        assert DEFERRED in results["own"]["comment"]

    def test_by_one_of_several(self, minion):
        minion.apply(around({"pkg.latest": [{"pkgs": ["vim", "plugin"]}]}))
        assert minion.journal("note", "install") == [
            ("note", "first"),
            ("install", "vim"),
            ("note", "last"),
            ("install", "plugin", "salt-common", "salt-minion"),
        ]

    def test_by_the_removal_of_what_it_needs(self, minion):
        minion.apply(around({"pkg.removed": [{"pkgs": ["vim", "salt-common"]}]}))
        assert minion.journal("note", "remove") == [
            ("note", "first"),
            ("remove", "vim"),
            ("note", "last"),
            ("remove", "salt-common", "salt-minion"),
        ]


def test_already_newest_is_a_plain_result(minion):
    minion.database.update(installed={**minion.database.installed, "salt-minion": "2"})
    minion.database.update(installed={**minion.database.installed, "salt-common": "2"})
    results = minion.apply(around({"pkg.latest": [{"pkgs": ["salt-minion", "vim"]}]}))
    assert minion.journal("note", "install") == [
        ("note", "first"),
        ("install", "vim"),
        ("note", "last"),
    ]
    assert DEFERRED not in results["own"]["comment"]
    assert minion.record() is None


def test_a_package_that_does_not_exist_fails_as_ever(minion):
    results = minion.apply(around({"pkg.installed": [{"pkgs": ["nothing", "vim"]}]}))
    assert results["own"]["result"] is False
    assert "nothing" in results["own"]["comment"]
    assert minion.record() is None


def test_the_metadata_is_refreshed_once(minion):
    minion.apply(
        around({"pkg.installed": [{"pkgs": ["curl", {"salt-minion": "2"}]}, {"refresh": True}]})
    )
    assert minion.journal("refresh_db", "install") == [
        ("refresh_db",),
        ("install", "curl"),
        BOTH,
    ]


@pytest.mark.parametrize("way", ["configuration", "state"])
def test_a_provider_that_is_named_is_guarded_as_well(minion, way):
    state = {"pkg.latest": [{"name": "salt-minion"}]}
    if way == "configuration":
        minion.opts["providers"] = {"pkg": "fakepkg"}
    else:
        state["pkg.latest"].append({"provider": "fakepkg"})
    results = minion.apply(around(state))
    assert minion.journal("note", "install")[-1] == BOTH
    assert DEFERRED in results["own"]["comment"]
