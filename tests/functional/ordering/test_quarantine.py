"""A version in quarantine stops the minion's own packages, and nothing else."""

import pytest
from salt.exceptions import CommandExecutionError

BOTH = ("install", "salt-common", "salt-minion")
OTHERS = {"vim": {"old": "1", "new": "2"}, "nano": {"old": "1", "new": "2"}}
WHY = "salt-minion 2 was rolled back on this minion (update u1: it did not start)"
HOW = "safeupdate.unquarantine \"'2'\""


@pytest.fixture
def minion(minion):
    minion.store.quarantine({"salt-minion": "2"}, "u1", "it did not start.")
    return minion


def packages(result):
    return {name: change for name, change in result["changes"].items() if name != "purge_desired"}


def files(minion, *names):
    for name in names:
        (minion.path / name).touch()
    return [{name.split("_")[0]: str(minion.path / name)} for name in names]


@pytest.mark.parametrize("can_keep", [True, False], ids=["apt", "dnf"])
def test_an_upgrade_of_everything_goes_on_and_says_what_was_left_out(minion, can_keep):
    minion.manager.can_keep = can_keep
    results = minion.apply({"all": {"pkg.uptodate": []}, "last": {"note.that": []}})
    assert minion.journal("upgrade", "install", "note") == [
        ("upgrade", "nano", "vim"),
        ("note", "last"),
    ]
    result = results["all"]
    assert result["result"] is True
    assert packages(result) == OTHERS
    assert result["comment"].count(WHY) == 1
    assert HOW in result["comment"]
    assert minion.record() is None


@pytest.mark.parametrize(
    ("state", "installs"),
    [
        ({"pkg.latest": [{"pkgs": ["vim", "salt-minion", "nano"]}]}, ("install", "nano", "vim")),
        ({"pkg.latest": [{"pkgs": ["vim", "plugin", "nano"]}]}, ("install", "nano", "vim")),
        (
            {"pkg.installed": [{"pkgs": [{"vim": "2"}, {"salt-minion": "2"}]}]},
            ("install", "vim"),
        ),
        ({"pkg.installed": [{"sources": "both"}]}, ("install", "vim")),
        (
            {"module.run": [{"pkg.install": [{"pkgs": ["vim", "salt-minion"]}]}]},
            ("install", "vim"),
        ),
        ({"pkg.uptodate": [{"pkgs": ["vim", "salt-minion"]}]}, ("upgrade", "vim")),
        (
            {"pkg.latest": [{"pkgs": ["vim", "plugin"]}, {"parallel": True}]},
            ("install", "vim"),
        ),
    ],
    ids=["latest", "pulled-along", "versions", "sources", "module", "upgrade", "parallel"],
)
def test_what_names_it_fails_and_the_rest_of_it_is_done(minion, state, installs):
    for arguments in state.get("pkg.installed", ()):
        if arguments.get("sources"):
            arguments["sources"] = files(minion, "vim_2.deb", "salt-minion_2.deb")
    results = minion.apply({"own": state, "last": {"note.that": []}})
    # One is parallel to what follows.
    assert sorted(minion.journal("install", "upgrade", "note")) == sorted(
        [installs, ("note", "last")]
    )
    result = results["own"]
    assert result["result"] is False
    assert set(packages(result)) >= set(installs[1:])
    assert WHY in result["comment"]
    assert HOW in result["comment"]
    assert minion.record() is None


def test_alone_it_is_refused(minion):
    results = minion.apply({"own": {"pkg.latest": [{"name": "salt-minion"}]}})
    assert minion.journal() == []
    assert results["own"]["result"] is False
    assert results["own"]["changes"] == {}
    assert WHY in results["own"]["comment"]
    assert "Nothing was changed." in results["own"]["comment"]


def test_what_failed_besides_is_told_as_well(minion):
    minion.database.update(broken={"vim": "vim is broken"})
    results = minion.apply({"own": {"pkg.latest": [{"pkgs": ["vim", "salt-minion"]}]}})
    assert results["own"]["result"] is False
    assert "vim is broken" in results["own"]["comment"]
    assert WHY in results["own"]["comment"]


def test_a_file_with_another_label_is_known_by_what_it_holds(minion):
    (source,) = files(minion, "salt-minion_2.deb")
    sources = [{"other": source["salt-minion"]}, *files(minion, "vim_2.deb")]
    results = minion.apply({"own": {"pkg.installed": [{"sources": sources}]}})
    assert minion.journal("install") == []
    assert results["own"]["result"] is False
    assert WHY in results["own"]["comment"]


def test_a_function_says_it_with_what_it_returns(minion):
    returned = minion.call("pkg.upgrade")
    assert WHY in returned.pop("safeupdate")
    assert returned == OTHERS


@pytest.mark.parametrize(
    ("fun", "args", "kwargs"),
    [
        ("pkg.install", ("vim,salt-minion",), {}),
        ("pkg.install", (), {"pkgs": ["vim", {"salt-minion": "2"}]}),
        ("pkg.install", (None, False, ["vim", "plugin"]), {}),
        ("pkg.group_install", ("vim+salt-minion",), {}),
    ],
)
def test_a_function_that_names_it_fails_and_does_the_rest(minion, fun, args, kwargs):
    with pytest.raises(CommandExecutionError, match="was rolled back on this minion") as caught:
        minion.call(fun, *args, **kwargs)
    assert caught.value.info == {"changes": {"vim": OTHERS["vim"]}}
    assert minion.journal() == [("install", "vim")]


def test_the_others_come_from_the_repository_that_was_asked_for(minion):
    minion.manager.can_keep = False
    returned = minion.call("pkg.upgrade", fromrepo="testing")
    assert WHY in returned.pop("safeupdate")
    assert returned == OTHERS
    assert {request.release for request in minion.manager.simulated} == {"testing"}


@pytest.mark.parametrize("can_keep", [True, False], ids=["apt", "dnf"])
def test_an_upgrade_that_fails_says_what_was_left_out(minion, can_keep):
    minion.manager.can_keep = can_keep
    minion.database.update(broken={"vim": "vim is broken"})
    with pytest.raises(CommandExecutionError, match="vim is broken") as caught:
        minion.call("pkg.upgrade")
    assert WHY in str(caught.value)
    results = minion.apply({"all": {"pkg.uptodate": []}})
    assert results["all"]["result"] is False
    assert "vim is broken" in results["all"]["comment"]
    assert results["all"]["comment"].count(WHY) == 1


def test_what_cannot_follow_a_whole_distribution_is_left_out_as_well(minion):
    returned = minion.call("pkg.upgrade", dist_upgrade=True)
    text = returned.pop("safeupdate")
    assert WHY in text
    assert "plugin" in text
    assert returned == OTHERS


def test_where_nothing_can_be_left_out_nothing_is_done(minion):
    minion.manager.can_keep = False
    with pytest.raises(CommandExecutionError, match="Nothing was changed"):
        minion.call("pkg.upgrade", dist_upgrade=True)
    assert minion.journal("upgrade") == []


def test_another_version_is_installed(minion):
    minion.store.clear(minion.store.quarantined())
    minion.store.quarantine({"salt-minion": "3"}, "u1", "it did not start")
    results = minion.apply({"own": {"pkg.latest": [{"name": "salt-minion"}]}})
    assert results["own"]["result"] is True
    assert minion.journal("install") == [BOTH]


def test_test_mode_says_it_beforehand(minion):
    state = {"pkg.latest": [{"pkgs": ["vim", "salt-minion"]}]}
    results = minion.apply({"own": state, "all": {"pkg.uptodate": []}}, test=True)
    for result in results.values():
        assert result["result"] is None
        assert WHY in result["comment"]
        assert "would be deferred" not in result["comment"]
    assert minion.journal("install", "upgrade") == []
