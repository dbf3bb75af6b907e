"""Who is in which wave, who is left out, and what is refused."""

import datetime
import json
import zoneinfo

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import plan, request, rollout, share, text, window
from saltext_safeupdate.fleet.manner import manner, to_fetch
from saltext_safeupdate.fleet.plan import Facts

NAMES = [f"m{number:02}" for number in range(20)]
ALL = {name: Facts(version="3007.15") for name in NAMES}


def made(facts=ALL, members=None, **wanted):
    request.refuse_time_of_day(wanted)
    asked = request.from_mapping({"groups": "*", "version": "3008.3", **wanted})
    members = members or {group.name: NAMES for group in asked.groups}
    return plan.make(asked, members, facts, plan_id="p", number=7, now=1.0, seconds=100)


def test_canaries_then_growing_waves() -> None:
    found = made()
    assert [len(wave.minions) for wave in found.waves] == [2, 1, 5, 12]
    assert [wave.canary for wave in found.waves] == [True, False, False, False]
    assert sorted(found.minions) == NAMES
    assert (found.unavailable, found.failed) == (2, 0)


@pytest.mark.parametrize(
    ("count", "waves", "unavailable"),
    [
        (1, [1], 1),
        (2, [1, 1], 1),
        (5, [1, 4], 1),
        (6, [1, 5], 2),
        (9, [1, 8], 2),
        (10, [2, 1, 2, 5], 2),
        (29, [2, 2, 8, 17], 2),
        (30, [2, 2, 8, 18], 3),
    ],
)
def test_the_defaults_are_those_for_a_fleet_of_this_size(count, waves, unavailable) -> None:
    names = [f"m{number:02}" for number in range(count)]
    facts = {name: Facts(version="3007.15") for name in names}
    found = made(facts, {"group 1": names})
    assert [len(wave.minions) for wave in found.waves] == waves
    assert found.unavailable == unavailable
    said = "canaries and waves as for a small group: group 1" if count < 10 else ""
    assert found.sized == said
    assert said in text.plan_text(found)
    assert plan.from_data(json.loads(json.dumps(plan.to_data(found)))) == found
    given = made(facts, {"group 1": names}, canaries=0, waves=["100%"], max_unavailable=1)
    assert (len(given.waves), given.unavailable, given.sized) == (1, 1, "")


def test_a_few_that_are_left_of_a_large_group_are_not_a_small_one() -> None:
    facts = {name: Facts(version="3007.15" if name < "m05" else "3008.3") for name in NAMES}
    found = made(facts)
    assert ([len(wave.minions) for wave in found.waves], found.sized) == ([2, 1, 1, 1], "")
    assert found.unavailable == 1


def test_the_last_size_repeats() -> None:
    found = made(waves=[1, 4], canaries=0)
    assert [len(wave.minions) for wave in found.waves] == [1, 4, 4, 4, 4, 3]


def test_groups_keep_their_order_and_nobody_is_in_two() -> None:
    groups = [{"name": "web", "target": "w*"}, {"name": "rest", "target": "*"}]
    members = {"web": ["m03", "m01"], "rest": NAMES}
    found = made(groups=groups, members=members, canaries=1, waves=["100%"])
    assert [(wave.group, len(wave.minions)) for wave in found.waves] == [
        ("web", 1),
        ("web", 1),
        ("rest", 1),
        ("rest", 17),
    ]
    assert len(set(found.minions)) == 20


def test_who_is_left_out_and_why() -> None:
    facts = {**ALL, "m01": Facts(version="3008.3"), "m02": Facts("3007.15", problem="disk full")}
    del facts["m03"]
    found = made(facts, exclude=["m04"])
    assert found.left_out == {
        "m01": "runs 3008.3 already",
        "m02": "disk full",
        "m04": "excluded",
    }
    assert found.away == {"m03"}
    assert "m03" in found.minions, "it is updated when it comes back"
    assert "m03" not in found.waves[0].minions, "but is no canary"


def test_who_is_held_is_left_out_and_is_no_problem() -> None:
    facts = {**ALL, "m01": Facts("3007.15", held="ask Jo"), "m02": Facts("3008.3", held="Jo")}
    facts["m03"] = Facts("3007.15", held="Jo", problem="disk full")
    found = made(facts)
    assert found.left_out == {
        "m01": "held: ask Jo",
        "m02": "runs 3008.3 already",
        "m03": "held: Jo",
    }
    assert found.unfit == frozenset()
    with pytest.raises(InputError, match="No minion is left to update: m01 held: ask Jo"):
        made(facts, members={"group 1": ["m01"]})
    assert not made(facts, members={"group 1": ["m01", "m02"]}).waves, "the other one is there"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"max_unavailable": "1%"}, "'max_unavailable: 1%' of 20 minions is less than one"),
        ({"waves": ["2%"], "canaries": 0}, "'waves: 2%' of 20 minions is less than one"),
        ({"max_unavailable": 0}, "'max_unavailable' must be"),
        ({"max_unavailable": "110%"}, "'max_unavailable' must be"),
        ({"max_failed": "-1"}, "'max_failed' must be"),
        ({"max_failed": True}, "'max_failed' must be"),
        ({"waves": []}, "'waves' needs"),
        ({"groups": None}, "needs a target"),
        ({"groups": []}, "list of targets"),
        ({"groups": [{"target": ""}]}, "no target"),
        ({"groups": [{"target": "*", "tgt_type": "magic"}]}, "type 'magic'"),
        ({"groups": [{"target": "*", "size": 1}]}, "'name', 'target', 'tgt_type'"),
        ({"groups": [{"name": "a", "target": "x"}, {"name": "a", "target": "y"}]}, "one name"),
        ({"version": None}, "needs a 'version'"),
        ({"version": ["3008"]}, "'version' must be"),
        ({"soak": "long"}, "'soak' must be"),
        ({"minion_timeout": 0}, "'minion_timeout' must be"),
        ({"at": 1320}, "'at' is 1320, and has to be in seconds since 1970"),
        ({"canaries": -1}, "'canaries' must be"),
        ({"stage": "yes"}, "'stage' must be"),
        ({"speed": 1}, "no setting speed"),
        ({"windows": ["25:00-26:00"]}, "impossible time"),
        ({"windows": ["02:00-02:00"]}, "no length"),
        ({"windows": ["someday 02:00-03:00"]}, "unknown day"),
        ({"windows": ["02:00-03:00 Mars/Base"]}, "unknown time zone"),
        ({"windows": ["at night"]}, "not understood"),
    ],
)
def test_what_is_refused(wanted, said) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        made(**wanted)


def test_a_target_that_means_nobody() -> None:
    with pytest.raises(InputError, match="matches no minion"):
        made(members={"group 1": []})
    with pytest.raises(InputError, match="No minion is left to update: m00 excluded"):
        made(exclude=NAMES)


def test_a_plan_for_those_who_have_it_already_has_nothing_to_do() -> None:
    there = dict.fromkeys(NAMES, Facts(version="3008.3"))
    found = made(there, exclude=["m00"])
    assert (found.waves, found.minions) == ((), ())
    assert plan.nothing_to_do(found) == "nothing to do: runs 3008.3 already (19), excluded (1)"
    assert plan.from_data(json.loads(json.dumps(plan.to_data(found)))) == found
    assert plan.nothing_to_do(made()) == ""
    with pytest.raises(InputError, match=r"No minion is left to update: m03 the disk is full\."):
        made(there | {"m03": Facts(version="3008.3", problem="the disk is full")})


def test_a_share_of_a_fleet_that_is_nearly_done_is_one() -> None:
    """Of those that are left it is less than one: whoever repeats a rollout changes no setting."""
    there = dict.fromkeys(NAMES, Facts(version="3008.3")) | {"m07": Facts(version="3007.15")}
    found = made(there, max_unavailable="10%", waves=["10%"], canaries=0)
    assert (found.unavailable, found.minions) == (1, ("m07",))
    with pytest.raises(InputError, match="of 1 minions is less than one"):
        made(there, max_unavailable="4%")


def test_a_plan_and_a_rollout_are_data() -> None:
    found = made(windows=["mon-fri 22:00-04:00 Europe/Berlin"], waves=["10%", 5], exclude=["x"])
    stored = json.loads(json.dumps(plan.to_data(found)))
    assert plan.from_data(stored) == found
    early = plan.from_data({**stored, "request": {**stored["request"], "at": 1200}})
    assert early.request.at == 1200, "nobody would be asked to mend what is stored already"
    begun = rollout.begin(found, 5.0)
    assert rollout.from_data(json.loads(json.dumps(rollout.to_data(begun)))) == begun
    for module, data in ((plan, stored), (rollout, rollout.to_data(begun))):
        with pytest.raises(InputError, match="another version"):
            module.from_data({**data, "schema": 99})


def test_an_earlier_version_is_told_nothing_that_it_does_not_know_unless_it_is_needed() -> None:
    later = {"closed", "allow_downgrade", "back", "keep", "source"}
    assert not later.intersection(request.to_mapping(made().request))
    asked = {"closed": "2026-12-24", "allow_downgrade": True, "keep": True, "back": "r1"}
    asked["source"] = "salt://builds"
    needed = request.from_mapping({"groups": "*", "version": "3008.3", **asked})
    assert later.issubset(request.to_mapping(needed))
    assert request.from_mapping(request.to_mapping(needed)) == needed


@pytest.mark.parametrize(
    "source", ["packages", "/srv/builds", "file:///b", "salt://builds?saltenv=p"]
)
def test_minions_are_told_where_a_version_comes_from(source: str) -> None:
    asked = request.from_mapping({"groups": "*", "version": "3008.3", "source": source})
    assert manner(asked) == {"source": source}
    wanted = {"version": "3008.3", "extension": "", "source": source}
    assert to_fetch(asked, ("3008.3", "")) == wanted
    plain = request.from_mapping({"groups": "*", "version": "3008.3"})
    assert manner(plain) == {}
    assert to_fetch(plain, ("3008.3", "")) == {"version": "3008.3", "extension": ""}


@pytest.mark.parametrize("source", ["builds", "http://x/y", 5, True, ["/x"]])
def test_what_is_no_source_is_refused(source: object) -> None:
    with pytest.raises(InputError, match="'source' must be"):
        request.from_mapping({"groups": "*", "version": "3008.3", "source": source})


def test_what_a_later_version_has_added_is_left_out() -> None:
    data = rollout.to_data(rollout.begin(made(), 5.0))
    data["later"] = 1
    data["minions"]["m00"]["later"] = 1
    assert rollout.from_data(data).minions["m00"] == rollout.Minion()


def test_an_estimate_comes_from_the_fleets_own_time() -> None:
    found = made(soak=10, jitter=0)
    # Rounds of two: 1 + 1 + 3 + 6, and three pauses.
    assert found.expected == 11 * 100 + 3 * 10


@pytest.mark.parametrize(
    ("given", "total", "allows", "needs"),
    [("10%", 25, 2, 3), ("3", 25, 3, 3), (3, 2, 3, 2), ("0", 5, 0, 0), ("100%", 7, 7, 7)],
)
def test_a_share_is_rounded_to_the_safe_side(given, total, allows, needs) -> None:
    found = share.parse("x", given, zero=True)
    assert (found.allows(total), found.needs(total)) == (allows, needs)


def at(text: str, zone: str) -> float:
    local = datetime.datetime.fromisoformat(text)
    return local.replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "zone", "open_", "begins"),
    [
        ("2026-11-20T23:00", "Europe/Berlin", True, "2026-11-20T23:00"),  # Friday
        ("2026-11-21T03:59", "Europe/Berlin", True, "2026-11-21T03:59"),  # its night
        ("2026-11-21T04:00", "Europe/Berlin", False, "2026-11-23T22:00"),
        ("2026-11-21T23:00", "Europe/Berlin", False, "2026-11-23T22:00"),  # Saturday
        ("2026-11-23T21:59", "Europe/Berlin", False, "2026-11-23T22:00"),
        ("2026-11-23T21:30", "UTC", True, "2026-11-23T22:30"),
    ],
)
def test_a_window_over_midnight(text, zone, open_, begins) -> None:
    found = window.parse("mon-fri 22:00-04:00 Europe/Berlin")
    assert found.contains(at(text, zone)) is open_
    assert found.begins(at(text, zone)) == at(begins, "Europe/Berlin")


def test_a_window_in_the_night_in_which_clocks_change() -> None:
    # 2026-03-29 in Berlin: 02:00 is 03:00. The window has no length that night, and comes again.
    found = window.parse("02:00-03:00 Europe/Berlin")
    assert not any(
        found.contains(at("2026-03-29T00:00", "Europe/Berlin") + minute * 60)
        for minute in range(300)
    )
    long = window.parse("01:30-03:30 Europe/Berlin")
    inside = [
        minute
        for minute in range(300)
        if long.contains(at("2026-03-29T00:00", "Europe/Berlin") + minute * 60)
    ]
    assert len(inside) == 60, "an hour shorter"
    assert found.begins(at("2026-03-29T00:00", "Europe/Berlin")) >= at(
        "2026-03-29T01:00", "Europe/Berlin"
    )
    assert window.is_open((), 0.0)
    assert window.next_begin((found, long), at("2026-06-01T01:40", "Europe/Berlin")) == at(
        "2026-06-01T01:40", "Europe/Berlin"
    )


def test_a_beginning_in_milliseconds_is_refused() -> None:
    """Nobody would be started for fifty thousand years, and no window reckons with that."""
    with pytest.raises(InputError, match="has to be in seconds since 1970"):
        made(at=1_795_326_896_000, windows=["22:00-04:00"])
