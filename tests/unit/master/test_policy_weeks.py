"""A policy for weeks: it comes to what it wants or says why not, and never goes to and fro."""

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.fleet import policy
from tests.unit.fleet.world import NEW, NOW
from tests.unit.master.weeks import DAY, HOUR, Life, Weeks

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
# What happens to hosts; most are well.
LIVES = (
    *({},) * 6,
    {"ends": "rolled_back"},
    {"ends": "failed"},
    {"since": NOW + 3 * DAY},
    {"away": ((NOW + HOUR, NOW + 4 * DAY),)},
    {"away": ((NOW + 600, NOW + 5 * HOUR), (NOW + 30 * HOUR, NOW + 31 * HOUR))},
    {"busy_until": NOW + 2 * DAY},
    {"kept_until": NOW + 5 * DAY},
    {"each": 6 * HOUR},
    {"takes": 2 * HOUR},
)
GROUP = {"target": "*", "version": NEW, "jitter": 0, "soak": 60, "sample": 0, "max_failed": "50%"}
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "windows": st.sampled_from([["20:00-04:00"], ["sat 00:00-12:00", "22:00-23:30"]]),
        "closed": st.just(["2026-05-29 - 2026-05-30"]),
        "max_unavailable": st.sampled_from([1, 2, "20%"]),
        "canaries": st.sampled_from([0, 1, 2]),
        "sample": st.sampled_from([0, "90%"]),
        "stage": st.booleans(),
    },
)


def intent(first: dict, rest: dict, *, beside: bool = False) -> dict:
    groups = [{"name": "first", **GROUP, **first}, {"name": "rest", **GROUP, **rest}]
    return {"groups": groups, "side_by_side": beside}


def fleet(lives: list[dict]) -> tuple[list[Life], dict[str, list[str]]]:
    names = [f"m{number:05}" for number in range(len(lives))]
    hosts = [Life(name, **life) for name, life in zip(names, lives, strict=True)]
    return hosts, {"first": names[::4], "rest": names}


def calm(found: Weeks) -> None:
    """Assert that nothing more comes of it by itself."""
    found.check_calm()
    undone = {host.name for host in found.hosts.values() if host.each}
    before = len(found.taken)
    found.run(1)
    assert {name for _, name in found.taken[before:]} <= undone


@settings(max_examples=6, deadline=None, phases=PHASES)
@given(
    st.lists(st.sampled_from(LIVES), min_size=4, max_size=14),
    SETTINGS,
    SETTINGS,
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.02]),
)
def test_whatever_happens_it_comes_to_what_it_wants_or_says_why_not(
    lives: list[dict], first: dict, rest: dict, beside: bool, seed: int, restarts: float
) -> None:
    found = Weeks(*of_lives(lives, intent(first, rest, beside=beside)), seed=seed)
    calm(found.run(12, restarts=restarts))


def of_lives(lives: list[dict], wanted: dict) -> tuple[list[Life], dict, dict]:
    hosts, members = fleet(lives)
    return hosts, wanted, members


def test_a_fleet_that_is_well_converges_and_rests() -> None:
    found = Weeks(*of_lives([{}] * 30, intent({}, {}))).run(2)
    assert found.versions() == {NEW: 30}
    begun = len(found.begun)
    assert begun == 2, "one rollout for each group"
    found.run(5)
    assert (len(found.begun), len(found.taken)) == (begun, 30)


def test_an_engine_that_dies_at_any_step_changes_nothing_of_what_comes_next() -> None:
    """All that the policy decides by is stored, or asked for anew."""
    dice = random.Random(5)
    lives = [dice.choice(LIVES) for _ in range(16)]
    found = Weeks(*of_lives(lives, intent({"windows": ["20:00-04:00"]}, {})), seed=5)
    for _ in range(40):
        found.run(0.25)
        other = found.copy()
        assert policy.look(other.policy, other.known()) == policy.look(found.policy, found.known())


def large(count: int, days: float, seed: int) -> None:
    """Let days go by for a fleet of which most are well, and assert that it comes to rest."""
    dice = random.Random(seed)
    # Of a thousand, some ten have something of their own.
    lives = [dice.choice(LIVES) if dice.random() < 0.02 else {} for _ in range(count)]
    wanted = intent(
        {"max_unavailable": max(count // 200, 2)},
        {"max_unavailable": max(count // 50, 2), "windows": ["20:00-06:00"]},
    )
    found = Weeks(*of_lives(lives, wanted), seed=seed).run(days, restarts=0.005)
    calm(found)
    assert found.versions()[NEW] > 0.98 * count


def test_hundreds_for_days() -> None:
    large(300, 6, 0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_ten_thousand_for_weeks(seed: int) -> None:
    large(10_000, 14, seed)


@pytest.mark.soak
@settings(max_examples=150, deadline=None, phases=PHASES)
@given(
    st.lists(st.sampled_from(LIVES), min_size=4, max_size=60),
    SETTINGS,
    SETTINGS,
    st.booleans(),
    st.integers(0, 10**6),
)
def test_many_fleets_for_weeks(
    lives: list[dict], first: dict, rest: dict, beside: bool, seed: int
) -> None:
    found = Weeks(*of_lives(lives, intent(first, rest, beside=beside)), seed=seed)
    calm(found.run(21, restarts=0.02))
