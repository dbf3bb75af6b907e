"""Plans and rollouts as a person reads them, whatever minions say."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_safeupdate.fleet import plan, request, summary, text
from tests.unit.fleet.world import NEW, NOW, NUMBER, OLD, Host, World

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e\u2028done[bold red]x[/]\x00"


def stopped() -> World:
    hosts = [Host(f"m{number:02}") for number in range(20)]
    hosts[3].ends = "rolled_back"
    return World(hosts, soak=30, max_failed=0).run(86400)


def test_a_rollout_that_has_stopped() -> None:
    world = stopped()
    told = text.text(summary.summary(world.rollout, world.now)).splitlines()
    assert told[0] == f"Rollout r1: stopped, wave 3 of 4, Salt {NEW}"
    assert told[1].strip() == world.rollout.why
    assert {"[", "!", "#"} <= set(told[2])
    assert "1 rolled back" in told[3]
    assert "1 failed (0 may)" in told[4]
    assert re.search("one minion takes .* an hour", told[5])
    problems = told.index("Problems")
    assert told[problems + 1].split()[:3] == ["m03", "rolled", "back"]
    assert problems < told.index("Waves"), "problems come first"
    assert len(told) - told.index("Waves") - 1 == 4
    assert "(canaries)" in told[told.index("Waves") + 1]


def test_nothing_that_minions_say_leaves_its_line() -> None:
    world = stopped()
    world.rollout.minions["m03"].reason = EVIL * 20
    found = summary.summary(world.rollout, world.now)
    found["problems"][0]["minion"] = EVIL
    harmless = text.text(summary.summary(stopped().rollout, world.now)).splitlines()
    told = text.text(found)
    assert len(told.splitlines()) == len(harmless)
    assert [char for char in told if unicodedata.category(char)[0] == "C"] == ["\n"] * told.count(
        "\n"
    )
    assert "[bold red]" in told, "it is shown as it was said"
    for line in text.changes(None, found):
        assert text.clean(line, 1000) == line.replace("UTC  ", "UTC ")


@given(st.text(max_size=400))
def test_clean_text_is_one_short_visible_line(said: str) -> None:
    told = text.clean(said, 50)
    assert len(told) <= 50
    assert len(told.splitlines()) <= 1
    assert not {unicodedata.category(char)[0] for char in told.replace(" ", "")} & {"C", "Z"}


@pytest.mark.parametrize("parts", [(0, 0, 0, 0), (300, 299, 1, 0), (5, 0, 5, 0), (7, 1, 1, 1)])
def test_a_bar_shows_whatever_there_is(parts: tuple[int, int, int, int]) -> None:
    drawn = "".join(part for part, _ in text.bar(*parts))
    assert len(drawn) == text.BAR + 2
    rest = parts[0] - sum(parts[1:])
    for mark, count in zip("#!>.", (*parts[1:], rest), strict=True):
        if parts[0]:
            assert (mark in drawn) == (count > 0)


def test_a_line_for_each_change_and_none_without() -> None:
    world = World([Host("m1"), Host("m2", ends="failed")], soak=0, canaries=0, max_unavailable=1)
    before, told = None, []
    while world.rollout.mode.value == "running":
        found = summary.summary(world.rollout, world.now)
        told += text.changes(before, found)
        assert text.changes(found, found) == []
        before = found
        world.tick()
    told += text.changes(before, summary.summary(world.rollout, world.now))
    assert 3 < len(told) < 12, told
    assert any(line.endswith("m2: failed: failed") for line in told)
    assert re.match(r"2026-.* UTC  running: wave 1 of", told[0])


def test_a_plan() -> None:
    members = {"web": [f"web{n}" for n in range(30)], "db": ["db1", "db2", "db3"]}
    names = [name for group in members.values() for name in group if name != "web7"]
    facts = {name: plan.Facts(version=OLD) for name in names}
    facts["db1"] = plan.Facts(version=NEW, extension="1.2")
    facts["db2"] = plan.Facts(version=OLD, problem=EVIL)
    facts["web2"] = plan.Facts(version=OLD, steps=("10-config",))
    wanted = request.from_mapping(
        {
            "groups": [{"name": name, "target": f"{name}*"} for name in members],
            "version": NEW,
            "extension": "1.2",
            "windows": ["mon-fri 22:00-04:00 Europe/Berlin"],
            "exclude": ["web1"],
        }
    )
    made = plan.make(wanted, members, facts, plan_id="p1", number=NUMBER, now=NOW, seconds=120.0)
    told = text.plan_text(made)
    lines = told.splitlines()
    assert lines[0] == f"Plan p1: extension 1.2, then Salt {NEW} for 30 of 33 minions in 5 waves"
    assert "about" in lines[1]
    assert "3 may be away at once" in lines[1]
    assert "mon-fri 22:00-04:00 Europe/Berlin" in lines[2]
    assert "web (canaries)      2  web0, web10" in told
    assert "Away now, updated when they come back (1)\n  web7" in told
    assert "Left out (3)" in told
    assert f"runs {NEW} already: db1" in told
    assert "excluded: web1" in told
    assert "Upgrade steps (1)\n      1  10-config: web2" in told
    assert "\x1b" not in told

    there = {name: plan.Facts(version=NEW, extension="1.2") for name in names}
    few = {"web": ["web2"], "db": ["db1"]}
    told = text.plan_text(plan.make(wanted, few, there, plan_id="p", number=NUMBER, now=NOW))
    assert told == f"extension 1.2, then Salt {NEW}: nothing to do: runs {NEW} already (2)"
