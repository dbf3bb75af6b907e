"""What a policy means, whom it would bring along, and what it waits for."""

import dataclasses

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import adrift, inventory, policy
from saltext_safeupdate.fleet.policy import Known
from saltext_safeupdate.fleet.policy_text import policy_lines

NOW = 1_780_000_000.0
GROUPS = [
    {"name": "web", "target": "web*", "version": "3008.3", "max_unavailable": 2},
    {"name": "rest", "target": "*", "version": "3007"},
]
WEB, DB = ("web1", "web2", "web3"), ("db1", "db2")


def record(name, running="3007.15", **more):
    answer = {"running": running, "installed": running, "extension": "1.0", "phase": "idle"}
    return inventory.from_answer(name, answer | more, NOW)


def known(**changes):
    names = (*WEB, *DB)
    found = Known(
        members={"web": WEB, "rest": names},
        records={name: record(name) for name in names},
        heard=frozenset(names),
        now=NOW,
        master="3008.3",
        newest={"3007": "3007.16"},
    )
    return dataclasses.replace(found, **changes)


def looked(groups=GROUPS, enabled=True, **changes):
    found = policy.parse({"groups": groups, "enabled": enabled})
    return {each.group: each for each in policy.look(found, known(**changes))}


def test_a_minion_belongs_to_the_first_group_that_means_it() -> None:
    found = looked()
    assert (found["web"].bring, found["web"].version) == (WEB, "3008.3")
    assert (found["rest"].bring, found["rest"].version) == (DB, "3007.16")
    assert found["rest"].goal == "Salt 3007 (3007.16)"
    following = policy.following(list(found.values()))
    assert [each.group for each in following] == ["web", "rest"]


def test_who_is_there_is_left_alone_and_nothing_comes_next() -> None:
    records = {name: record(name, "3008.3") for name in WEB} | {
        name: record(name, "3007.16", installed="3007.16-1") for name in DB
    }
    found = looked(records=records)
    assert {each.group: (each.there, each.bring, dict(each.left)) for each in found.values()} == {
        "web": (3, (), {}),
        "rest": (2, (), {}),
    }
    assert policy.following(list(found.values())) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"records": {}}, "does not answer; it is updated when it does"),
        ({"heard": frozenset(DB)}, "does not answer; it is updated when it does"),
        ({"records": {"web1": inventory.from_answer("web1", 5, NOW)}}, "gave a senseless answer"),
        (
            {"records": {"web1": inventory.from_answer("web1", "'x' is not available.", NOW)}},
            "does not have this extension",
        ),
        (
            {"records": {"web1": inventory.from_answer("web1", "'x' is not available.", NOW, "W")}},
            "unsupported: W",
        ),
        ({"records": {"web1": record("web1", held="ask Jo")}}, "held: ask Jo"),
        ({"records": {"web1": record("web1", phase="installing")}}, "an update is under way"),
        ({"records": {"web1": record("web1", quarantined=["3008.3-1"])}}, "has rolled 3008.3 back"),
        ({"records": {"web1": record("web1", "3009.0")}}, "runs 3009.0, which is newer"),
        ({"taken": {"web1": "r7"}}, "is in the rollout r7"),
        (
            {"given_up": {"3008.3": {"web1": "failed in the rollout r6"}}},
            "failed in the rollout r6",
        ),
        ({"unsure": {"web": ["web1"]}}, "its grains or pillar are not known"),
    ],
)
def test_who_is_left_out_and_why(changes: dict, why: str) -> None:
    if changes.get("records"):
        changes["records"] = {name: record(name) for name in (*WEB, *DB)} | changes["records"]
    found = looked(**changes)["web"]
    assert found.left["web1"].startswith(why)
    assert "web1" not in found.bring


def test_a_downgrade_has_to_be_meant() -> None:
    groups = [{"name": "all", "target": "*", "version": "3007.15", "allow_downgrade": True}]
    records = {"web1": record("web1", "3008.3")}
    assert looked(groups, members={"all": ["web1"]}, records=records)["all"].bring == ("web1",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"enabled": False}, "the policy is switched off"),
        ({"rollouts": {"r7": "stopped"}}, "the rollout r7 is stopped, and there is one at a time"),
        ({"quarantined": {"3008.3": "it is bad"}}, "3008.3 is in quarantine: it is bad"),
        ({"master": "3007.20"}, "3008.3 is newer than this master, which has 3007.20"),
    ],
)
def test_what_a_group_waits_for(changes: dict, why: str) -> None:
    found = looked(**changes)
    assert found["web"].waits == why
    assert found["web"].bring == WEB, "it says whom it would bring along"
    others = "quarantined" in changes or "master" in changes
    following = [each.group for each in policy.following(list(found.values()))]
    assert following == (["rest"] if others else [])


def test_a_series_whose_newest_version_nobody_knows_brings_nobody_along() -> None:
    found = looked(newest={})["rest"]
    assert (found.bring, found.there, dict(found.left)) == ((), 0, {})
    assert "the newest version of 3007 is not known" in found.waits


def test_each_group_has_its_own_windows_and_closed_days() -> None:
    # 2026-05-28, a Thursday, 20:26 UTC.
    groups = [
        {"name": "web", "target": "web*", "version": "3008.3", "windows": "20:00-22:00"},
        {"name": "db", "target": "db*", "version": "3008.3", "windows": ["02:00-03:00"]},
        {"name": "late", "target": "l*", "version": "3008.3", "closed": "2026-05-28 - 2026-05-30"},
        {"name": "past", "target": "p*", "version": "3008.3", "windows": "2026-05-27 02:00-03:00"},
    ]
    members = {"web": WEB, "db": DB, "late": (), "past": ()}
    found = looked(groups, members=members)
    assert {name: each.waits for name, each in found.items()} == {
        "web": "",
        "db": "closed until 2026-05-29 02:00:00 UTC",
        "late": "closed until 2026-05-31 00:00:00 UTC",
        "past": "no window opens again",
    }


def test_the_extension_is_brought_along_too() -> None:
    groups = [{"name": "all", "target": "*", "version": "3007.15", "extension": "1.1"}]
    records = {"web1": record("web1"), "web2": record("web2", extension="1.1")}
    found = looked(groups, members={"all": WEB[:2]}, records=records)["all"]
    assert (found.there, found.bring) == (1, ("web1",))
    assert found.goal == "the extension 1.1 and Salt 3007.15"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "is a mapping with 'groups'"),
        ([], "is a mapping with 'groups'"),
        ({}, "'groups' of a policy must be a list"),
        ({"groups": []}, "'groups' of a policy must be a list"),
        ({"groups": {"web": {}}}, "'groups' of a policy must be a list"),
        (
            {"group": GROUPS},
            "A policy has no setting group. Known: defaults, enabled, groups, side",
        ),
        ({"groups": GROUPS, "enabled": "no"}, "'enabled' of a policy must be true or false"),
        ({"groups": GROUPS, "side_by_side": 1}, "'side_by_side' of a policy must be true or"),
        ({"groups": ["web*"]}, "Group 1 of the policy is no mapping"),
        ({"groups": [{"target": "*", "version": "3008.3"}]}, "has no 'name'"),
        ({"groups": [GROUPS[0], GROUPS[0]]}, "have one name"),
        ({"groups": [{"name": "a", "version": "3008.3"}]}, "no target"),
        ({"groups": [{"name": "a", "target": "*"}]}, "needs a 'version'"),
        (
            {"groups": [{"name": "a", "target": "*", "version": 3007.1}]},
            "has arrived as the number",
        ),
        (
            {"groups": [{"name": "a", "target": "*", "version": "3008.3", "soak": "x"}]},
            "'a' .*soak",
        ),
        ({"groups": [{"name": "a", "target": "*", "version": "1", "at": 5}]}, "no setting at"),
        ({"groups": [{"name": "a", "target": "*", "version": "1", "back": "r"}]}, "setting back"),
        ({"groups": GROUPS, "defaults": {"target": "*"}}, "'defaults' .*no setting target"),
        ({"groups": GROUPS, "defaults": {"windows": "at night"}}, "not understood"),
        ({"groups": GROUPS, "defaults": ["x"]}, "'defaults' of a policy must be a mapping"),
    ],
)
def test_a_policy_that_is_not_understood_is_none(data: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        policy.parse(data)


def test_defaults_are_those_of_all_groups_that_do_not_say_otherwise() -> None:
    data = {"groups": GROUPS, "defaults": {"max_unavailable": 7, "version": "3006.1", "soak": 5}}
    web, rest = policy.parse(data).groups
    assert (web.wanted.max_unavailable.amount, rest.wanted.max_unavailable.amount) == (2, 7)
    assert (web.wanted.version, web.wanted.soak, rest.wanted.soak) == ("3008.3", 5, 5)
    assert (web.series, rest.series) == ("", "3007")


def test_who_does_not_run_what_is_meant_has_drifted() -> None:
    found = policy.wanted_by(policy.parse({"groups": GROUPS}), known())
    assert found["web1"] == ("3008.3", "web")
    assert found["db1"] == ("3007.16", "rest")
    records = {"web1": record("web1"), "web2": record("web2", "3008.3"), "db1": record("db1")}
    drifts = adrift.by_policy(records, found, frozenset(("web1", "web2")))
    assert [(each.minion, each.code) for each in drifts] == [("web1", "not-by-policy")]
    assert drifts[0].problem == ("3007.15 runs, and the group web of the policy is to run 3008.3.")


def test_it_is_shown_in_lines_that_a_terminal_does_not_obey() -> None:
    records = {name: record(name) for name in (*WEB, *DB)}
    records["web1"] = record("web1", held="a\x1b[2J\nweb9: done")
    found = list(looked(records=records).values())
    told = {"policy": "/etc/x", "enabled": True, "next": "web", "begun": ""}
    told["groups"] = [vars(each) for each in found]
    text = policy_lines(told)
    assert all(line.isprintable() for line in text.splitlines())
    assert "web: Salt 3008.3, 0 of 3 minions run it" in text
    assert "  to be brought along (2): web2, web3" in text
    assert "  left out (1): held: a" in text
    assert text.endswith("A rollout of web comes next: 'apply=True' begins it.")
    assert policy_lines({**told, "begun": "r1"}).endswith("The rollout r1 of web has begun.")
    assert policy_lines({**told, "next": ""}).endswith("Nothing is to be begun now.")


def test_a_setting_without_a_value_is_that_of_the_defaults() -> None:
    """YAML makes that of a list whose entries are comments; a window would be open for ever."""
    defaults = {"windows": ["sun 01:00-02:00"], "max_unavailable": 1, "version": "3008.3"}
    group = {"name": "a", "target": "*", **dict.fromkeys(defaults)}
    (found,) = policy.parse({"defaults": defaults, "groups": [group]}).groups
    assert [each.text for each in found.wanted.windows] == ["sun 01:00-02:00"]
    assert str(found.wanted.max_unavailable) == "1"
    assert found.wanted.version == "3008.3"
    (always,) = policy.parse({"defaults": defaults, "groups": [{**group, "windows": []}]}).groups
    assert always.wanted.windows == ()


@pytest.mark.parametrize("name", [False, True, 3.1, None, ["a"], {"a": "b"}])
@pytest.mark.parametrize("setting", ["exclude", "target"])
def test_a_name_that_yaml_has_changed_is_refused(setting: str, name: object) -> None:
    """``no`` is a boolean and 3.10 is 3.1: the host that is to be left alone would be updated."""
    group = {"name": "a", "target": "*", "version": "3008.3", setting: ["web1", name]}
    with pytest.raises(InputError, match="put it in quotes"):
        policy.parse({"groups": [group]})
