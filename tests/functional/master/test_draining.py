"""Hosts that people work on: rollouts and policies leave them alone, and wait for nobody."""

import os

import pytest

from saltext_safeupdate.core.errors import InputError, RecordError
from saltext_safeupdate.master import draining, policies
from saltext_safeupdate.master.store import ROLLOUTS
from saltext_safeupdate.runners import safeupdate
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.unit.fleet.world import NEW, OLD, Host

NAMES = [f"m{number}" for number in range(6)]


@pytest.fixture
def fleet():
    return Fleet(NAMES)


@pytest.fixture
def master(tmp_path, fleet):
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    yield made
    made.close()


def drain(master, *names, timeout=90_000.0):
    return draining.drain(
        master.store(), names, timeout, "new\nswitches", "jo on here", master.time.now
    )


def undrain(master, *names):
    return draining.undrain(master.store(), names, master.time.now)


def steps(found):
    return {name: each.step.value for name, each in found.minions.items()}


def test_a_plan_leaves_them_out_with_the_reason(master):
    told = drain(master, "m1", "m2")
    assert (told["minions"], told["reason"]) == (["m1", "m2"], "new switches")
    plan = master.plan()
    assert set(plan.left_out) == {"m1", "m2"}
    assert plan.left_out["m1"].startswith("held: drained by jo on here until 2026-05-29 ")
    assert plan.left_out["m1"].endswith(": new switches")
    assert plan.unfit == frozenset()
    assert undrain(master, "m1", "m3") == ["m1"]
    assert set(master.plan().left_out) == {"m2"}


def test_a_rollout_that_is_under_way_goes_on_without_them(master, fleet):
    name = master.begin(master.plan())
    while not fleet.most_busy:
        master.tick()
    drain(master, "m4", "m5")
    fleet.silent |= {"m4", "m5"}
    found = master.until(name, "finished")
    assert steps(found) == dict.fromkeys(NAMES[:4], "done") | {"m4": "held", "m5": "held"}
    assert master.status(name) == 0
    assert fleet.most_busy == 1
    assert any("m5: drained by jo on here" in line for _, line in found.history)


def test_who_is_away_for_that_takes_no_part_of_the_limit_and_stops_nothing(master, fleet):
    fleet.hosts["m1"].takes = 10_000.0
    name = master.begin(master.plan(sample=0, minion_timeout=600, waves=["100%"]))
    while not fleet.hosts["m1"].taken:
        master.tick()
    # Its rack has no power any more: it would be timed out, and nobody else could begin.
    drain(master, "m1", "m2")
    fleet.silent |= {"m1", "m2"}
    found = master.until(name, "finished")
    assert steps(found) == dict.fromkeys(NAMES, "done") | {"m1": "timed_out", "m2": "held"}
    assert any("m1: is no failure of the rollout" in line for _, line in found.history)


def test_they_go_on_in_their_wave_when_it_is_over(master, fleet):
    name = master.begin(master.plan(canaries=0, waves=["100%"]))
    drain(master, "m0", timeout=100.0)
    drain(master, "m5")
    for _ in range(3):
        master.tick()
    assert not fleet.hosts["m0"].taken + fleet.hosts["m5"].taken
    assert undrain(master, "m5") == ["m5"]
    found = master.until(name, "finished")
    assert set(steps(found).values()) == {"done"}


def test_an_engine_that_dies_knows_it_still(master, fleet):
    name = master.begin(master.plan())
    drain(master, "m5")
    for _ in range(60):
        master.tick()
    master.start()
    undrain(master, "m5")
    found = master.until(name, "finished")
    assert steps(found)["m5"] == "done"


@pytest.fixture
def step(master, fleet, monkeypatch):
    """Take a step of a policy that wants the new version everywhere."""
    monkeypatch.setattr("salt.version.__version__", NEW)
    hears = fleet.hears

    def told(name, fun, arg, now):
        said, good = hears(name, fun, arg, now)
        if fun == "safeupdate.report":
            said |= {"running": said["version"]}
        return said, good

    fleet.hears = told
    path = policies.path_of(master.opts)
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"groups: [{{name: all, target: '*', version: '{NEW}', soak: 0, jitter: 0}}]")
    os.chmod(path, 0o600)

    def taken():
        return policies.step(
            master.opts,
            apply=True,
            store=master.store(),
            ask=master.ask,
            clock=lambda: master.time.now,
            order=lambda opts, what, given: master.order(what, given["plan"], **given),
        )

    return taken


def test_a_policy_leaves_them_alone_and_brings_them_along_afterwards(master, fleet, step):
    drain(master, *NAMES[3:])
    found = step()
    assert found["groups"][0]["bring"] == NAMES[:3]
    assert found["groups"][0]["left"]["m3"].startswith("drained by jo on here")
    master.until(found["begun"], "finished")
    assert step()["begun"] == ""
    assert [fleet.hosts[name].version for name in NAMES[3:]] == [OLD] * 3
    master.time.now += 90_001.0
    master.until(step()["begun"], "finished")
    assert {host.version for host in fleet.hosts.values()} == {NEW}


def test_a_policy_brings_those_along_who_have_failed_because_people_worked_there(
    master, fleet, step
):
    host = fleet.hosts["m5"]
    host.takes = 90_000.0
    name = step()["begun"]
    while not host.taken:
        master.tick()
    drain(master, "m5", timeout=10_000.0)
    fleet.silent.add("m5")
    while not (found := master.store().rollout(name)).mode.final:
        master.tick(10.0)
    assert steps(found)["m5"] == "timed_out"
    # The new disk is in, with the old version on it.
    fleet.silent.clear()
    fleet.hosts["m5"] = Host("m5", takes=20.0)
    master.time.now += 10_001.0
    found = step()
    assert found["groups"][0]["left"] == {}
    master.until(found["begun"], "finished")
    assert fleet.hosts["m5"].version == NEW


@pytest.mark.parametrize("timeout", [0.0, -5.0, float("inf")])
def test_it_always_ends(master, timeout):
    with pytest.raises(InputError, match="has to end by itself"):
        drain(master, "m1", timeout=timeout)


def test_what_cannot_be_read_is_nobody_that_may_be_started(master, fleet):
    name = master.begin(master.plan())
    master.store().cache.write(ROLLOUTS, "drained", ["m1"])
    with pytest.raises(RecordError, match="no list of minions"):
        draining.drained(master.store(), 0.0)
    for _ in range(100):
        master.tick()
    assert not any(host.taken for host in fleet.hosts.values())
    assert master.store().rollout(name).mode.value == "running"


def test_the_runner_drains_those_that_are_meant(master, monkeypatch):
    monkeypatch.setattr(
        safeupdate, "__opts__", {**master.opts, "cachedir": str(master.cache)}, raising=False
    )
    told = safeupdate.drain("m[1-2]", timeout=60, reason="power", zone="Asia/Kolkata")
    assert told["times"]["until"].endswith("+05:30")
    assert told["minions"] == ["m1", "m2"]
    assert safeupdate.undrain("*") == ["m1", "m2"]
    with pytest.raises(safeupdate.errors.RefusedError, match="No minion with an accepted key"):
        safeupdate.drain("x*")


def test_nobody_is_undrained_of_whom_the_master_does_not_know_if_it_is_meant(master, monkeypatch):
    """Its grains are not known: Salt alone takes it for one that does not have them."""
    monkeypatch.setattr(
        safeupdate, "__opts__", {**master.opts, "cachedir": str(master.cache)}, raising=False
    )
    safeupdate.drain("m1,m2", tgt_type="list", reason="power")
    for target in ("not G@rack:8", "* and not I@rack:8"):
        with pytest.raises(safeupdate.errors.RefusedError, match="m1, m2: drained, but"):
            safeupdate.undrain(target, tgt_type="compound")
    assert set(draining.drained(master.store(), 0.0)) == {"m1", "m2"}
    assert safeupdate.undrain("E@m[13]", tgt_type="compound") == ["m1"]


@pytest.mark.parametrize("target", ["m1,m99", ["m1", "m99"]])
def test_a_misspelt_name_drains_nobody(master, monkeypatch, target):
    """The other one would be updated, while people work on its host."""
    monkeypatch.setattr(
        safeupdate, "__opts__", {**master.opts, "cachedir": str(master.cache)}, raising=False
    )
    with pytest.raises(safeupdate.errors.RefusedError, match=r"is called 'm99'.*Nothing was"):
        safeupdate.drain(target, tgt_type="list")
    assert draining.drained(master.store(), 0.0) == {}


@pytest.mark.parametrize("target", ["m1,m99", ["m1", "m99"]])
def test_a_misspelt_name_undrains_nobody(master, monkeypatch, target):
    """The other one would not be updated, and nobody would know."""
    monkeypatch.setattr(
        safeupdate, "__opts__", {**master.opts, "cachedir": str(master.cache)}, raising=False
    )
    safeupdate.drain("m1", reason="power")
    with pytest.raises(safeupdate.errors.RefusedError, match=r"is called 'm99'.*Nothing was"):
        safeupdate.undrain(target, tgt_type="list")
    assert list(draining.drained(master.store(), 0.0)) == ["m1"]


@pytest.mark.parametrize("target", ["m1,m99", ["m1", "m99"]])
def test_the_versions_of_a_misspelt_name_are_not_left_out_without_a_word(
    master, monkeypatch, target
):
    monkeypatch.setattr(
        safeupdate, "__opts__", {**master.opts, "cachedir": str(master.cache)}, raising=False
    )
    with pytest.raises(safeupdate.errors.RefusedError, match=r"is called 'm99'.*Nothing was asked"):
        safeupdate.versions(target, tgt_type="list", ask=False)


def test_a_check_tells_of_a_misspelt_name(master, monkeypatch):
    # As an orchestration calls it.
    called = {**master.opts, "cachedir": str(master.cache), "fun": "state.orchestrate"}
    monkeypatch.setattr(safeupdate, "__opts__", called, raising=False)
    monkeypatch.setattr(safeupdate, "__context__", {}, raising=False)
    found = safeupdate.check("m1,m99", tgt_type="list", ask=False)
    codes = {each["minion"]: each["code"] for each in found["drift"]}
    assert (codes, found["retcode"]) == ({"m1": "unknown", "m99": "no-key"}, 1)
