"""Hosts that people work on, while a rollout is under way."""

import pytest

from saltext_safeupdate.fleet import steering
from saltext_safeupdate.fleet.rollout import Mode, Step
from tests.unit.fleet.world import BUSY, NEW, NOW, Host, World

DAY = 86400.0
WHY = {"m0": "drained by jo"}


def world(*hosts: Host, **wanted: object) -> World:
    settings = {"canaries": 0, "waves": ["100%"], "max_unavailable": len(hosts), "sample": 0}
    return World(hosts, **{**settings, "soak": 0, "jitter": 0, "late_timeout": 7200, **wanted})


def run_until(found: World, step: Step) -> None:
    while found.rollout.minions["m0"].step is not step:
        found.tick()


def test_one_that_was_busy_is_not_asked_again() -> None:
    """It would begin as soon as whatever it is busy with is over."""
    found = world(Host("m0", refuses=BUSY), Host("m1", takes=1200.0))
    while not found.rollout.minions["m0"].tries:
        found.tick()
    run_until(found, Step.WAITING)
    found.drained = WHY
    found.hosts["m0"].refuses = ""
    found.run(DAY, watch=World.check)
    assert (found.rollout.mode, found.steps()) == (Mode.FINISHED, {"m0": "held", "m1": "done"})
    assert not found.hosts["m0"].taken


def test_one_that_somebody_else_has_at_work_is_not_asked_again() -> None:
    """It would begin as soon as the other update is over."""
    other = Host("m0", phase="watching", began=NOW, takes=900.0, boots=0.0)
    found = world(other, Host("m1", takes=3600.0), minion_timeout=DAY)
    while not found.rollout.minions["m0"].tries:
        found.tick()
    run_until(found, Step.WAITING)
    assert found.rollout.minions["m0"].engaged
    found.drained = WHY
    found.run(DAY, watch=World.check)
    assert (found.rollout.mode, found.steps()) == (Mode.FINISHED, {"m0": "held", "m1": "done"})
    assert found.rollout.minions["m0"].tries == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_was_lost_is_taken_back(*, again: bool) -> None:
    """It would begin as soon as it is back, while people work on its host."""
    host = Host("m0")
    found = world(host, Host("m1", takes=3600.0), minion_timeout=DAY)
    while not found.rollout.minions["m1"].tries:
        found.tick()
        # It goes away just when it is asked, and comes back to the hands of people.
        host.away = ((found.now, found.now + 600.0),)
    assert found.rollout.minions["m0"].step is Step.ASKED
    assert not host.taken
    found.drained = WHY
    found.run(1800.0, watch=World.check)
    assert not host.taken
    assert found.rollout.minions["m0"].step is Step.HELD
    if again:
        found.drained = {}
    found.run(DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED
    assert found.steps() == {"m0": "done" if again else "held", "m1": "done"}


def test_what_has_begun_goes_on() -> None:
    found = world(Host("m0"), Host("m1"))
    run_until(found, Step.UPDATING)
    found.drained = WHY
    found.run(DAY, watch=World.check)
    assert found.rollout.mode is Mode.FINISHED
    assert {host.version for host in found.hosts.values()} == {NEW}


def test_who_has_failed_meanwhile_is_known_as_such_until_it_tries_again() -> None:
    """A policy brings it along, in spite of its failure."""
    found = world(Host("m0", takes=DAY), Host("m1", takes=3000.0), minion_timeout=3600.0)
    run_until(found, Step.UPDATING)
    found.drained = WHY
    minion = found.rollout.minions["m0"]
    minion.asked -= 3600.0
    run_until(found, Step.TIMED_OUT)
    found.drained = {}
    found.run(600.0)
    assert (found.rollout.mode, minion.forgiven, minion.drained) == (Mode.RUNNING, True, True)
    steering.retry(found.rollout, ["m0"], found.now)
    found.tick()
    assert not minion.drained


def test_canaries_that_are_rolled_back_while_people_work_there_say_nothing_of_the_version() -> None:
    hosts = [Host(f"m{number}", takes=600.0) for number in range(6)]
    for host in hosts[:2]:
        host.ends = "rolled_back"
    found = world(*hosts, canaries=2)
    run_until(found, Step.UPDATING)
    found.drained = WHY | {"m1": "drained by jo"}
    found.run(DAY, watch=World.check)
    assert (found.rollout.mode, found.rollout.because) == (Mode.FINISHED, "")
    assert list(found.steps().values()) == ["rolled_back"] * 2 + ["done"] * 4


def test_a_rollout_of_which_all_canaries_are_drained_waits_and_says_so() -> None:
    found = world(*(Host(f"m{number}") for number in range(4)), canaries=1, sample="90%")
    found.drained = WHY
    found.run(DAY)
    assert found.rollout.mode is Mode.RUNNING
    assert found.rollout.why == (
        "waits for canaries on whose hosts people work: m0 (drained by jo). 'undrain' continues it"
        "; a new plan draws other canaries"
    )
    assert [text for _, text in found.rollout.history].count(found.rollout.why) == 1
    assert not any(host.taken for host in found.hosts.values())
    found.drained = {}
    found.tick()
    assert found.rollout.why == ""
    assert found.run(DAY, watch=World.check).rollout.mode is Mode.FINISHED
    assert set(found.steps().values()) == {"done"}


def test_one_of_a_policy_ends_and_the_next_one_draws_others() -> None:
    hosts = [Host(f"m{number}") for number in range(4)]
    found = world(*hosts, canaries=1, sample="90%", leave_late=True)
    found.drained = WHY
    found.run(DAY)
    assert found.rollout.mode is Mode.FINISHED
    assert found.steps() == {"m0": "held", **dict.fromkeys(("m1", "m2", "m3"), "cancelled")}
    assert "m0 is drained" in found.rollout.minions["m1"].reason


def test_one_whose_canaries_are_held_by_their_hosts_waits_for_none_of_them() -> None:
    """Nobody knows when that ends."""
    hosts = [Host("m0"), Host("m1", held="Jo"), Host("m2"), Host("m3")]
    found = world(*hosts, canaries=2, sample="90%")
    found.drained = WHY
    found.run(DAY)
    assert found.rollout.mode is Mode.RUNNING
    found.drained = {}
    found.hosts["m0"].held = "Jo"
    found.run(3600.0)
    assert found.rollout.mode is Mode.STOPPED
    assert "only 0 of 2 minions of wave 1 are done" in found.rollout.why
