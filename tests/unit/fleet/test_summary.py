"""What people and programs are shown of a rollout and of a fleet."""

import re

import pytest

from saltext_safeupdate.fleet import (
    durations,
    inventory,
    metrics,
    plan,
    request,
    rollout,
    stored,
    summary,
)
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.fleet.plan import Facts
from saltext_safeupdate.fleet.rollout import Mode, Step
from tests.unit.fleet.world import NEW, NOW, OLD, Host, World

DAY = 86400.0


def test_a_summary_of_one_that_has_stopped() -> None:
    hosts = [Host(f"m{number:02}") for number in range(12)]
    hosts[3].ends = "rolled_back"
    world = World(hosts, soak=30, max_failed=0).run(DAY)
    found = summary.summary(world.rollout, world.now)
    assert found["mode"] == "stopped"
    assert found["counts"]["rolled_back"] == 1
    assert found["problems"][0] == {
        "minion": "m03",
        "what": "rolled_back",
        "why": "",
    }
    assert [wave["state"] for wave in found["waves"]][:2] == ["over", "over"]
    assert sum(found["counts"].values()) == found["minions"] == 12
    assert summary.exit_status(world.rollout) == 2
    text = metrics.metrics([world.rollout], 0, {}, (), NOW)
    assert 'salt_safeupdate_rollout_minions{rollout="r1",step="rolled_back"} 1' in text
    assert 'salt_safeupdate_rollout_mode{rollout="r1",mode="stopped"} 1' in text
    assert text.startswith(metrics.FIRST_METRIC)
    assert text.endswith("# EOF\n")


LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"([a-z_]+)(?:\{{{LABEL}(?:,{LABEL})*\}})? -?\d+(?:\.\d+)?")


def test_metrics_are_what_collectors_of_both_formats_read() -> None:
    world = World([Host("m1")])
    object.__setattr__(world.rollout.plan, "id", 'a"b\\c\nd')
    lines = metrics.metrics([world.rollout], 2, {}, (), NOW).splitlines()
    assert lines.pop() == "# EOF"
    families: dict[str, int] = {}
    for line in lines:
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            # The older format has counter, gauge, histogram, summary and untyped only.
            assert kind == "HELP" or (kind == "TYPE" and rest == "gauge" and families[name] == 0)
            families.setdefault(name, 0)
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            families[found[1]] += 1
            assert list(families)[-1] == found[1], "the samples of one metric are together"
    assert families["salt_safeupdate_rollouts_unreadable"] == 1
    assert families["salt_safeupdate_rollout_minions"] == len(Step)
    assert families["salt_safeupdate_rollout_mode"] == len(Mode)


@pytest.mark.parametrize(
    ("mode", "failed", "status"),
    [
        (Mode.FINISHED, False, 0),
        (Mode.FINISHED, True, 1),
        (Mode.ABORTED, False, 1),
        (Mode.STOPPED, True, 2),
        (Mode.PAUSED, False, 2),
        (Mode.RUNNING, False, 3),
    ],
)
def test_the_exit_status_tells_how_it_ended(mode: Mode, failed: bool, status: int) -> None:
    world = World([Host("m1"), Host("m2")])
    for minion in world.rollout.minions.values():
        minion.step = Step.DONE
    if failed:
        world.rollout.minions["m2"].step = Step.FAILED
    world.rollout.mode = mode
    assert summary.exit_status(world.rollout) == status


def test_who_was_left_out_for_a_problem_is_not_done() -> None:
    wanted = request.from_mapping({"groups": "*", "version": NEW, "exclude": ["m3"]})
    there = {"m1": Facts(version=OLD), "m2": Facts(version=NEW), "m3": Facts(version=OLD)}
    for unfit, status in (({}, 0), ({"m4": Facts(version=OLD, problem="the disk is full")}, 1)):
        facts = there | unfit
        made = plan.make(wanted, {"group 1": list(facts)}, facts, plan_id="p", number=1, now=1.0)
        assert made.unfit == set(unfit), "who is excluded, or there already, is no problem"
        assert plan.from_data(plan.to_data(made)) == made
        begun = rollout.begin(made, 1.0)
        begun.mode, begun.minions["m1"].step = Mode.FINISHED, Step.DONE
        assert summary.exit_status(begun) == status
        outline = stored.outline(stored.head(begun))
        assert outline is not None
        assert summary.line(outline)["exit_status"] == status


def test_slow_ones_are_told_of_against_the_fleets_own_median() -> None:
    hosts = [Host(f"m{number:02}", takes=100) for number in range(10)]
    hosts[9].takes = 900
    world = World(hosts, soak=0, jitter=0, max_unavailable=10, canaries=1, waves=["100%"])
    while "m09" not in durations.slow(world.rollout):
        world.tick()
    assert world.rollout.minions["m09"].step.active
    assert {"minion": "m09", "what": "slow"}.items() <= summary.problems(world.rollout)[0].items()
    found = durations.usual([1.0, 3.0, 2.0, 10.0])
    assert found == durations.Usual(4, 4.0, 2.5, 10.0)
    assert durations.usual([]) is None


def test_what_remains_gets_less() -> None:
    world = World([Host(f"m{number:02}") for number in range(20)], soak=60)
    seen = []
    while not world.rollout.mode.final:
        world.tick()
        seen.append(durations.remaining(world.rollout))
    assert seen[0] == 0.0, "nobody knows yet"
    assert max(seen) > 0
    assert seen[-1] == 0.0


def record(name: str = "m1", **given: object) -> Record:
    values = {"running": OLD, "installed": OLD, "seen": 0.0, **given}
    return Record(minion=name, **values)


def test_the_sums_of_an_inventory() -> None:
    records = [record(f"m{number}") for number in range(5)]
    records += [record("n1", running=NEW, last_result="rolled_back"), record("n2", seen=-DAY * 2)]
    names = [each.minion for each in records] + ["never"]
    found = inventory.roll_up([*records, record("gone")], names, 10.0)
    assert found["summary"] == ("5 of 8 on 3007.15, 1 of 8 on 3008.3, 1 rolled back, 2 silent")
    assert inventory.roll_up([], [], 0.0)["summary"] == "no minions"


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({}, []),
        ({"installed": "3007.15-1"}, []),
        ({"installed": NEW}, ["not-restarted"]),
        ({"intended": NEW}, ["not-as-intended"]),
        ({"running": "3009.1", "installed": "3009.1"}, ["newer-than-master"]),
        ({"extension": "1.0", "extension_on_disk": "1.1"}, ["extension-not-restarted"]),
        ({"quarantined": (NEW,)}, ["quarantined"]),
        ({"problems": ("no stop guard",)}, ["set-up"]),
        ({"seen": -3 * DAY}, ["silent"]),
    ],
)
def test_drift_is_named_with_what_repairs_it(given: dict, codes: list[str]) -> None:
    found = inventory.drift(record(**given), "m1", NEW, 0.0)
    assert [each.code for each in found] == codes
    assert all(each.fix and each.problem for each in found)


def test_a_minion_of_which_nothing_is_known() -> None:
    assert [each.code for each in inventory.drift(None, "m1", NEW, 0.0)] == ["unknown"]


@pytest.mark.parametrize(
    "answer", [None, 5, "yes", [], {"running": {"a": 1}}, {"problems": 7}, {"seen": "never"}]
)
def test_an_answer_is_not_trusted(answer: object) -> None:
    found = inventory.from_answer("m1", answer, 5.0)
    assert found is None or (found.minion, found.seen) == ("m1", 5.0)
    if found is not None:
        assert inventory.from_data(inventory.to_data(found)) == found


def test_a_minion_does_not_say_who_it_is_or_when_and_fills_no_disk() -> None:
    answer = {"minion": "other", "seen": 9e9, "running": "x" * 10**6, "problems": ["y"] * 10**5}
    found = inventory.from_answer("m1", answer, 5.0)
    assert found is not None
    assert (found.minion, found.seen, len(found.running), len(found.problems)) == (
        "m1",
        5.0,
        inventory.LONGEST,
        inventory.MOST,
    )
