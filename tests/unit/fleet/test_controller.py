"""What a rollout does, simulated with a clock of its own."""

import dataclasses
import re

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.fleet import (
    controller,
    gates,
    rollout,
    standing,
    steering,
    summary,
    text,
)
from saltext_safeupdate.fleet.actions import Action, Ask, Cancel, Quarantine, Start
from saltext_safeupdate.fleet.judge import Report
from saltext_safeupdate.fleet.rollout import Mode
from tests.unit.fleet.world import BUSY, NEW, NOW, NUMBER, OLD, Host, World, ended

DAY = 86400.0
NEXT = (
    "No other begins: 'retry' asks again when the cause is gone{allowed}, 'resume' continues "
    "without what has failed, 'abort' ends it"
)
ALLOWED = " and 'safeupdate.unquarantine' allows the version there"
# To explain a failure every line is traced, which takes ten times as long.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def fleet(count: int, **special: Host) -> list[Host]:
    hosts = {f"m{number:04}": Host(f"m{number:04}") for number in range(count)}
    return list((hosts | {host.name: host for host in special.values()}).values())


def test_all_is_well() -> None:
    world = World(fleet(30)).run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert set(world.steps().values()) == {"done"}
    assert all(host.version == NEW and len(host.taken) == 1 for host in world.hosts.values())


def test_the_canaries_go_alone_and_the_soak_is_waited_for() -> None:
    world = World(fleet(30), soak=600)
    canaries = world.rollout.plan.waves[0].minions
    while not all(world.hosts[name].version == NEW for name in canaries):
        world.tick()
    committed = world.now
    while not any(world.hosts[m].taken for m in world.hosts if m not in canaries):
        world.tick()
    assert world.now - committed >= 600


def test_one_broken_canary_stops_all() -> None:
    world = World(fleet(30, bad=Host("m0000", ends="rolled_back"))).run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.STOPPED
    assert world.rollout.why == f"canary m0000 is rolled back. {NEXT.format(allowed=ALLOWED)}"
    history = [line for _, line in world.rollout.history]
    assert "m0000: rolled back" in history
    assert f"stopped: {world.rollout.why}" in history
    assert sum(host.version == NEW for host in world.hosts.values()) <= 1


def test_two_canaries_that_roll_back_keep_the_version_from_everybody() -> None:
    bad = {name: Host(name, ends="rolled_back") for name in ("m0000", "m0001")}
    world = World(fleet(30, **bad)).run(7200)
    found = [each for each in world.told if isinstance(each, Quarantine)]
    assert [each.version for each in found] == [NEW]
    assert "m0000, m0001" in found[0].because


def test_more_failures_than_allowed_stop_the_wave() -> None:
    hosts = fleet(100)
    for host in hosts[40:44]:
        host.ends = "rolled_back"
    world = World(hosts, max_failed=2).run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.STOPPED
    # As many as were at work then.
    told = re.fullmatch(r"([34]) minions have failed, and 2 may: (m\d+) is (.*)", world.rollout.why)
    assert told
    assert world.steps()[told[2]] == "rolled_back"
    assert told[3] == f"rolled back. {NEXT.format(allowed=ALLOWED)}"
    steering.resume(world.rollout, world.now)
    world.run(DAY)
    # The fourth one is a failure that nobody has accepted, but one alone is allowed.
    assert world.rollout.mode is Mode.FINISHED
    assert world.rollout.count(rollout.Step.ROLLED_BACK) == 4
    assert world.rollout.count(rollout.Step.DONE) == 96


def test_one_that_has_only_failed_needs_no_end_of_a_quarantine_and_gives_its_reason() -> None:
    """Of a long reason, the row of the minion has the rest; a person has to see what to do."""
    known = World(fleet(20), max_failed=0).rollout
    known.wave, name = 1, known.plan.waves[1].minions[0]
    known.minions[name].step = rollout.Step.FAILED
    known.minions[name].reason = "dpkg was interrupted."
    told = f"1 minion has failed, and 0 may: {name} is failed (dpkg was interrupted). "
    assert gates.failures(known) == told + NEXT.format(allowed="")
    known.minions[name].reason = "x" * 400
    known.why = gates.failures(known)
    assert known.why.endswith(f"({'x' * 239}…). {NEXT.format(allowed='')}")
    assert NEXT.format(allowed="") in " ".join(text.text(summary.summary(known, NOW)).split())


def test_one_that_hangs_takes_its_part_of_the_budget_until_it_is_well() -> None:
    hosts = fleet(20, hung=Host("m0010", ends="hangs"))
    world = World(hosts, max_unavailable=1, max_failed=3, minion_timeout=900, soak=0, jitter=0)
    world.run(DAY, watch=World.check)
    assert world.steps()["m0010"] == "timed_out"
    assert world.rollout.mode is not Mode.FINISHED, "nobody else is risked"
    world.hosts["m0010"].phase = "committed"
    world.hosts["m0010"].version = NEW
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert set(world.steps().values()) == {"done"}, "it said so itself in the end"


def test_one_that_is_to_be_rebooted_is_waited_for_and_nothing_goes_on_without_it() -> None:
    world = World(fleet(20, slow=Host("m0000", boots=10_000.0)), canaries=1)
    assert world.rollout.plan.waves[0].minions == ("m0000",)
    assert world.rollout.plan.request.minion_timeout < 5_000
    world.run(9_000, watch=World.check)
    assert world.steps() == {"m0000": "to_reboot"} | {
        name: "waiting" for name in world.hosts if name != "m0000"
    }
    assert world.rollout.mode is Mode.RUNNING
    world.run(DAY, watch=World.check)
    assert (world.rollout.mode, set(world.steps().values())) == (Mode.FINISHED, {"done"})
    assert world.rollout.minions["m0000"].seconds < 1_000, "the time until its boot does not count"


def test_those_that_are_to_be_rebooted_hold_nobody_back() -> None:
    hosts = [Host(f"m{number}", boots=50_000.0) for number in range(4)]
    world = World(hosts, canaries=0, waves=["100%"], max_unavailable=1).run(
        5_000, watch=World.check
    )
    assert set(world.steps().values()) == {"to_reboot"}
    assert standing.down(world.rollout) == []


@pytest.mark.parametrize("lies", [False, True], ids=["waits", "says that it boots, and waits"])
def test_somebody_may_go_on_without_one_that_is_to_be_rebooted(lies: bool) -> None:
    slow = Host("m0000", boots=1e9)
    world = World(fleet(20, slow=slow), canaries=1, max_unavailable=2).run(9_000)
    steering.resume(world.rollout, world.now)

    def flips(world: World) -> None:
        if lies:
            slow.phase = "watching" if slow.phase == "waiting_for_boot" else "waiting_for_boot"

    world.run(DAY, watch=flips)
    rest = {step for name, step in world.steps().items() if name != slow.name}
    assert (world.rollout.mode, rest) == (Mode.FINISHED, {"done"})
    assert world.steps()[slow.name] == "to_reboot"


@pytest.mark.parametrize(
    ("ends", "away", "step"),
    [
        ("rolled_back", (), "rolled_back"),
        ("hangs", (), "timed_out"),
        ("committed", ((NOW + 12_000, 2e9),), "timed_out"),
    ],
    ids=["rolls back", "hangs", "never comes back"],
)
def test_what_becomes_of_one_after_its_boot_counts_although_others_went_on(
    ends: str, away: tuple[tuple[float, float], ...], step: str
) -> None:
    slow = Host("m0000", boots=20_000.0, ends=ends, away=away)
    world = World(fleet(20, slow=slow), canaries=1, soak=15_000, max_unavailable=1).run(9_000)
    steering.resume(world.rollout, world.now)
    world.run(DAY)
    assert (world.rollout.mode, world.steps()[slow.name]) == (Mode.STOPPED, step)
    steering.resume(world.rollout, world.now)
    world.run(2 * DAY)
    assert world.rollout.mode is Mode.FINISHED, "it takes no part of the budget for ever"


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("hangs", "has not ended after 3600 s; the last that is known of it is 'watching'"),
        ("gone", "has not come back from"),
    ],
)
def test_the_time_of_one_that_was_rebooted_runs_from_the_boot(ends: str, why: str) -> None:
    host = Host("m0000", boots=20_000.0, takes=100.0)
    world = World(fleet(3, one=host))
    if ends == "gone":
        host.away = ((NOW + 20_200, 1e12),)
    world.run(20_000, watch=World.check)
    assert world.steps()["m0000"] == "to_reboot"
    host.takes = 10_000.0 if ends == "hangs" else host.takes
    host.boots = 10_200.0 if ends == "hangs" else host.boots
    world.run(3_000)
    assert world.steps()["m0000"] in ("updating", "to_reboot")
    world.run(2_000)
    assert world.steps()["m0000"] == "timed_out"
    assert why in world.rollout.minions["m0000"].reason


@pytest.mark.parametrize("stands", ["paused", "stopped"])
def test_a_rollout_that_stood_waits_for_those_that_are_to_be_rebooted(stands: str) -> None:
    """Nobody has seen the new version run, and whoever lets it run again may not know that."""
    slow = {name: Host(name, boots=1e9) for name in ("m0000", "m0001")}
    world = World(fleet(20, **slow), canaries=2).run(2_000)
    if stands == "paused":
        steering.pause(world.rollout, "lunch", world.now)
    else:
        world.rollout.mode = Mode.STOPPED
    world.run(60)
    steering.resume(world.rollout, world.now)
    world.run(6_000, watch=World.check)
    assert (world.rollout.mode, world.rollout.wave) == (Mode.RUNNING, 0)
    assert {host.name for host in world.hosts.values() if host.taken} == set(slow)
    steering.resume(world.rollout, world.now)
    assert world.run(DAY).rollout.mode is Mode.FINISHED


def test_who_is_away_counts_and_is_picked_up_later() -> None:
    away = {name: Host(name, away=((0, 2e9),)) for name in ("m0025", "m0026")}
    world = World(fleet(30, **away), max_unavailable=3, soak=60)
    world.run(4 * 3600, watch=World.check)
    assert not ended(world)
    assert {n for n, s in world.steps().items() if s != "done"} == {"m0025", "m0026"}
    world.hosts["m0025"].away = ()
    world.run(DAY * 2, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert world.steps()["m0025"] == "done"
    assert world.steps()["m0026"] == "missed"


def test_nobody_is_started_if_too_many_are_away_already() -> None:
    hosts = fleet(10)
    for host in hosts[2:6]:
        host.away = ((0, 2e9),)
    world = World(hosts, max_unavailable=2, canaries=0, waves=["100%"])
    world.run(3600)
    assert not any(host.taken for host in world.hosts.values())


def test_who_is_away_in_a_later_wave_counts_too() -> None:
    """The world checks that at each start."""
    gone = {f"m{n:04}": Host(f"m{n:04}", away=((NOW + 200, 2e9),)) for n in range(30, 40)}
    world = World(fleet(40, **gone), max_unavailable=10, max_failed=40, soak=0, canaries=0)
    world.run(1500)
    assert {name for name, minion in world.rollout.minions.items() if minion.away} >= set(gone)
    assert "10 may be away at once, and 10 are: m0030 (does not answer)" in world.rollout.why
    begun = sum(bool(host.taken) for host in world.hosts.values())
    world.run(3600)
    assert sum(bool(host.taken) for host in world.hosts.values()) == begun, "nobody more"
    assert world.rollout.mode is Mode.RUNNING, "they may come back"
    gone["m0030"].away = ()
    world.run(3600)
    assert world.rollout.why == "", "somebody may begin again"
    assert sum(bool(host.taken) for host in world.hosts.values()) == 31


def test_who_has_not_answered_is_asked_again_and_a_slow_host_not_again_and_again() -> None:
    world = World(fleet(4), canaries=0, soak=0, jitter=0, stage=False, max_unavailable=1)
    world.hosts["m0003"].away = ((0, 2e9),)
    world.rollout.minions["m0003"].away = False
    asked = []
    for _ in range(11):
        found = world.tick()
        asked += [
            world.rollout.elapsed for a in found if isinstance(a, Ask) and "m0003" in a.minions
        ]
    assert asked[0] == 5
    assert all(20 < at <= 30 for at in asked[1:]), asked
    assert 1 <= len(asked[1:]) <= 2


def test_those_that_are_away_for_too_long_stop_it_and_somebody_may_go_on_without_them() -> None:
    hosts = fleet(6, off=Host("m0005", away=((0, 2e9),)))
    world = World(hosts, max_unavailable=1, late_timeout=7200, soak=0).run(DAY)
    assert (world.rollout.mode, world.rollout.elapsed < 8000) == (Mode.STOPPED, True)
    assert "1 may be away at once, and 1 is: m0005 (does not answer)" in world.rollout.why
    assert not any(host.taken for host in world.hosts.values())
    steering.resume(world.rollout, world.now)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done", "missed"}


@pytest.mark.parametrize(("ends", "told"), [("failed", "failed"), ("hangs", "timed out")])
def test_one_that_is_down_stops_what_cannot_go_on_and_is_not_waited_for_after_that(
    ends: str, told: str
) -> None:
    """With a limit of 1, the default up to 19 minions, nobody else could ever begin."""
    limits = {"max_unavailable": 1, "max_failed": 3, "minion_timeout": 900, "late_timeout": 7200}
    world = World(fleet(8, bad=Host("m0004", ends=ends)), soak=0, **limits)
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.STOPPED
    assert f"nobody can begin: 1 may be away at once, and 1 is: m0004 ({told})" in world.rollout.why
    steering.resume(world.rollout, world.now)
    world.run(DAY)
    assert world.rollout.mode is Mode.FINISHED
    assert world.rollout.count(rollout.Step.DONE) == 7


def test_one_that_has_timed_out_and_is_to_try_again_may_still_be_at_work() -> None:
    """The world checks that nobody begins beside it."""
    hung = Host("m0004", ends="hangs", takes=1e6)
    world = World(
        fleet(8, hung=hung), max_unavailable=1, max_failed=3, minion_timeout=900, soak=0, jitter=0
    ).run(7200, watch=World.check)
    assert world.steps()["m0004"] == "timed_out"
    steering.retry(world.rollout, ["m0004"], world.now)
    before = {host.name: list(host.taken) for host in world.hosts.values()}
    world.run(600, watch=World.check)
    assert {host.name: host.taken for host in world.hosts.values()} == before
    assert world.steps()["m0004"] == "updating", "it was asked what became of its request"
    hung.phase = "rolled_back"
    while world.steps()["m0004"] != "rolled_back":
        world.tick()
    hung.ends, hung.takes = "committed", 60.0
    steering.retry(world.rollout, ["m0004"], world.now)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}
    assert len(hung.taken) == 2


def test_one_that_has_timed_out_before_its_reboot_is_not_asked_for_another_update() -> None:
    host = Host("m0001", boots=20_000.0)
    world = World(fleet(3, slow=host), canaries=0, max_failed=3, soak=0).run(1_000)
    assert world.steps()["m0001"] == "to_reboot"
    host.away = ((world.now, 2e9),)
    world.run(6_000)
    assert world.steps()["m0001"] == "timed_out"
    host.away = ()
    while world.rollout.minions["m0001"].away:
        world.tick()
    steering.retry(world.rollout, ["m0001"], world.now)
    world.run(1_000)
    assert world.steps()["m0001"] == "to_reboot", "it has done all that it can"
    assert world.run(DAY, watch=World.check).steps()["m0001"] == "done"
    assert len(host.taken) == 1


def test_one_that_is_to_try_again_says_first_that_it_awaits_its_boot() -> None:
    """Else it would be asked for another update, and refuse that."""
    host = Host("m0001", boots=20_000.0)
    off = Host("m0003", away=((0, 2e9),))
    wanted = {"canaries": 0, "waves": ["100%"], "max_unavailable": 4, "max_failed": 3}
    world = World(fleet(4, slow=host, off=off), stage=False, jitter=0, **wanted).run(1_000)
    assert world.steps()["m0001"] == "to_reboot"
    host.away = ((world.now, 2e9),)
    world.run(6_000)
    assert world.steps()["m0001"] == "timed_out"
    host.away, host.refuses = (), BUSY
    while world.rollout.minions["m0001"].away:
        world.tick()
    steering.retry(world.rollout, ["m0001"], world.now)
    world.run(1_000)
    assert world.steps()["m0001"] == "to_reboot"
    while world.steps()["m0001"] == "to_reboot":
        world.tick()
    world.run(1_000)
    assert (world.steps()["m0001"], len(host.taken)) == ("done", 1)


def test_one_that_is_at_work_for_somebody_else_takes_its_part_and_is_asked_anew() -> None:
    """It was asked by the number 0 before, which no minion takes."""
    other = Host("m0000", number=7, phase="installing", began=NOW, takes=400.0, ends="postponed")
    world = World(fleet(3, other=other), canaries=1, jitter=0, stage=False, soak=0)
    world.run(350, watch=World.check)
    assert world.steps()["m0000"] in ("waiting", "asked")
    assert len(standing.down(world.rollout)) == 1
    other.ends = "committed"
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}
    assert len(other.taken) == 1
    assert not [each for each in world.told if isinstance(each, Start) and not each.number]


def test_one_that_was_away_for_the_extension_is_not_judged_when_salt_comes() -> None:
    """It may have taken other requests before, which are no newer ones."""
    late = Host("m0002", number=7, away=((0, 2e9),))
    wanted = {"canaries": 0, "max_unavailable": 3, "sample": 0, "soak": 0, "late_timeout": 60}
    world = World(fleet(12, late=late), extension="2.0", **wanted)
    while world.rollout.part == 0 and world.now < NOW + DAY:
        world.tick()
    assert world.steps()["m0002"] == "missed"
    late.away = ()
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert {name for name, step in world.steps().items() if step != "done"} == {"m0002"}


@pytest.mark.parametrize("retried", [False, True])
def test_one_that_has_timed_out_drops_what_it_has_not_begun(retried: bool) -> None:
    """Its jobs may end later than anybody waits for."""
    world = World(
        fleet(8, hung=Host("m0004", ends="hangs")), max_failed=3, minion_timeout=900, soak=0
    )
    world.run(7200, watch=World.check)
    assert world.steps()["m0004"] == "timed_out"
    if retried:
        steering.retry(world.rollout, ["m0004"], world.now)
    before = world.rollout.minions["m0004"].number
    (dropped,) = [
        each
        for each in controller.advance(world.rollout, [], world.now, "elsewhere")
        if isinstance(each, Cancel)
    ]
    assert (dropped.minion, dropped.number > before) == ("m0004", True)
    again = [
        (world.rollout.elapsed, each)
        for looks in range(1, 5)
        for each in controller.advance(world.rollout, [], world.now + 30 * looks, "elsewhere")
        if isinstance(each, Cancel)
    ]
    assert [(each.minion, each.number) for _, each in again] == [("m0004", dropped.number)], "lost"
    assert not steering.abort(world.rollout, "enough", world.now), "once"


def test_windows_do_not_make_it_wait_for_ever() -> None:
    """Each night the same one is away; and nobody else may begin."""
    hosts = fleet(6, off=Host("m0005", away=((0, 2e9),)))
    world = World(hosts, max_unavailable=1, windows=["02:00-03:00 UTC"], soak=0, jitter=0)
    world.run(3 * DAY)
    assert world.rollout.mode is Mode.STOPPED
    assert "nobody can begin" in world.rollout.why
    assert "m0005 (does not answer)" in world.rollout.why
    assert sum("nobody can begin" in line for _, line in world.rollout.history) == 2


def test_one_that_changes_its_mind_does_not_prolong_the_soak() -> None:
    world = World(
        fleet(8), soak=600, max_failed=3, canaries=0, waves=[4, 4], max_unavailable=4, sample=0
    )
    while world.rollout.wave == 0 and world.rollout.elapsed < DAY:
        known = world.rollout.minions["m0000"]
        if known.requests and known.step.settled:
            # Its phases change with each look, as it says.
            world.hosts["m0000"].phase = "failed" if known.step.value != "failed" else "rolled_back"
            world.hosts["m0000"].version = OLD
        elif known.requests:
            world.hosts["m0000"].ends = "rolled_back"
        world.tick()
    settled = max(each.settled_at for each in world.rollout.minions.values())
    assert world.rollout.wave == 1
    assert world.rollout.elapsed < settled + 700
    assert len(world.rollout.history) < 20


def test_a_quarantine_stops_it_and_takes_back_what_has_not_begun() -> None:
    wanted = {"canaries": 0, "waves": ["100%"], "max_unavailable": 3}
    world = World(fleet(10), soak=0, jitter=0, stage=False, **wanted)
    world.tick()
    world.hosts["m0001"].loses = 1.0
    world.tick(step=30)
    assert world.rollout.count(rollout.Step.ASKED) == 3
    taken_back = controller.advance(world.rollout, [], world.now, "elsewhere")
    assert world.rollout.mode is Mode.STOPPED
    assert f"{NEW} is in quarantine: elsewhere" in world.rollout.why
    assert [each.minion for each in taken_back if isinstance(each, Cancel)] == [
        "m0000",
        "m0001",
        "m0002",
    ]
    world.hosts["m0001"].loses = 0.0
    world.do(taken_back)
    world.run(3600)
    assert world.steps()["m0001"] == "cancelled"
    assert sum(bool(host.taken) for host in world.hosts.values()) == 2
    steering.resume(world.rollout, world.now)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}


def _with_requests_that_are_lost() -> World:
    """Return a world of ten, three of which are asked and hear nothing."""
    wanted = {"canaries": 0, "waves": ["100%"], "max_unavailable": 3}
    world = World(fleet(10), soak=0, jitter=0, stage=False, **wanted)
    world.tick()
    for host in world.hosts.values():
        host.loses = 1.0
    world.tick(step=30)
    return world


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.STOPPED])
def test_a_quarantine_takes_back_what_has_not_begun_in_one_that_stands(mode: Mode) -> None:
    world = _with_requests_that_are_lost()
    world.rollout.mode = mode
    taken_back = controller.advance(world.rollout, [], world.now, "elsewhere")
    assert world.rollout.mode is Mode.STOPPED
    assert len([each for each in taken_back if isinstance(each, Cancel)]) == 3
    again = controller.advance(world.rollout, [], world.now, "elsewhere")
    assert not [each for each in again if isinstance(each, Cancel)], "once"
    assert not any(host.taken for host in world.hosts.values())


def test_one_that_says_after_a_resume_that_it_was_taken_back_begins_again() -> None:
    world = _with_requests_that_are_lost()
    controller.advance(world.rollout, [], world.now, "elsewhere")
    steering.resume(world.rollout, world.now)
    for host in world.hosts.values():
        host.loses = 0.0
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert set(world.steps().values()) == {"done"}


def test_it_is_not_over_while_somebody_is_to_be_rebooted() -> None:
    world = World(fleet(3), soak=0, jitter=0, canaries=0).run(DAY)
    late, name = world.rollout, "m0001"
    late.mode, late.minions[name].step = Mode.RUNNING, rollout.Step.TO_REBOOT
    late.minions[name].phase = world.hosts[name].phase = "waiting_for_boot"
    world.hosts[name].boots = 1e9
    for _ in range(5):
        world.tick()
    assert late.mode is Mode.RUNNING
    world.hosts[name].phase = "committed"
    assert world.run(DAY).rollout.mode is Mode.FINISHED
    assert world.steps()[name] == "done"


def test_one_that_has_taken_a_newer_request_is_retried_with_a_higher_number() -> None:
    """Also while it is at work for somebody else: it says itself that it does not take it now."""
    world = World(fleet(3), jitter=0, canaries=0, waves=["100%"], max_unavailable=2, max_failed=3)
    other = int(world.now * 1e6) - 1
    busy = Host("m0001", number=other, phase="installing", began=world.now, takes=1e6)
    world.hosts["m0001"] = busy
    world.rollout.minions["m0001"].number = 5
    world.rollout.minions["m0001"].step = rollout.Step.SUPERSEDED
    world.run(60)
    assert len(standing.down(world.rollout)) == 2
    steering.retry(world.rollout, ["m0001"], world.now)
    world.told.clear()
    world.run(120, watch=World.check)
    starts = [each for each in world.told if isinstance(each, Start) and each.minion == "m0001"]
    assert [each.number > other for each in starts] == [True]
    assert (busy.taken, world.steps()["m0001"]) == ([], "waiting")


def test_a_version_is_kept_from_all_again_until_that_is_stored() -> None:
    bad = {name: Host(name, ends="rolled_back") for name in ("m0000", "m0001")}
    world = World(fleet(30, **bad)).run(7200)
    world.rollout.kept = False
    for _ in range(2):
        found = controller.advance(world.rollout, [], world.now)
        assert [each.version for each in found if isinstance(each, Quarantine)] == [NEW]
    world.rollout.kept = True
    assert not controller.advance(world.rollout, [], world.now)


def test_a_version_that_was_allowed_is_kept_from_all_again_if_others_roll_it_back() -> None:
    first = {name: Host(name, ends="rolled_back") for name in ("m0000", "m0001")}
    second = {name: Host(name, ends="rolled_back") for name in ("n0000", "n0001")}
    groups = [{"target": "m*"}, {"target": "n*"}]
    hosts = [*fleet(6, **first), *second.values(), Host("n0002")]
    members = {
        "group 1": [host.name for host in hosts if host.name.startswith("m")],
        "group 2": [host.name for host in hosts if host.name.startswith("n")],
    }
    world = World(hosts, members=members, groups=groups, max_unavailable=2, max_failed=9, soak=0)
    for names in (first, second):
        world.run(DAY)
        assert world.rollout.mode is Mode.STOPPED
        found = [each for each in world.told if isinstance(each, Quarantine)]
        assert f"rolled back by {', '.join(names)} in" in found[-1].because
        # Somebody allows it.
        steering.resume(world.rollout, world.now)
    assert len(found) == 2


def test_canaries_of_the_extension_say_nothing_of_salt() -> None:
    bad = {name: Host(name, ends="rolled_back") for name in ("m0000", "m0001")}
    world = World(fleet(30, **bad), extension="2.0", soak=0).run(7200)
    assert world.rollout.count(rollout.Step.ROLLED_BACK) == 2
    steering.resume(world.rollout, world.now)
    world.run(DAY)
    assert world.rollout.part == 1
    assert not [each for each in world.told if isinstance(each, Quarantine)]


TWO_PARTS = {"extension": "2.0", "canaries": 0, "sample": "50%", "soak": 0, "jitter": 0}


def test_one_that_is_to_try_again_gets_all_that_the_others_have_got() -> None:
    """It got Salt without the extension, and the rollout said that all was well."""
    bad = Host("m0003", ends="failed")
    world = World(fleet(4, bad=bad), max_unavailable=4, max_failed=1, stage=False, **TWO_PARTS)
    while world.rollout.part == 0:
        world.tick()
    bad.ends = "committed"
    steering.retry(world.rollout, ["m0003"], world.now)
    world.run(DAY, watch=World.check)
    assert (world.rollout.mode, set(world.steps().values())) == (Mode.FINISHED, {"done"})
    assert {(host.version, host.extension) for host in world.hosts.values()} == {(NEW, "2.0")}
    goals = [each.goal for each in world.told if isinstance(each, Start) and each.minion == "m0003"]
    assert goals == [("", "2.0"), ("", "2.0"), (NEW, "")]


def test_one_that_ends_late_is_judged_by_what_it_was_asked_for() -> None:
    slow = Host("m0003", takes=900.0)
    wanted = {"max_unavailable": 4, "minion_timeout": 600, "stage": False, **TWO_PARTS}
    world = World(fleet(4, slow=slow), max_failed=1, **wanted)
    for host in world.hosts.values():
        host.takes = 900.0 if host is slow else 590.0
    while slow.phase != "committed":
        world.tick()
        assert world.now < NOW + 5000
    assert world.rollout.part == 1
    slow.takes = 60.0
    world.run(DAY, watch=World.check)
    assert (world.rollout.mode, set(world.steps().values())) == (Mode.FINISHED, {"done"})
    assert (slow.version, slow.extension, len(slow.taken)) == (NEW, "2.0", 2)


@pytest.mark.parametrize("done", [False, True])
def test_somebody_can_go_on_without_one_that_is_at_work_for_others(done: bool) -> None:
    """It need never have been asked, and may say so for ever, also when it is done."""
    name = "m0000" if done else "m0003"
    evil = Host(name, phase="installing", began=NOW, takes=2e9)
    if done:
        evil = Host(name, takes=1.0)
    wanted = {"canaries": 0, "max_unavailable": 1, "soak": 0, "jitter": 0, "stage": False}
    world = World(fleet(4, evil=evil), waves=["50%", "100%"], late_timeout=600, **wanted)
    while done and world.steps()[name] != "done":
        world.tick()
    evil.phase = "installing"
    evil.began, evil.takes = world.now, 2e9
    evil.number += 0 if done else 1
    world.run(DAY)
    assert world.rollout.mode is Mode.STOPPED
    assert f"{name} (may be at work)" in world.rollout.why
    steering.resume(world.rollout, world.now)
    world.run(DAY)
    others = {each: step for each, step in world.steps().items() if each != name}
    assert set(others.values()) == {"done"}


def test_one_that_may_still_do_what_it_was_asked_for_is_not_gone_on_without() -> None:
    """Of one that is to try again, nobody knows yet whether the first request goes on."""
    slow = Host("m0000", takes=900.0)
    wanted = {"canaries": 0, "max_unavailable": 1, "minion_timeout": 600, "late_timeout": 300}
    world = World(fleet(3, slow=slow), soak=0, jitter=0, stage=False, **wanted)
    world.run(DAY, watch=World.check)
    assert world.steps()["m0000"] == "timed_out"
    steering.retry(world.rollout, ["m0000"], world.now)
    steering.pause(world.rollout, "later", world.now)
    steering.resume(world.rollout, world.now)
    assert not world.rollout.minions["m0000"].forgiven
    world.run(DAY, watch=World.check)
    assert world.steps()["m0000"] == "done"


def test_an_engine_that_is_started_again_and_again_counts_silence() -> None:
    """The time that nobody heard is none; what was silence before stays silence."""
    world = World(fleet(10), silence_timeout=120, max_unavailable=2, soak=0, canaries=0)
    world.hosts["m0009"].away = ((NOW + 60, 2e9),)
    for _ in range(12):
        for _ in range(12):
            world.tick()
        again = rollout.from_data(rollout.to_data(world.rollout))
        world.now += 3600
        world.rollout = rollout.taken_up(again, world.now)
        if world.rollout.minions["m0009"].away:
            break
    assert world.rollout.minions["m0009"].away
    assert [name for name, each in world.rollout.minions.items() if each.away] == ["m0009"]


def test_a_window_is_kept_and_what_has_begun_goes_on() -> None:
    world = World(fleet(12), windows=["02:00-03:00 UTC"], soak=0, jitter=0, max_unavailable=1)
    started = []
    while not ended(world):
        begun = [each for each in world.tick() if isinstance(each, Start)]
        started += [world.now] * len(begun)
    hours = {int(at % DAY // 3600) for at in started}
    assert hours == {2}
    assert world.rollout.mode is Mode.FINISHED


def test_a_pause_over_a_night_changes_nothing() -> None:
    world = World(fleet(20), soak=0).run(400)
    steering.pause(world.rollout, "night", world.now)
    before = sum(len(host.taken) for host in world.hosts.values())
    world.run(12 * 3600, watch=World.check)
    assert sum(len(host.taken) for host in world.hosts.values()) == before
    assert not any(minion.step.active for minion in world.rollout.minions.values())
    steering.resume(world.rollout, world.now)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}


def test_a_clock_that_jumps_times_nobody_out() -> None:
    world = World(fleet(10), minion_timeout=600).run(60)
    for jump in (36000.0, -36000.0, 1e7):
        world.tick(step=5)
        controller.advance(world.rollout, [], world.now + jump)
        world.rollout.looked = world.now
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}


def test_an_abort_takes_back_what_has_not_begun_and_ends() -> None:
    hosts = fleet(20)
    world = World(hosts, soak=0, jitter=0, stage=False).run(30)
    for host in hosts[:2]:
        host.loses = 1.0
    world.run(60)
    assert set(list(world.steps().values())[:2]) == {"asked"}, "their requests were lost"
    world.do(steering.abort(world.rollout, "enough", world.now))
    for host in hosts[:2]:
        host.loses = 0.0
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.ABORTED
    late = Start("m0000", world.rollout.goal, NUMBER, 1)
    world.do([late])
    assert world.hosts["m0000"].version == OLD, "a request that was on its way is too late"
    assert not world.hosts["m0000"].busy
    assert set(world.steps().values()) == {"cancelled"}


def test_one_that_failed_may_try_again() -> None:
    world = World(fleet(20, bad=Host("m0000", ends="failed")), soak=0).run(7200)
    assert world.rollout.mode is Mode.STOPPED
    world.hosts["m0000"].ends = "committed"
    steering.retry(world.rollout, ["m0000"], world.now)
    assert world.rollout.mode is Mode.RUNNING
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}
    assert len(world.hosts["m0000"].taken) == 2


@pytest.mark.parametrize("how", ["postponed", "refused"])
def test_a_busy_host_is_no_failure_and_is_asked_again_until_it_can(how: str) -> None:
    """It was called failed after three attempts, and as a canary it stopped the rollout."""
    busy = Host("m0000", ends="postponed") if how == "postponed" else Host("m0000", refuses=BUSY)
    world = World(fleet(20, busy=busy), canaries=2, soak=0, jitter=0, stage=False)
    world.run(5 * 3600, watch=World.check)
    assert (world.rollout.mode, world.rollout.wave) == (Mode.RUNNING, 0), "nobody goes on without"
    told = {row["minion"]: (row["what"], row["why"]) for row in summary.problems(world.rollout)}
    assert told["m0000"] == (
        "busy",
        BUSY if how == "refused" else "postponed: its jobs did not end in time",
    )
    starts = [each for each in world.told if isinstance(each, Start) and each.minion == "m0000"]
    assert 8 <= len({each.question for each in starts}) <= 14, "and not all the time"
    busy.ends, busy.refuses = "committed", ""
    world.run(DAY, watch=World.check)
    assert (world.rollout.mode, set(world.steps().values())) == (Mode.FINISHED, {"done"})
    assert world.rollout.minions["m0000"].busy_since is None


def test_others_go_on_beside_one_that_is_busy_and_it_is_missed_if_it_stays_so() -> None:
    busy = Host("m0019", ends="postponed")
    world = World(fleet(20, busy=busy), canaries=1, waves=[10, 5, 4], soak=0, late_timeout=7200)
    world.run(2 * DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert {n for n, s in world.steps().items() if s != "done"} == {"m0019"}
    assert world.steps()["m0019"] == "missed"
    assert "was busy (postponed" in world.rollout.minions["m0019"].reason
    assert summary.exit_status(world.rollout) == 1


def test_a_wave_waits_for_busy_hosts_no_longer_than_for_any_others() -> None:
    busy = Host("m0000", ends="postponed")
    world = World(fleet(6, busy=busy), canaries=1, soak=0, late_timeout=7200).run(DAY)
    assert world.rollout.mode is Mode.STOPPED
    assert world.rollout.elapsed < 3 * 7200
    assert world.rollout.why == (
        "only 0 of 1 minions of wave 1 are done, and 1 have to be; not m0000 (busy: postponed: its "
        "jobs did not end in time). No other begins: 'resume' waits again for what is busy, "
        "'abort' ends it"
    )
    steering.resume(world.rollout, world.now)
    world.run(3600)
    assert world.rollout.mode is Mode.RUNNING, "it waits again"
    busy.ends = "committed"
    world.run(DAY)
    assert (world.rollout.mode, set(world.steps().values())) == (Mode.FINISHED, {"done"})


@pytest.mark.parametrize("how", ["failed", "rolled_back"])
def test_a_wave_of_which_too_few_are_done_says_what_to_do(how: str) -> None:
    hosts = fleet(6, first=Host("m0000", ends=how))
    world = World(hosts, canaries=0, waves=[2, 4], max_failed=2, max_unavailable=3, soak=0)
    world.run(DAY)
    assert world.rollout.mode is Mode.STOPPED
    told, _, following = world.rollout.why.partition(". ")
    assert told.startswith("only 1 of 2 minions of wave 1 are done, and 2 have to be; not m0000 (")
    assert following == (
        f"No other begins: 'retry' asks again when the cause is gone{ALLOWED * (how != 'failed')}, "
        "'resume' continues without them, 'abort' ends it"
    )
    steering.resume(world.rollout, world.now)
    assert world.run(DAY).rollout.mode is Mode.FINISHED


def test_a_wave_of_which_too_few_answer_goes_on_when_somebody_has_resumed() -> None:
    gone = Host("m0000", away=((NOW, NOW + 10 * DAY),))
    world = World(fleet(6, gone=gone), canaries=0, waves=[2, 4], max_unavailable=3, soak=0)
    world.run(DAY)
    assert "not m0000 (does not answer). No other begins: 'resume' continues" in world.rollout.why
    steering.resume(world.rollout, world.now)
    world.run(3600)
    assert list(world.steps().values()) == ["waiting", *["done"] * 5]


@pytest.mark.parametrize("how", ["held", "locked"])
def test_one_whose_administrator_holds_it_is_left_alone_and_stops_nothing(how: str) -> None:
    """It was in the plan, and is held since."""
    hosts = fleet(6, kept=Host("m0003", **{how: "ask Jo"}), canary=Host("m0000", **{how: "Jo"}))
    world = World(hosts, soak=0, canaries=2, max_failed=0).run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    steps = world.steps()
    assert {name for name, step in steps.items() if step == "held"} == {"m0000", "m0003"}
    assert set(steps.values()) == {"held", "done"}
    assert all(not world.hosts[name].taken for name in ("m0000", "m0003"))
    assert world.rollout.minions["m0003"].reason == "ask Jo"
    assert summary.exit_status(world.rollout) == 0, "as if it had been excluded"
    told = {row["minion"]: row["why"] for row in summary.problems(world.rollout)}
    assert told == {"m0000": "Jo", "m0003": "ask Jo"}


def test_canaries_that_are_all_held_have_shown_nothing() -> None:
    kept = {name: Host(name, held="Jo") for name in ("m0000", "m0001")}
    world = World(fleet(6, **kept), soak=0, canaries=2).run(DAY)
    assert world.rollout.mode is Mode.STOPPED
    assert world.rollout.why == (
        "only 0 of 2 minions of wave 1 are done, and 1 have to be; not m0000 (held: Jo), m0001 "
        "(held: Jo). No other begins: 'retry' asks again when they are not held, a new plan draws "
        "other canaries, 'abort' ends it"
    )
    assert not any(host.taken for host in world.hosts.values())
    for host in kept.values():
        host.held = ""
    steering.retry(world.rollout, kept, world.now)
    assert world.run(DAY).rollout.mode is Mode.FINISHED


def test_a_rollout_in_which_everybody_is_held_has_not_succeeded() -> None:
    world = World([Host("m0000", held="Jo")], canaries=0).run(DAY)
    assert (world.rollout.mode, world.steps()) == (Mode.FINISHED, {"m0000": "held"})
    assert summary.exit_status(world.rollout) == 1


def test_one_that_is_held_no_more_may_be_brought_along() -> None:
    kept = Host("m0005", held="Jo")
    world = World(fleet(6, kept=kept), soak=0, jitter=0)
    while world.steps()["m0005"] != "held":
        world.tick()
    kept.held = ""
    steering.retry(world.rollout, ["m0005"], world.now)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}


def test_somebody_elses_newer_request_is_seen() -> None:
    world = World(fleet(10), soak=0, canaries=1).run(30)
    world.hosts["m0000"].number = NUMBER + 10**6
    world.run(3600)
    assert world.steps()["m0000"] == "superseded"
    assert world.rollout.mode is Mode.STOPPED


def test_one_that_somebody_elses_newer_request_has_updated_is_done() -> None:
    """Such as a rollout of another master: it stopped this one, once for each host."""
    world = World(fleet(10), soak=0, canaries=1).run(30)
    for host in world.hosts.values():
        host.number, host.version, host.phase = NUMBER + 10**6, NEW, "committed"
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}
    assert world.rollout.mode is Mode.FINISHED


def test_the_extension_comes_first_by_the_same_waves() -> None:
    world = World(fleet(3), soak=0, canaries=1, extension="2.0").run(DAY, watch=World.check)
    goals = [action.goal for action in world.told if isinstance(action, Start)]
    assert goals == [("", "2.0")] * 3 + [(NEW, "")] * 3
    assert world.rollout.mode is Mode.FINISHED
    assert {(host.version, host.extension) for host in world.hosts.values()} == {(NEW, "2.0")}


def test_a_request_that_was_lost_is_not_sent_again_while_another_one_is_away() -> None:
    """Sent again after a minute, it began although somebody else had gone meanwhile."""
    world = World(fleet(6), soak=0, canaries=1, max_unavailable="1")
    arrives = False
    do = world.do

    def lossy(actions: list[Action]) -> None:
        do([each for each in actions if arrives or not isinstance(each, Start)])

    world.do = lossy  # type: ignore[method-assign]
    while world.steps()["m0000"] != "asked":
        world.tick()
    world.hosts["m0003"].away = ((world.now, world.now + 1800),)
    for _ in range(10):
        world.tick()
    arrives = True
    world.run(1200, watch=World.check)
    assert world.hosts["m0000"].taken == []
    assert "nobody can begin: 1 may be away at once, and 2 are" in world.rollout.why
    world.run(DAY, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED
    assert set(world.steps().values()) == {"done"}


behaviours = st.builds(
    dict,
    ends=st.sampled_from(["committed"] * 8 + ["rolled_back", "failed", "hangs", "postponed"]),
    takes=st.floats(5, 900),
    loses=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    refuses=st.sampled_from([""] * 9 + ["no space"]),
    lies=st.sampled_from([False] * 9 + [True]),
    gone=st.lists(st.tuples(st.floats(0, 20000), st.floats(60, 9000)), max_size=2),
)


def made(number: int, drawn: dict) -> Host:
    gone = tuple((1_780_000_000 + at, 1_780_000_000 + at + long) for at, long in drawn.pop("gone"))
    return Host(f"m{number:04}", away=gone, **drawn)


WELL = {"ends": "committed", "takes": 5.0, "loses": 0.0, "refuses": "", "lies": False, "gone": []}


@settings(max_examples=15, deadline=None, phases=PHASES)
# A request is lost, and another minion goes before it is sent again.
@example([{**WELL, "loses": 0.4}, {**WELL, "gone": [(91.0, 230.0)]}, *[WELL] * 4], 16, "1", 0.0)
# Somebody goes on without one that is at work for longer than it may.
@example(
    [
        {**WELL, "takes": 251.0, "loses": 0.4},
        {**WELL, "gone": [(0.0, 4006.0)]},
        {**WELL, "gone": [(91.0, 5355.0)]},
        {**WELL, "takes": 536.0, "loses": 0.4, "gone": [(3586.0, 3140.0)]},
        *(WELL, {**WELL, "loses": 0.4}, WELL),
    ],
    *(0, "1", 0.0),
)
@given(
    st.lists(behaviours, min_size=5, max_size=25),
    st.integers(0, 10**6),
    st.sampled_from(["1", "3", "20%"]),
    st.sampled_from([0.0, 0.05]),
)
def test_whatever_happens(drawn: list[dict], seed: int, away: str, restarts: float) -> None:
    """Never more down than allowed, no gate passed, and an end, with a person who goes on."""
    hosts = [made(number, dict(each)) for number, each in enumerate(drawn)]
    world = World(hosts, seed, max_unavailable=away, soak=30, late_timeout=3600)
    for round_ in range(8):
        world.run(6 * 3600, restarts=restarts, watch=World.check)
        if ended(world):
            break
        if round_ == 6:
            steering.abort(world.rollout, "enough", world.now)
        else:
            # Somebody looks after those that are down, and lets it go on.
            for host in world.hosts.values():
                if host.phase in ("failed", "hangs"):
                    host.phase = "rolled_back"
            steering.resume(world.rollout, world.now)
    assert ended(world), (world.rollout.mode, world.rollout.why, world.steps())


@settings(max_examples=15, deadline=None, phases=PHASES)
@given(st.lists(behaviours, min_size=2, max_size=10), st.integers(0, 10**6))
def test_a_restart_at_any_tick_and_another_order_change_nothing(
    drawn: list[dict], seed: int
) -> None:
    world = World([made(number, dict(each)) for number, each in enumerate(drawn)], seed, soak=0)
    for _ in range(200):
        if world.rollout.mode.final:
            break
        come = [report for at, report in world._due if at <= world.now + 5]
        one = rollout.from_data(rollout.to_data(world.rollout))
        other = rollout.from_data(rollout.to_data(world.rollout))
        first = controller.advance(one, come, world.now + 5)
        second = controller.advance(other, [*reversed(come), *come], world.now + 5)
        assert first == second
        assert rollout.to_data(one) == rollout.to_data(other)
        world.tick()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_large_fleet(count: int) -> None:
    hosts = fleet(count)
    for number, host in enumerate(hosts[10:]):
        if number % 100 == 7:
            host.ends = "rolled_back"
        host.loses = 0.02 if number % 5 == 0 else 0.0
    world = World(hosts, 7, soak=60)
    ticks = 0
    while not ended(world) and ticks < 5000:
        world.tick()
        ticks += 1
        if ticks % 50 == 0:
            world.check()
    assert world.rollout.mode is Mode.FINISHED
    assert world.rollout.count(rollout.Step.DONE) == count - len(
        [host for host in hosts if host.ends == "rolled_back"]
    )


def test_a_report_of_nobody_and_of_no_question_is_dropped() -> None:
    world = World(fleet(5)).run(20)
    before = rollout.to_data(world.rollout)["minions"]
    stray = [
        Report(minion="stranger", question=1, number=NUMBER, phase="committed", version=NEW),
        Report(minion="m0004", question=10**9, number=NUMBER, phase="committed", version=NEW),
    ]
    controller.advance(world.rollout, stray, world.rollout.looked)
    assert rollout.to_data(world.rollout)["minions"] == before


def test_those_of_the_next_wave_are_asked_whether_they_have_downloaded() -> None:
    """Else they count as busy downloading until their wave begins."""
    world = World(fleet(30), soak=1200)
    canaries, following = (wave.minions for wave in world.rollout.plan.waves[:2])
    world.run(300)
    assert world.rollout.current is world.rollout.plan.waves[0], set(canaries)
    assert {world.rollout.minions[name].staged for name in following} == {"done"}
    assert not any(minion.away for minion in world.rollout.minions.values())


def test_a_plan_may_be_older_than_another_rollout() -> None:
    """Minions refuse lower numbers than they know, so a rollout begins with a higher one."""
    world = World(fleet(2), soak=0)
    for host in world.hosts.values():
        host.number = NUMBER + 100
    world.rollout = rollout.begin(world.rollout.plan, world.now, first=NUMBER + 101)
    world.run(DAY, watch=World.check)
    assert set(world.steps().values()) == {"done"}


def test_one_that_has_the_version_installed_and_runs_another_goes_back_to_that() -> None:
    world = World([Host("m0"), Host("m1")], canaries=0, soak=0, jitter=0)
    told = world.hosts["m0"].report
    world.hosts["m0"].report = lambda *given: dataclasses.replace(told(*given), installed=NEW)  # type: ignore[method-assign]
    world.run(DAY)
    assert {name: each.before for name, each in world.rollout.minions.items()} == {
        "m0": OLD,
        "m1": OLD,
    }
