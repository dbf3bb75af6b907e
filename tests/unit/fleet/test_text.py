"""Plans and rollouts as a person reads them, whatever minions say."""

import dataclasses
import random
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_safeupdate.core import times
from saltext_safeupdate.fleet import judge, plan, request, rollout, steering, summary, text
from saltext_safeupdate.fleet.columns import INDENT, columns, wrapped
from saltext_safeupdate.fleet.policy_text import policy_lines
from saltext_safeupdate.fleet.rollout import Step
from saltext_safeupdate.master import progress
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
    after = next(number for number, line in enumerate(told) if line.startswith("  ["))
    assert " ".join(map(str.strip, told[1:after])) == world.rollout.why
    assert {"!", "#"} <= set(told[after])
    assert "1 rolled back" in told[after + 1]
    assert "1 failed (0 may)" in told[after + 2]
    assert re.search("one minion takes .* an hour", told[after + 3])
    problems = told.index("Problems")
    assert told[problems + 1].split()[:3] == ["m03", "rolled", "back"]
    assert problems < told.index("Waves"), "problems come first"
    changes = text.changes(None, summary.summary(world.rollout, world.now))
    assert f"stopped ({world.rollout.why}): wave 3 of 4" in changes[0]
    assert any(line.endswith("  m03: rolled back") for line in changes)
    assert len(told) - told.index("Waves") - 1 == 4
    assert "(canaries)" in told[told.index("Waves") + 1]


def test_nothing_that_minions_say_leaves_its_line() -> None:
    world = stopped()
    world.rollout.minions["m03"].reason = EVIL * 20
    found = summary.summary(world.rollout, world.now)
    found["problems"][0]["minion"] = EVIL
    harmless = text.text(summary.summary(stopped().rollout, world.now)).splitlines()
    told = text.text(found)
    # What goes on below is where no line begins.
    ours, others = (
        [line for line in lines if not line.startswith(" " * INDENT)]
        for lines in (told.splitlines(), harmless)
    )
    assert len(ours) == len(others)
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
    assert any(line.endswith("  m2: failed") for line in told)
    assert re.match(r"2026-.* UTC  running: wave 1 of", told[0])


def test_what_has_been_aborted_is_not_under_way() -> None:
    world = World([Host(f"m{number:02}", takes=500.0) for number in range(20)])
    while not any(minion.step.active for minion in world.rollout.minions.values()):
        world.tick()

    def waves() -> list[str]:
        return [wave["state"] for wave in summary.summary(world.rollout, world.now)["waves"]]

    assert waves() == ["under way"] + ["to come"] * 3
    steering.abort(world.rollout, "enough", world.now)
    assert waves() == ["under way"] + ["not begun"] * 3
    world.run(86400)
    assert waves() == ["aborted"] + ["not begun"] * 3


def test_it_says_what_an_update_waits_for() -> None:
    world = World([Host("m1", takes=500.0), Host("m2", takes=500.0)], canaries=0, stage=False)
    while not any(minion.step is Step.UPDATING for minion in world.rollout.minions.values()):
        world.tick()
    before = summary.summary(world.rollout, world.now)
    assert "waits" not in text.text(before)
    (name,) = [n for n, m in world.rollout.minions.items() if m.step is Step.UPDATING]
    told = {"number": world.hosts[name].number, "phase": "waiting", "waits_for": 2}
    report = judge.read(name, world.rollout.minions[name].answered + 1, told)
    assert report is not None
    judge.heed(world.rollout.minions[name], report, world.rollout.goal)
    found = summary.summary(world.rollout, world.now)
    assert found["waits_for"] == {name: 2}
    assert f"\n  waits: {name} for 2 jobs\n" in text.text(found)
    (line,) = text.changes(before, found)
    assert line.endswith(f"{name}: updating: waits for 2 jobs")
    assert text.changes(found, found) == []
    world.run(86400)
    assert summary.summary(world.rollout, world.now)["waits_for"] == {}


def test_a_dead_engine_is_seen() -> None:
    world = World([Host("m1")])
    found = summary.summary(world.rollout, world.now) | {"owner": "one", "looked_after": True}
    assert "looks after" not in text.text(found)
    dead = found | {"looked_after": False}
    told = "nobody looks after it: the engine 'safeupdate_redeliver' of one"
    assert told in text.text(dead).splitlines()[1]
    assert told in text.changes(found, dead)[0]
    assert text.changes(dead, dead) == []
    reason = "This Salt is not known: it differs."
    assert f"nobody looks after it: {reason}" in text.text(dead | {"stood_down": reason})


def test_it_began_when_it_was_started_and_not_when_it_was_planned() -> None:
    world = World([Host("m1")])
    begun = rollout.begin(world.rollout.plan, NOW + 7200)
    assert summary.summary(begun, NOW + 7300)["began"] == NOW + 7200


@pytest.mark.parametrize("length", range(2, 41))
def test_each_wave_has_one_line_unless_its_group_takes_all_of_it(length: int) -> None:
    name = "g" * length
    hosts = [Host(f"m{number:03}") for number in range(300)]
    world = World(
        hosts,
        members={name: [host.name for host in hosts]},
        groups=[{"name": name, "target": "*"}],
        sample=0,
    )
    world.run(600)
    found = summary.summary(world.rollout, world.now)
    _, lines = text.text(found).split("Waves\n")
    told = lines.splitlines()
    assert all(columns(line) <= 80 for line in told)
    if length < 36:
        assert len(told) == len(found["waves"])
    assert ("[#" in told[0]) == (length < 35)
    assert all(name in line for line in told if not line.startswith(" " * INDENT))


def test_a_plan() -> None:
    members = {"web": [f"web{n}" for n in range(30)], "db": ["db1", "db2", "db3"]}
    names = [name for group in members.values() for name in group if name != "web7"]
    facts = {name: plan.Facts(version=OLD) for name in names}
    facts["db1"] = plan.Facts(version=NEW, extension="1.2")
    facts["db2"] = plan.Facts(version=OLD, problem=EVIL)
    facts["web2"] = plan.Facts(version=OLD, steps=("10-config",), reboot=True)
    wanted = request.from_mapping(
        {
            "groups": [{"name": name, "target": f"{name}*"} for name in members],
            "version": NEW,
            "extension": "1.2",
            "windows": ["mon-fri 22:00-04:00 Europe/Berlin"],
            "exclude": ["web1"],
        }
    )
    given = {"number": NUMBER, "now": NOW}
    others = {"web4": "r7", "web5": "r7", "other": "r8"}
    made = plan.make(wanted, members, facts, plan_id="p1", seconds=120.0, elsewhere=others, **given)
    told = text.plan_text(made)
    assert "Nobody begins before" not in told
    stuck = dataclasses.replace(made, unavailable=len(made.away))
    assert "web7\n  Nobody begins before some are back" in text.plan_text(stuck)
    lines = told.splitlines()
    assert lines[0] == f"Plan p1: extension 1.2, then Salt {NEW} for 30 of 33 minions in 5 waves"
    assert "about" in lines[1]
    assert "3 may be away at once" in lines[1]
    assert lines[2] == "  canaries and waves as for a small group: db"
    assert "mon-fri 22:00-04:00 Europe/Berlin" in lines[3]
    assert "web (canaries)      2  web0, web10" in told
    assert "Away now, updated when they come back (1)\n  web7" in told
    assert "A reboot of the host activates it (1)\n  web2" in told
    assert "Left out (3)" in told
    assert f"runs {NEW} already: db1" in told
    assert "excluded: web1" in told
    assert "not over" in told
    assert "      2  r7: web4, web5" in told
    assert "r8" not in told
    assert "Upgrade steps (1)\n      1  10-config: web2" in told
    assert "\x1b" not in told

    there = {name: plan.Facts(version=NEW, extension="1.2") for name in names}
    few = {"web": ["web2"], "db": ["db1"]}
    told = text.plan_text(plan.make(wanted, few, there, plan_id="p", number=NUMBER, now=NOW))
    assert told == f"extension 1.2, then Salt {NEW}: nothing to do: runs {NEW} already (2)"


WORDS = ["zug", "führt", "日本語", "x" * 90, "a-b", "2026-11-22"]


@pytest.mark.parametrize("seed", range(20))
def test_a_status_fits_a_terminal_of_80_columns_and_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    names = [chance.choice(["web", "a-long-name." * 6, "日本" * 20]) + str(n) for n in range(30)]
    world = World([Host(name, ends=chance.choice(["", "failed", "rolled_back"])) for name in names])
    world.run(chance.choice([100, 3600, 86400]))
    for minion in world.rollout.minions.values():
        minion.reason = " ".join(chance.choices(WORDS, k=30))
    world.rollout.why = " ".join(chance.choices(WORDS, k=40))
    world.rollout.by = "somebody on " + "a-host " * 30
    told = summary.summary(world.rollout, world.now)
    told |= {"looked_after": False, "stood_down": "", "owner": "master-" * 20}
    shown = [text.text(told), progress.listed_text({world.rollout.plan.id: told})]
    assert max(columns(line) for each in shown for line in each.splitlines()) <= 80
    whole = text.plain([*text._whole(told), *text._problems(told), *text._waves(told)])
    assert re.sub(r"\s", "", shown[0]) == re.sub(r"\s", "", whole)


def test_a_line_that_fits_stays_as_it_is_and_others_go_on_below() -> None:
    assert wrapped([("  a b  c", "good")], 8) == [[("  a b  c", "good")]]
    line = [("  12 short words ", ""), ("are", "bad"), (" too many", "")]
    told = wrapped(line, 16)
    assert ["".join(part for part, _ in each) for each in told] == [
        "  12 short words",
        "        are too",
        "        many",
    ]
    assert ("are", "bad") in told[1]


def test_a_plan_and_a_policy_fit_a_terminal_of_80_columns_and_lose_nothing() -> None:
    members = {
        "web": [f"web{n}.a-rather-long-name.example.org" for n in range(30)],
        "日本": ["db1"],
    }
    everybody = [name for group in members.values() for name in group]
    facts = {name: plan.Facts(version=OLD) for name in everybody[3:]}
    facts[everybody[4]] = plan.Facts(version=OLD, problem="a reason of many words " * 8)
    wanted = request.from_mapping(
        {
            "groups": [{"name": name, "target": name} for name in members],
            "version": NEW,
            "windows": ["mon-fri 22:00-04:00 Europe/Berlin"] * 4,
        }
    )
    made = plan.make(wanted, members, facts, plan_id="p1", number=NUMBER, now=NOW)
    group = {"group": "web", "goal": f"Salt {NEW}", "there": 1, "minions": 30}
    group |= {"waits": "it waits for something " * 9, "bring": everybody, "unknown": everybody}
    group |= {"left": dict.fromkeys(everybody, "another reason of many words " * 5)}
    found = {"policy": "/etc/a-path" * 9, "enabled": True, "groups": [group]}
    found |= {"next": "web", "begun": ""}
    for told in (text.plan_text(made), policy_lines(found)):
        assert max(columns(line) for line in told.splitlines()) <= 80
        assert told.count("of many words") >= 5
        assert f"{everybody[0]}," in told
    rows = text.plan_text(made).partition("Waves\n")[2].partition("\n\n")[0].splitlines()
    assert len(rows) == len(made.waves), "each wave has one line"


@pytest.mark.parametrize("length", range(0, 60, 3))
def test_a_time_in_another_zone_is_whole_wherever_a_line_ends(length: int) -> None:
    world = World([Host("m1")])
    told = summary.summary(world.rollout, world.now) | {"window_begins": NOW, "by": "x" * length}
    for found in (text.text(told, "Asia/Kolkata"), text.text(told)):
        assert max(map(columns, found.splitlines())) <= 80
    shown = " ".join(text.text(told, "Asia/Kolkata").split())
    for at in (told["began"], NOW):
        assert times.iso(at, "Asia/Kolkata").replace("T", " ") in shown
    assert "UTC" not in shown
