"""States of one run that remove the minion's own packages and install them, in any order."""

import json

import pytest

DEFERRED = "Deferred to the end of the run"
KINDS = ("note", "install", "remove", "purge", "hold", "unhold")
GONE = {"pkg.removed": [{"name": "salt-minion"}]}
HERE = {"pkg.installed": [{"name": "salt-minion"}]}
OWN = [{"name": "salt-minion"}]
BY_VERSION = {"pkg.installed": [*OWN, {"version": "2"}]}
AWAY = ("remove", "salt-minion")
BACK = ("install", "salt-minion")
BOTH = ("install", "salt-common", "salt-minion")


def note(**arguments):
    return {"note.that": [{key: arguments[key]} for key in arguments]}


def run(minion, *states, **more):
    """Apply the states in this order between two others; return their results in this order."""
    for name in ("salt-minion_1.deb", "salt-minion_2.deb"):
        (minion.path / name).touch()
    numbered = {f"s{number}": state for number, state in enumerate(states)}
    content = {"first": note(), **numbered, **more, "last": note()}
    results = minion.apply(json.loads(json.dumps(content).replace("{files}", str(minion.path))))
    return [results[name] for name in numbered]


def ended(minion):
    """Return what happened between the last other state and the end, and how the update ended."""
    journal = minion.journal(*KINDS)
    assert journal[:2] == [("note", "first"), ("note", "last")]
    return journal[2:], minion.record().phase.value


def untouched(minion, *results):
    """Nothing of the minion was changed, and the results say so."""
    assert minion.journal("install", "remove", "purge", "minion restarts") == []
    assert minion.database.installed["salt-minion"] == "1"
    for result in results:
        assert result["result"] is False
        assert "Nothing was changed" in result["comment"]
        assert not result["changes"]


REMOVALS = {
    "removed": GONE,
    "pkgs": {"pkg.removed": [{"pkgs": ["salt-minion"]}]},
    "purged": {"pkg.purged": [{"name": "salt-minion"}]},
    "module": {"module.run": [{"pkg.remove": [{"name": "salt-minion"}]}]},
    "legacy": {"module.run": [{"name": "pkg.purge"}, {"m_name": "salt-minion"}]},
}
INSTALLATIONS = {
    "installed": (HERE, "2"),
    "pkgs": ({"pkg.installed": [{"pkgs": ["salt-minion"]}]}, "2"),
    "same": ({"pkg.installed": [{"name": "salt-minion"}, {"version": "1"}]}, "1"),
    "pattern": ({"pkg.installed": [{"name": "salt-minion"}, {"version": "1*"}]}, "1"),
    "latest": ({"pkg.latest": [{"name": "salt-minion"}]}, "2"),
    "file": ({"pkg.installed": [{"sources": [{"salt-minion": "{files}/salt-minion_1.deb"}]}]}, "1"),
    "module": ({"module.run": [{"pkg.install": [{"name": "salt-minion"}]}]}, "2"),
    "legacy": ({"module.run": [{"name": "pkg.install"}, {"m_name": "salt-minion"}]}, "2"),
    "own state": ({"acts.install": [{"name": "salt-minion"}]}, "2"),
}


@pytest.mark.parametrize("installation", INSTALLATIONS)
@pytest.mark.parametrize("removal", ["removed", "purged"])
def test_what_is_removed_and_installed_is_there(minion, removal, installation):
    state, version = INSTALLATIONS[installation]
    gone, here = run(minion, REMOVALS[removal], state)
    away = ("purge" if removal == "purged" else "remove", "salt-minion")
    journal, phase = ended(minion)
    assert journal == [away, BOTH if version == "2" else BACK]
    assert phase == "committed", minion.record()
    assert minion.database.installed["salt-minion"] == version
    assert minion.journal()[-1] == ("minion restarts",)
    for result in (gone, here):
        assert result["result"] is True, result
        assert DEFERRED in result["comment"]
        assert "salt-minion" in str(result["changes"])
    assert minion.record().progress.again == ("salt-minion",)


@pytest.mark.parametrize("removal", REMOVALS)
def test_however_it_is_removed(minion, removal):
    gone, here = run(minion, REMOVALS[removal], HERE)
    assert (gone["result"], here["result"]) == (True, True)
    assert minion.journal(*KINDS)[-1] == BOTH
    assert minion.record().phase.value == "committed"


def test_it_is_removed_if_that_is_the_last_word(minion):
    here, gone = run(minion, HERE, GONE)
    assert ended(minion) == ([AWAY], "committed")
    assert "salt-minion" not in minion.database.installed
    assert (here["result"], gone["result"]) == (True, True)


@pytest.mark.parametrize(
    ("states", "version"),
    [
        ((GONE, HERE, GONE), None),
        ((GONE, HERE, GONE, HERE), "2"),
        ((HERE, GONE, HERE), "2"),
        (({"pkg.latest": [{"name": "salt-minion"}]}, GONE), None),
        (({"pkg.latest": [{"name": "salt-minion"}]}, GONE, HERE), "2"),
    ],
)
def test_the_last_word_counts(minion, states, version):
    results = run(minion, *states)
    assert minion.database.installed.get("salt-minion") == version
    assert minion.record().phase.value == "committed", minion.record()
    assert all(result["result"] is True for result in results)


@pytest.mark.parametrize("last", ["gone", "here"])
def test_order(minion, last):
    states = {"gone": GONE, "here": HERE}
    (function, arguments), *_ = states[last].items()
    states[last] = {function: [*arguments, {"order": "last"}]}
    results = minion.apply({**dict(reversed(states.items())), "other": note()})
    assert ("salt-minion" in minion.database.installed) is (last == "here")
    assert minion.journal("note") == [("note", "other")]
    assert all(result["result"] is True for result in results.values())


@pytest.mark.parametrize("requisite", ["require", "onchanges", "watch"])
def test_requisites_between_them(minion, requisite):
    (function, arguments), *_ = HERE.items()
    here = {function: [*arguments, {requisite: [{"pkg": "s0"}]}]}
    after = note(onchanges=[{"pkg": "s1"}])
    run(minion, GONE, here, after=after)
    journal = minion.journal(*KINDS)
    assert journal[1:] == [("note", "after"), ("note", "last"), AWAY, BOTH]


def test_a_condition_is_judged_where_the_state_stands(minion):
    marker = minion.path / "marker"
    (function, arguments), *_ = HERE.items()
    here = {function: [*arguments, {"unless": [f"test -e {marker}"]}]}
    then = {"cmd.run": [{"name": f"touch {marker}"}]}
    run(minion, GONE, here, then=then)
    assert minion.database.installed["salt-minion"] == "2"


def test_a_condition_that_does_not_hold_leaves_the_last_word_to_the_removal(minion):
    (function, arguments), *_ = HERE.items()
    _, here = run(minion, GONE, {function: [*arguments, {"unless": ["true"]}]})
    assert "salt-minion" not in minion.database.installed
    assert DEFERRED not in here["comment"]


def test_what_stands_between_them_keeps_its_place(minion):
    held = {"pkg.held": [{"pkgs": ["vim", "salt-minion"]}]}
    asks = {"module.run": [{"pkg.version": ["salt-minion"]}]}
    released = {"pkg.unheld": [{"name": "salt-minion"}]}
    _, hold, asked, unhold, here = run(minion, GONE, held, asks, released, HERE)
    journal = minion.journal(*KINDS)
    assert journal == [
        ("note", "first"),
        ("hold", "vim"),
        ("note", "last"),
        AWAY,
        ("hold", "salt-minion"),
        ("unhold", "salt-minion"),
        BOTH,
    ]
    assert asked["changes"] == {"pkg.version": ""}
    for result in (hold, asked, unhold, here):
        assert result["result"] is True, result
        assert DEFERRED in result["comment"]


def test_what_names_other_packages_stays_where_it_is(minion):
    run(minion, GONE, {"pkg.installed": [{"pkgs": ["curl", "salt-minion"]}]})
    assert minion.journal(*KINDS) == [
        ("note", "first"),
        ("install", "curl"),
        ("note", "last"),
        AWAY,
        BOTH,
    ]


def test_the_metadata_is_refreshed_once_and_before_anything_is_removed(minion):
    here = {"pkg.installed": [{"name": "salt-minion"}, {"refresh": True}]}
    run(minion, GONE, here, INSTALLATIONS["latest"][0])
    assert minion.journal("refresh_db", *KINDS) == [
        ("note", "first"),
        ("refresh_db",),
        ("note", "last"),
        AWAY,
        BOTH,
    ]


def test_in_a_run_inside_a_run(minion):
    minion.sls("inner", {"here": HERE})
    run(minion, GONE, {"module.run": [{"state.apply": [{"mods": "inner"}]}]})
    assert ended(minion) == ([AWAY, BOTH], "committed")


def test_the_configuration_stays(minion):
    """As the run leaves it: a removal takes files that other states of the run have written."""
    path = minion.path / "minion"
    minion.database.update(takes=[str(path)])
    write = {"file.managed": [{"name": str(path)}, {"contents": "master: other"}]}
    run(minion, GONE, HERE, write=write)
    assert path.read_text() == "master: other\n"
    assert minion.record().phase.value == "committed"


class TestAnUpdate:
    """What follows an update sees the updated package."""

    def test_is_held_after_it(self, minion):
        latest = {"pkg.latest": [{"name": "salt-minion"}]}
        run(minion, latest, {"pkg.held": [{"name": "salt-minion"}]})
        assert ended(minion) == ([BOTH, ("hold", "salt-minion")], "committed")

    @pytest.mark.parametrize("update", [INSTALLATIONS["latest"][0], BY_VERSION])
    def test_is_released_before_it_and_held_after_it(self, minion, update):
        """The same run once more changes no package. Real package managers: in the lab."""
        minion.database.update(locked=["salt-minion"])
        states = [{"pkg.unheld": OWN}, update, {"pkg.held": OWN}]
        released, updated, held = run(minion, *states)
        assert minion.journal(*KINDS) == [
            *(("note", "first"), ("unhold", "salt-minion"), ("note", "last")),
            *(BOTH, ("hold", "salt-minion")),
        ]
        assert [each["result"] for each in (released, updated, held)] == [True, True, True]
        assert updated["changes"]["salt-minion"] == {"old": "1", "new": "2"}
        before = minion.record()
        _, again, _ = run(minion, *states)
        assert (again["result"], again["changes"]) == (True, {})
        assert minion.record() == before
        assert minion.database.load()["locked"] == ["salt-minion"]

    def test_what_finds_it_installed_changes_nothing(self, minion):
        latest = {"pkg.latest": [{"name": "salt-minion"}]}
        reacts = note(onchanges=[{"pkg": "s1"}])
        _, here = run(minion, latest, HERE, reacts=reacts)
        assert ended(minion) == ([BOTH], "committed")
        assert here["result"] is True
        assert not here["changes"]
        assert "salt-minion" in here["comment"]

    def test_another_version_comes_after_it(self, minion):
        latest = {"pkg.latest": [{"name": "salt-minion"}]}
        older = {"pkg.installed": [{"pkgs": [{"salt-minion": "1"}, {"salt-common": "1"}]}]}
        run(minion, latest, older)
        assert ended(minion) == ([BOTH, BOTH], "committed")
        assert minion.database.installed["salt-minion"] == "1"


class TestRefused:
    """Whatever could leave the host without a minion is refused before anything happens."""

    def test_without_a_way_back(self, minion):
        minion.manager.online = False
        results = run(minion, GONE, HERE)
        untouched(minion, *results)
        assert "no way back if the installation fails" in results[1]["comment"]
        assert minion.record().phase.value == "failed"

    @pytest.mark.parametrize("version", [None, "1"])
    def test_without_an_offer(self, minion, version):
        offered = minion.database.load()["available"]
        del offered["salt-minion"]["1"]
        if version is None:
            del offered["salt-minion"]
        minion.database.update(available=offered)
        here = {"pkg.installed": [{"name": "salt-minion"}, {"version": version}]}
        results = run(minion, GONE, here)
        untouched(minion, *results)
        assert minion.record() is None

    def test_a_version_that_does_not_exist(self, minion):
        results = run(minion, GONE, {"pkg.installed": [{"pkgs": [{"salt-minion": "9"}]}]})
        untouched(minion, *results)
        assert "the installation would fail" in results[0]["comment"]

    def test_a_version_in_quarantine(self, minion):
        minion.store.quarantine({"salt-minion": "2"}, "u1", "it did not start.")
        results = run(minion, GONE, {"pkg.latest": [{"name": "salt-minion"}]})
        untouched(minion, *results)
        assert "was rolled back on this minion" in results[0]["comment"]

    def test_what_would_lose_the_package_with_the_unit(self, minion, monkeypatch):
        monkeypatch.setattr(minion.services, "unit_file", lambda unit: "/unit")
        monkeypatch.setattr(minion.manager, "owners", lambda paths: {"salt-minion"})
        gone = {"pkg.removed": [{"name": "salt-common"}]}
        results = run(minion, gone, {"pkg.installed": [{"name": "salt-common"}]})
        untouched(minion, *results)
        assert "salt-minion would be removed along with salt-common" in results[0]["comment"]

    def test_what_would_lose_a_package_that_the_run_has_installed(self, minion):
        offered = minion.database.load()["available"]
        minion.database.update(available={**offered, "tool": {"1": {"salt-minion": None}}})
        gone, tool = run(minion, GONE, {"pkg.installed": [{"name": "tool"}]})
        assert tool["result"] is True
        assert gone["result"] is False
        assert "tool, which this run has installed, would be removed" in gone["comment"]
        assert minion.database.installed["tool"] == "1"
        assert minion.record() is None


def test_an_installation_that_fails_brings_the_old_one_back(minion):
    path = minion.path / "minion"
    path.write_text("master: mine\n")
    minion.database.update(broken={"salt-common": "it broke"}, takes=[str(path)])
    gone, here = run(minion, GONE, HERE)
    assert (gone["result"], here["result"]) == (True, False)
    assert "it broke" in here["comment"]
    record = minion.record()
    assert record.phase.value == "rolled_back", record
    assert "half done: salt-minion" in record.reason
    assert minion.database.installed["salt-minion"] == "1"
    assert path.read_text() == "master: mine\n"
    assert minion.journal()[-1] == ("minion restarts",)


def test_a_removal_that_fails_leaves_the_minion_alone(minion):
    minion.database.update(broken={"salt-minion": "it broke"})
    gone, here = run(minion, GONE, HERE)
    assert (gone["result"], here["result"]) == (False, False)
    assert minion.database.installed["salt-minion"] == "1"
    assert minion.record().phase.value == "failed"
    assert ("minion restarts",) not in minion.journal()


def test_in_test_mode_nothing_waits(minion):
    results = minion.apply({"gone": GONE, "here": HERE}, test=True)
    assert results["gone"]["result"] is None
    assert results["here"]["result"] is True
    assert minion.record() is None
