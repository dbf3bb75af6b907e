"""What a rollout waits for before and after a wave: a gate, a person, a download of all."""

from itertools import pairwise

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import checkpoints, controller, request, rollout, steering, summary
from saltext_safeupdate.fleet.actions import Stage, Tell
from saltext_safeupdate.fleet.checkpoints import Verdict
from saltext_safeupdate.fleet.rollout import Mode
from tests.unit.fleet.world import NEW, NOW, Host, World

DAY = 86400.0


def world(count: int = 12, **wanted: object) -> World:
    found = World([Host(f"m{n:02}") for n in range(count)], **{"soak": 0, "jitter": 0, **wanted})
    found.gates = {"quiet": lambda _: "", "never": lambda _: "too many alarms"}
    return found


def taken(found: World) -> int:
    return sum(bool(host.taken) for host in found.hosts.values())


@pytest.mark.parametrize(
    ("after", "begun", "why"),
    [
        ("canaries", [2, 12], "the canaries of group 1 are done, and a person has to look"),
        ("waves", [2, 3, 6, 12], "wave 1 is done, and a person has to look"),
        ("groups", [12], ""),
    ],
)
def test_it_pauses_until_a_person_says_that_it_goes_on(
    after: str, begun: list[int], why: str
) -> None:
    found, seen, first = world(pause_after=after), [], ""
    for _ in range(9):
        found.run(DAY / 4, watch=World.check)
        seen.append(taken(found))
        if found.rollout.mode.final:
            break
        assert found.rollout.mode is Mode.PAUSED
        first = first or found.rollout.why
        steering.resume(found.rollout, found.now, "jo")
    assert (seen, found.rollout.mode) == (begun, Mode.FINISHED)
    assert first.startswith(why)
    told = [each.what for each in found.told if isinstance(each, Tell)]
    assert told.count("paused") == len(begun) - 1


def test_it_pauses_after_a_group() -> None:
    members = {"a": ["m00", "m01", "m02"], "b": ["m03", "m04"]}
    groups = [{"name": "a", "target": "a"}, {"name": "b", "target": "b"}]
    hosts = [Host(f"m{n:02}") for n in range(5)]
    found = World(hosts, members=members, groups=groups, pause_after="groups", soak=0, jitter=0)
    found.run(DAY)
    assert (found.rollout.mode, taken(found)) == (Mode.PAUSED, 3)
    assert found.rollout.why.startswith("all of a are done")
    steering.resume(found.rollout, found.now)
    assert found.run(DAY).rollout.mode is Mode.FINISHED


def test_no_wave_begins_before_its_gate_says_yes_and_none_is_over_before_the_other_does() -> None:
    opens = NOW + 1800
    found = world(gate_before=["quiet"], gate_after=["late"])
    found.gates["quiet"] = lambda now: "" if now > opens else "an alarm"
    found.gates["late"] = lambda now: "" if now > opens + 1800 else "wait"
    found.run(1700, watch=World.check)
    assert taken(found) == 0
    assert found.rollout.why == "waits before wave 1: the gate quiet says no: an alarm"
    asked = [at for at, _ in found.asked]
    assert all(later - earlier >= checkpoints.INTERVAL for earlier, later in pairwise(asked))
    found.run(1700, watch=World.check)
    assert (taken(found), found.rollout.wave) == (2, 0), "the wave is done, and not over"
    assert found.rollout.why == "waits after wave 1: the gate late says no: wait"
    found.run(DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED
    passed = [(each.moment, each.wave) for _, each in found.asked if each.gate == "late"][-4:]
    assert passed == [("after", 1), ("after", 2), ("after", 3), ("after", 4)]
    lines = [line for _, line in found.rollout.history]
    assert "the gate quiet says yes before wave 4" in lines


def test_a_gate_that_never_says_yes_stops_it_and_a_resume_asks_again() -> None:
    found = world(gate_before=["quiet", "never"], gate_timeout=900)
    found.run(DAY)
    assert (found.rollout.mode, taken(found)) == (Mode.STOPPED, 0)
    assert found.rollout.why.startswith("the gate never has not said yes for 900 s: waits before")
    assert "too many alarms" in found.rollout.why
    found.gates["never"] = lambda _: ""
    steering.resume(found.rollout, found.now)
    assert found.run(DAY).rollout.mode is Mode.FINISHED


def test_a_gate_is_not_asked_while_the_windows_are_closed() -> None:
    # It is 20:26 UTC.
    found = world(gate_before=["quiet"], windows=["22:00-23:59"])
    found.run(2 * DAY)
    assert found.rollout.mode is Mode.FINISHED
    assert all(at % DAY / 3600 >= 22 for at, _ in found.asked)


def test_only_the_answer_to_the_newest_question_counts() -> None:
    found = world(gate_before=["quiet"])
    found.gates["quiet"] = lambda _: "no"
    found.run(300)
    number = found.rollout.gate_number
    others = [Verdict("quiet", number - 1, True), Verdict("other", number, True)]
    controller.advance(found.rollout, [], found.now + 1, verdicts=others)
    assert (found.rollout.passed, taken(found)) == ({}, 0)
    controller.advance(found.rollout, [], found.now + 2, verdicts=[Verdict("quiet", number, True)])
    assert list(found.rollout.passed) == ["0/0/before/quiet"]
    again = rollout.taken_up(rollout.from_data(rollout.to_data(found.rollout)), found.now + 3)
    assert again.passed == found.rollout.passed


def test_a_gate_that_takes_longer_than_from_one_question_to_the_next_is_heard() -> None:
    found = world(gate_before=["quiet"])
    found.gates["quiet"] = lambda _: None
    found.run(3 * checkpoints.INTERVAL + 20)
    first, newest = found.asked[0][1].number, found.rollout.gate_number
    assert first < newest
    controller.advance(found.rollout, [], found.now + 1, verdicts=[Verdict("quiet", first, True)])
    assert list(found.rollout.passed) == ["0/0/before/quiet"]


def test_what_a_gate_was_asked_before_the_rollout_stopped_is_out_of_date() -> None:
    found = world(gate_before=["quiet"], gate_timeout=600)
    found.gates["quiet"] = lambda _: None
    found.run(1200)
    assert found.rollout.mode is Mode.STOPPED
    late = Verdict("quiet", found.rollout.gate_number, True)
    steering.resume(found.rollout, found.now)
    found.run(10)
    controller.advance(found.rollout, [], found.now + 1, verdicts=[late])
    assert found.rollout.passed == {}
    answer = Verdict("quiet", found.rollout.gate_number, True)
    controller.advance(found.rollout, [], found.now + 2, verdicts=[answer])
    assert list(found.rollout.passed) == ["0/0/before/quiet"]


def test_a_master_that_dies_asks_the_gate_again() -> None:
    found = world(gate_before=["quiet"], gate_after=["quiet"])
    found.run(DAY, restarts=0.2, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED


def test_all_download_first_and_begin_when_a_window_opens() -> None:
    """Download tonight, and switch on Saturday. It is Thursday, 20:26 UTC."""
    found = world(stage="all", stage_windows=["22:00-23:00"], windows=["sat 22:00-23:59"])
    found.run(DAY)
    staged = {name for each in found.told if isinstance(each, Stage) for name in each.minions}
    assert (staged, taken(found)) == (set(found.hosts), 0)
    assert summary.summary(found.rollout, found.now)["staged"] == 12
    found.run(3 * DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED
    assert (
        min(host.began for host in found.hosts.values()) >= NOW // DAY * DAY + 2 * DAY + 22 * 3600
    )


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"pause_after": "lunch"}, "'pause_after' must be one of canaries, groups, waves"),
        ({"gate_before": ["a b"]}, "'gate_before' has names of gates"),
        ({"gate_after": [""]}, "'gate_after' has names of gates"),
        ({"gate_timeout": 0}, "'gate_timeout' must be"),
        ({"stage": "some"}, "'stage' must be true, false or 'all'"),
        ({"stage_windows": "soon"}, "not understood"),
    ],
)
def test_what_is_not_understood(wanted: dict, why: str) -> None:
    with pytest.raises(InputError, match=why):
        request.from_mapping({"groups": "*", "version": "1.0", **wanted})


def test_it_is_stored_as_it_is_asked_for() -> None:
    given = {
        "pause_after": "canaries",
        "gate_before": ["a"],
        "gate_after": ["b", "c"],
        "gate_timeout": 60,
        "stage": "all",
        "stage_windows": ["22:00-23:00"],
        "groups": [{"name": "g", "target": "*", "gate_before": ["d"], "pause_after": "waves"}],
    }
    wanted = request.from_mapping({"version": "1.0", **given})
    assert request.from_mapping(request.to_mapping(wanted)) == wanted
    assert wanted.gates == {"b", "c", "d"}
    plain = request.to_mapping(request.from_mapping({"version": "1.0", "groups": "*"}))
    assert not {"pause_after", "gate_before", "gate_timeout", "stage_windows"}.intersection(plain)


def test_a_gate_is_asked_for_a_wave_of_which_nobody_is_there_and_who_comes_back_waits_for_it() -> (
    None
):
    """They begin when they come back, in whatever wave the others are then."""
    members = {"a": ["m00", "m01"], "b": ["m02", "m03"]}
    groups = [{"name": "a", "target": "a", "gate_before": ["quiet"]}, {"name": "b", "target": "b"}]
    hosts = [Host(f"m{n:02}") for n in range(4)]
    for host in hosts[:2]:
        host.away = ((NOW - 60, NOW + 3600),)
    found = World(
        hosts,
        members=members,
        groups=groups,
        **{"canaries": 0, "waves": ["100%"], "max_unavailable": 4, "sample": 0},
        **{"soak": 0, "jitter": 0, "gate_timeout": DAY},
    )
    opens = NOW + 7200
    found.gates = {"quiet": lambda now: "" if now > opens else "an alarm"}
    found.run(7000, watch=World.check)
    assert [host.taken for host in hosts[:2]] == [[], []], "its gate has not said yes"
    found.run(DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED
    assert {host.version for host in hosts} == {NEW}


def test_the_time_in_which_a_gate_is_not_asked_is_none_in_which_it_says_no() -> None:
    # It is 20:26 UTC.
    found = world(gate_before=["quiet"], windows=["20:00-20:50"], gate_timeout=3600)
    opens = NOW + DAY
    found.gates["quiet"] = lambda now: "" if now > opens else "an alarm"
    found.run(3600)
    assert (found.rollout.mode, taken(found)) == (Mode.RUNNING, 0)
    assert found.rollout.why == "", "nobody asks it now"
    found.run(2 * DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED


@pytest.mark.parametrize("no", ["", "an alarm"])
def test_what_a_gate_says_hides_no_reason_why_it_stands(no: str) -> None:
    found = world(gate_after=["quiet"])
    found.gates["quiet"] = lambda _: no
    while not found.asked:
        found.tick()
    steering.pause(found.rollout, "lunch", found.now, "jo")
    found.tick()
    assert (found.rollout.mode, found.rollout.why) == (Mode.PAUSED, "lunch")
    assert len(found.rollout.passed) == int(not no)
