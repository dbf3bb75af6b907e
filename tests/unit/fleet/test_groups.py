"""Groups of their own kind: limits, windows, canaries and soak of each."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import plan, request, steering, summary, text, way_back
from saltext_safeupdate.fleet.rollout import Mode, Step
from tests.unit.fleet.world import NOW, OLD, Host, World, ended

DAY = 86400.0
WEB, DB = [f"web{n}" for n in range(12)], [f"db{n}" for n in range(6)]
MEMBERS = {"web": WEB, "db": DB}


def groups(web: dict | None = None, db: dict | None = None) -> list[dict]:
    return [
        {"name": "web", "target": "web*", **(web or {})},
        {"name": "db", "target": "db*", **(db or {})},
    ]


def world(hosts: list[Host] | None = None, seed: int = 0, **wanted: object) -> World:
    hosts = hosts or [Host(name) for name in (*WEB, *DB)]
    return World(hosts, seed, members=MEMBERS, **{"jitter": 0, "soak": 0, **wanted})


def test_a_group_has_what_it_says_itself_and_the_rest_of_the_rollout() -> None:
    own = {"canaries": 0, "waves": ["50%"], "max_unavailable": 1, "windows": "02:00-03:00"}
    wanted = request.from_mapping(
        {"groups": groups(db=own), "version": "1.0", "soak": 60, "max_unavailable": 4}
    )
    of_db, of_web = wanted.of("db"), wanted.of("web")
    assert (of_db.canaries, of_db.soak, of_web.canaries, of_web.windows) == (0, 60, None, ())
    facts = {name: plan.Facts(version=OLD) for name in (*WEB, *DB)}
    made = plan.make(wanted, MEMBERS, facts, plan_id="p", number=1, now=NOW, seconds=100)
    assert [(w.group, len(w.minions), w.canary) for w in made.waves if w.group == "db"] == [
        ("db", 3, False),
        ("db", 3, False),
    ]
    assert (made.unavailable, made.limits) == (4, {"db": 1})
    assert plan.from_data(json.loads(json.dumps(plan.to_data(made)))) == made
    assert "  db: canaries 0; waves 50%; max_unavailable 1; windows 02:00-03:00" in (
        text.plan_text(made).splitlines()
    )


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"version": "1.1"}, "of the settings of a rollout canaries"),
        ({"max_failed": 1}, "of the settings of a rollout canaries"),
        ({"soak": "x"}, "The group db: 'soak' must be"),
        ({"windows": "at night"}, "The group db: The window"),
    ],
)
def test_what_a_group_may_not_say(own: dict, why: str) -> None:
    with pytest.raises(InputError, match=why):
        request.from_mapping({"groups": groups(db=own), "version": "1.0"})


def test_a_plan_without_them_is_stored_as_before() -> None:
    stored = request.to_mapping(request.from_mapping({"groups": groups(), "version": "1.0"}))
    assert all(set(each) == {"name", "target", "tgt_type"} for each in stored["groups"])


def test_no_more_of_a_group_are_away_than_it_allows() -> None:
    found = world(groups=groups(db={"max_unavailable": 1}), max_unavailable=4)
    found.run(2 * DAY, watch=World.check)
    assert (found.rollout.mode, set(found.steps().values())) == (Mode.FINISHED, {"done"})


def test_one_of_a_group_that_is_down_for_good_stops_it_with_the_reason() -> None:
    hosts = [Host(name) for name in (*WEB, *DB)]
    hosts[len(WEB) + 1].ends = "failed"
    own = {"max_unavailable": 1, "canaries": 1, "sample": 0}
    found = world(hosts, groups=groups(db=own), max_unavailable=4, max_failed=3)
    found.run(2 * DAY, watch=World.check)
    assert found.rollout.mode is Mode.STOPPED
    assert found.rollout.why.startswith("nobody can begin: 1 of db may be away at once, and 1 is: ")
    steering.resume(found.rollout, found.now)
    found.run(2 * DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED


def test_each_group_is_started_in_its_own_windows() -> None:
    # It is 20:26 UTC on 2026-05-28.
    own = {"windows": "02:00-03:00", "closed": "2026-05-29", "soak": 600}
    found = world(groups=groups(db=own))
    began: dict[str, float] = {}

    def watch(world: World) -> None:
        world.check()
        for host in world.hosts.values():
            if host.taken:
                began.setdefault(host.name, world.now)

    found.run(6 * 3600, watch=watch)
    assert set(began) == set(WEB), "the others are not waited for"
    told = summary.summary(found.rollout, found.now)
    assert told["window_begins"] == NOW // DAY * DAY + 2 * DAY + 2 * 3600
    found.run(8 * DAY, watch=watch)
    assert found.rollout.mode is Mode.FINISHED
    assert all(2 <= began[name] % DAY / 3600 < 3 for name in DB)
    assert min(began[name] for name in DB) > NOW // DAY * DAY + 2 * DAY


def test_a_group_whose_last_window_is_over_stops_it() -> None:
    own = {"windows": "2026-05-28 20:00-20:40"}
    found = world(groups=groups(db=own))
    found.run(2 * DAY, watch=World.check)
    assert found.rollout.mode is Mode.STOPPED
    assert "no window opens any more" in found.rollout.why
    assert all(found.steps()[name] == "done" for name in WEB)


def test_a_group_has_its_own_patience() -> None:
    hosts = [Host(name, takes=5000.0) for name in (*WEB, *DB)]
    own = {"minion_timeout": 9000}
    found = world(hosts, groups=groups(web=own), minion_timeout=600, canaries=1)
    found.run(2 * DAY)
    steps = found.steps()
    assert {steps[name] for name in WEB} == {"done"}
    assert {steps[name] for name in DB} == {"timed_out", "waiting"}
    assert "has not ended after 600 s" in found.rollout.why


def test_a_way_back_goes_by_the_limits_of_each_group() -> None:
    found = world(groups=groups(db={"max_unavailable": 1})).run(2 * DAY)
    back = request.from_mapping(way_back.settings([found.rollout], "r1", {}, None))
    assert [(each.name, dict(each.own)) for each in back.groups] == [
        ("web", {}),
        ("db", {"max_unavailable": request.Share(1)}),
    ]


ONE = st.fixed_dictionaries(
    {},
    optional={
        "ends": st.sampled_from(["committed", "committed", "rolled_back", "hangs", "failed"]),
        "takes": st.sampled_from([30.0, 400.0]),
        "loses": st.sampled_from([0.0, 0.3]),
        "away": st.sampled_from([(), ((NOW + 600, NOW + 9000),), ((0.0, 2e9),)]),
    },
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_unavailable": st.sampled_from([1, 2, "50%"]),
        "canaries": st.sampled_from([0, 1, 3]),
        "soak": st.sampled_from([0, 600]),
        "sample": st.sampled_from([0, "50%", "100%"]),
        "windows": st.sampled_from(["20:00-23:00", "01:00-05:00"]),
    },
)


@settings(max_examples=15, deadline=None)
@given(st.lists(ONE, min_size=18, max_size=18), LIMITS, LIMITS, st.integers(0, 10**6))
def test_whatever_groups_say_no_limit_is_exceeded_and_it_ends(
    drawn: list[dict], web: dict, db: dict, seed: int
) -> None:
    hosts = [Host(name, **each) for name, each in zip((*WEB, *DB), drawn, strict=True)]
    found = world(hosts, seed, groups=groups(web, db), max_unavailable=3, late_timeout=7200)
    for round_ in range(12):
        found.run(2 * DAY, restarts=0.02, watch=World.check)
        if ended(found):
            break
        for host in found.hosts.values():
            if host.phase in ("failed", "hangs"):
                host.phase = "rolled_back"
        if round_ == 10:
            steering.abort(found.rollout, "enough", found.now)
        else:
            steering.resume(found.rollout, found.now)
    assert ended(found), (found.rollout.mode, found.rollout.why, found.steps())
    assert found.rollout.count(Step.ASKED, Step.UPDATING) == 0
