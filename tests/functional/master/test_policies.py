"""A policy in its file, and what it has a master do: by rollouts, and never around them."""

import os
import random
import types

import pytest
import salt.version

from saltext_safeupdate.core.errors import (
    CacheError,
    InputError,
    LockHeldError,
    SafeUpdateError,
)
from saltext_safeupdate.fleet import policy_text
from saltext_safeupdate.master import (
    allowing,
    given_up,
    planning,
    policies,
    rollouts,
    stocktaking,
)
from saltext_safeupdate.runners import safeupdate
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.unit.fleet.world import BUSY, NEW, OLD, Host

NAMES = [f"m{number}" for number in range(6)]
LIMITS = "canaries: 1, max_unavailable: 1, soak: 0, jitter: 0"
ALL = f"groups: [{{name: all, target: '*', version: '{NEW}', {LIMITS}}}]"
DAY = 86400.0


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch):
    """The first ones are the canaries: one that is to go back would stop all."""
    first = types.SimpleNamespace(sample=lambda minions, count: minions[:count])
    monkeypatch.setattr(planning.secrets, "SystemRandom", lambda: first)


@pytest.fixture
def fleet():
    return Fleet(NAMES)


@pytest.fixture
def master(tmp_path, fleet, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", NEW)
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    # What a real minion says of itself for the inventory as well.
    hears = fleet.hears

    def told(name, fun, arg, now):
        said, good = hears(name, fun, arg, now)
        if fun == "safeupdate.report" and good:
            said |= {"running": said["version"]}
        if fun == "safeupdate.plan" and good:
            said |= {"targets": {"salt": fleet.offers.get(name, f"{NEW}-1")}}
        return said, good

    fleet.offers = {}
    fleet.hears = told
    yield made
    made.close()


@pytest.fixture
def write(master):
    path = policies.path_of(master.opts)
    os.makedirs(os.path.dirname(path))

    def write(text, mode=0o600):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    return write


def step(master, apply=True, **more):
    def order(opts, what, given):
        return master.order(what, given["plan"], **given)

    return policies.step(
        master.opts,
        apply=apply,
        store=master.store(),
        ask=master.ask,
        clock=master._clock,
        order=order,
        **more,
    )


def runs(fleet):
    return {host.name: host.version for host in fleet.hosts.values()}


def asked(fleet):
    return {host.name for host in fleet.hosts.values() if host.taken}


def test_what_it_would_do_is_shown_first_and_starts_nothing(master, fleet, write):
    write(ALL)
    found = step(master, apply=False)
    assert (found["next"], found["begun"]) == ("all", "")
    assert [(row["there"], row["bring"], row["waits"]) for row in found["groups"]] == [
        (0, NAMES, "")
    ]
    assert master.store().rollouts() + master.store().plans() == []
    assert asked(fleet) == set()


def test_it_brings_the_fleet_to_what_it_wants_and_rests_then(master, fleet, write):
    path = write(ALL)
    found = step(master, by="root on here")
    told = master.until(found["begun"], "finished")
    assert told.by == "the policy, group all, for root on here"
    assert runs(fleet) == dict.fromkeys(NAMES, NEW)
    assert fleet.most_busy == 1, "the limits of the group count"
    for _ in range(3):
        again = step(master)
        assert (again["begun"], again["next"], again["policy"]) == ("", "", path)
    assert len(master.store().rollouts()) == 1


def test_newcomers_and_those_that_come_back_are_brought_along(master, fleet, write):
    write(ALL)
    fleet.silent.add("m5")
    master.until(step(master)["begun"], "finished")
    found = step(master)
    assert (found["begun"], list(found["groups"][0]["left"])) == ("", ["m5"])
    master.time.now += 30 * DAY
    fleet.silent.clear()
    fleet.hosts["new"] = Host("new", takes=20.0)
    with open(os.path.join(master.opts["pki_dir"], "minions", "new"), "w", encoding="utf-8") as key:
        key.write("a key")
    found = step(master)
    assert found["groups"][0]["bring"] == ["m5", "new"]
    master.until(found["begun"], "finished")
    assert set(runs(fleet).values()) == {NEW}


def test_one_rollout_at_a_time_also_if_a_person_has_begun_it(master, fleet, write):
    write(
        f"groups: [{{name: a, target: 'm[0-2]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: b, target: '*', version: '{NEW}', {LIMITS}}}]"
    )
    name = master.begin(master.plan("m5"))
    found = step(master)
    assert found["begun"] == ""
    waits = f"the rollout {name} is running, and there is one at a time"
    assert [row["waits"] for row in found["groups"]] == [waits, waits]
    master.until(name, "finished")
    begun = []
    while (found := step(master))["begun"]:
        begun.append((found["next"], sorted(master.until(found["begun"], "finished").minions)))
    assert begun == [("a", NAMES[:3]), ("b", ["m3", "m4"])]


def test_groups_go_side_by_side_if_that_is_wanted(master, fleet, write):
    write(
        f"side_by_side: true\ngroups: [{{name: a, target: 'm[0-2]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: b, target: '*', version: '{NEW}', {LIMITS}}}]"
    )
    first, second = step(master), step(master)
    assert [first["next"], second["next"]] == ["a", "b"]
    assert len({first["begun"], second["begun"], ""}) == 3
    third = step(master)
    assert third["begun"] == "", "each group has one at a time"
    assert "each group has one at a time" in third["groups"][1]["waits"]
    for found in (first, second):
        master.until(found["begun"], "finished")
    assert runs(fleet) == dict.fromkeys(NAMES, NEW)
    assert fleet.most_busy == 2, "one of each group"


def test_nothing_begins_beside_a_rollout_that_stands(master, fleet, write):
    write(
        f"side_by_side: true\ngroups: [{{name: a, target: 'm[0-2]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: b, target: '*', version: '{NEW}', {LIMITS}}}]"
    )
    fleet.hosts["m0"].ends = "failed"
    name = step(master)["begun"]
    master.until(name, "stopped")
    found = step(master)
    waits = f"the rollout {name} is stopped, and nothing begins until it is over"
    assert (found["begun"], found["groups"][1]["waits"]) == ("", waits)


def test_it_never_goes_around_a_quarantine(master, fleet, write):
    write(ALL)
    master.store().quarantine(NEW, "it is bad")
    found = step(master)
    assert (found["begun"], found["groups"][0]["waits"]) == (
        "",
        f"{NEW} is in quarantine: it is bad",
    )
    assert asked(fleet) == set()


def test_a_fleet_that_was_taken_back_stays_back(master, fleet, write):
    write(ALL)
    name = step(master)["begun"]
    master.until(name, "finished")
    master.until(master.begin(master.plan(None, back=name)), "finished")
    found = step(master)
    assert found["begun"] == ""
    assert "taken back by the rollout" in found["groups"][0]["waits"]
    assert runs(fleet) == dict.fromkeys(NAMES, OLD)


def test_a_part_that_was_taken_back_stays_back_until_somebody_brings_it(master, fleet, write):
    write(ALL)
    name = step(master)["begun"]
    master.until(name, "finished")
    back = master.begin(master.plan("m[3-5]", back=name))
    master.until(back, "finished")
    found = step(master)
    assert found["begun"] == "", "a part of a fleet is kept from nothing, and was brought again"
    why = f"was taken back by the rollout {back}; update it yourself"
    assert found["groups"][0]["left"] == dict.fromkeys(NAMES[3:], why)
    master.until(master.begin(master.plan("m5")), "finished")
    fleet.hosts["m5"].version = OLD
    assert step(master, apply=False)["groups"][0]["bring"] == ["m5"], "and that is over then"


def test_a_part_that_was_taken_back_by_the_name_of_its_version_stays_back(master, fleet, write):
    write(ALL)
    master.until(step(master)["begun"], "finished")
    back = master.begin(master.plan("m[3-5]", back=NEW))
    master.until(back, "finished")
    why = f"was taken back by the rollout {back}; update it yourself"
    assert step(master)["groups"][0]["left"] == dict.fromkeys(NAMES[3:], why)


def test_a_fleet_that_was_taken_back_is_brought_again_when_that_is_allowed(master, fleet, write):
    fleet.quarantines = True
    write(ALL)
    name = step(master)["begun"]
    master.until(name, "finished")
    master.until(master.begin(master.plan(None, back=name)), "finished")
    given = {"ask": master.ask, "tell": lambda *_: None}
    assert allowing.allow_everywhere(master.opts, master.store(), NEW, **given)["lifted"]
    assert step(master, apply=False)["groups"][0]["bring"] == NAMES


def test_who_has_failed_is_not_well_because_the_extension_was_brought_there(master, fleet, write):
    write(ALL.replace("jitter: 0", "jitter: 0, max_failed: 3, sample: 0"))
    fleet.hosts["m4"].ends = "rolled_back"
    name = step(master)["begun"]
    master.until(name, "finished")
    fleet.hosts["m4"].ends = "committed"
    only = master.plan("m4", version=None, extension="1.1", canaries=0)
    master.until(master.begin(only), "finished")
    assert step(master)["groups"][0]["left"]["m4"].startswith("rolled back in the rollout")


def test_it_leaves_out_who_is_held_and_who_has_failed_until_somebody_looks(master, fleet, write):
    write(ALL.replace("jitter: 0", "jitter: 0, max_failed: 3, sample: 0"))
    fleet.hosts["m1"].held = "ask Jo"
    fleet.hosts["m4"].ends = "rolled_back"
    name = step(master)["begun"]
    master.until(name, "finished")
    for _ in range(3):
        found = step(master)
        assert found["begun"] == "", "it does not try again and again"
    left = found["groups"][0]["left"]
    assert left["m1"] == "held: ask Jo"
    assert left["m4"].startswith(f"rolled back in the rollout {name}")
    assert len(fleet.hosts["m4"].taken) == 1
    # A person has it updated.
    fleet.hosts["m4"].ends = "committed"
    master.until(master.begin(master.plan("m4", canaries=0)), "finished")
    fleet.hosts["m4"].version = OLD
    assert step(master, apply=False)["groups"][0]["bring"] == ["m4"], "and that is over then"


def test_a_rollout_that_stands_is_not_gone_around(master, fleet, write):
    write(ALL)
    fleet.hosts["m0"].ends = "failed"
    fleet.hosts["m1"].ends = "failed"
    name = step(master)["begun"]
    master.until(name, "stopped")
    before = asked(fleet)
    for _ in range(3):
        master.tick(3600.0)
        found = step(master)
        assert found["groups"][0]["waits"].startswith(f"the rollout {name} is stopped")
    assert asked(fleet) == before


def test_who_never_stays_there_is_given_up(master, fleet, write):
    """Something else on the host installs another version each time."""
    write(ALL)
    for _ in range(given_up.MOST_TIMES):
        fleet.hosts["m2"].version = OLD
        master.until(step(master)["begun"], "finished")
    fleet.hosts["m2"].version = OLD
    found = step(master)
    assert found["begun"] == ""
    assert found["groups"][0]["left"] == {
        "m2": f"was to be updated to {NEW} 3 times within a day, and does not run it"
    }
    master.time.now += 2 * DAY
    assert step(master)["begun"], "the next day it is tried again"


def test_who_never_stays_at_a_version_of_the_extension_is_given_up_too(master, fleet, write):
    write(ALL.replace(f"version: '{NEW}'", "extension: '1.1'"))
    for _ in range(given_up.MOST_TIMES):
        fleet.hosts["m2"].extension = "1.0"
        master.until(step(master)["begun"], "finished")
    fleet.hosts["m2"].extension = "1.0"
    found = step(master)
    assert found["begun"] == ""
    assert found["groups"][0]["left"] == {
        "m2": "was to be updated to 1.1 3 times within a day, and does not run it"
    }


def test_who_fails_to_get_the_extension_is_not_asked_again(master, fleet, write):
    write(ALL.replace(f"version: '{NEW}'", "extension: '1.1', max_failed: 3, sample: 0"))
    fleet.hosts["m4"].ends = "rolled_back"
    plan = master.plan(version=None, extension="1.1", max_failed=3, sample=0, canaries=0)
    name = master.begin(plan)
    master.until(name, "finished")
    found = step(master)
    assert found["begun"] == ""
    assert found["groups"][0]["left"]["m4"].startswith(f"rolled back in the rollout {name}")


def test_one_that_is_held_only_when_it_is_asked_keeps_no_other_group_back(master, fleet, write):
    """A minion could have said that for ever, and nobody behind it got anything."""
    write(
        f"groups: [{{name: first, target: m0, version: '{NEW}', {LIMITS}}}, "
        f"{{name: rest, target: '*', version: '{NEW}', {LIMITS}}}]"
    )
    fleet.hosts["m0"].locked = "the version of salt-minion is locked"
    begun = []
    while (found := step(master))["begun"] and len(begun) < 9:
        begun.append(found["next"])
        master.until(found["begun"], "finished")
    assert begun == ["first"] * given_up.MOST_TIMES + ["rest"]
    assert runs(fleet) == dict.fromkeys(NAMES, NEW) | {"m0": OLD}


def test_a_name_to_leave_out_that_nobody_has_is_told(master, fleet, write):
    """It may be misspelt, and the host that is meant would be updated."""
    write(f"groups: [{{name: all, target: '*', version: '{NEW}', exclude: [{NAMES[0]}, mm1]}}]")
    found = step(master)
    (group,) = found["groups"]
    assert group["unknown"] == ["mm1"]
    assert NAMES[0] in group["left"]
    told = "  to leave out, but no minion with an accepted key (1): mm1"
    assert told in policy_text.policy_lines(found).splitlines()
    assert found["begun"], "it stops nobody else"


def test_a_group_that_cannot_begin_says_why_and_the_next_one_does(master, fleet, write):
    write(
        f"groups: [{{name: full, target: 'm[0-2]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: rest, target: '*', version: '{NEW}', {LIMITS}}}]"
    )
    no_space = [{"code": "disk-space", "problem": "It is full.", "fix": "", "blocking": True}]
    fleet.findings = dict.fromkeys(NAMES[:3], no_space)
    found = step(master)
    full, rest = found["groups"]
    assert "No minion is left to update" in full["waits"]
    assert (found["next"], rest["waits"]) == ("rest", "")
    master.until(found["begun"], "finished")
    assert asked(fleet) == {"m3", "m4", "m5"}


def test_outside_its_windows_it_begins_nothing(master, fleet, write):
    # It is 20:26 UTC on 2026-05-28.
    write(ALL.replace("soak: 0", "soak: 0, windows: ['02:00-03:00'], closed: 2026-05-29"))
    found = step(master)
    assert (found["begun"], found["groups"][0]["waits"]) == (
        "",
        "closed until 2026-05-30 02:00:00 UTC",
    )
    assert master.store().plans() == []
    master.time.now += 29.7 * 3600
    assert step(master)["begun"]


def test_a_pinned_series_is_its_newest_patch_that_most_offer(master, fleet, write):
    write(f"groups: [{{name: lts, target: '*', version: 3007, {LIMITS}}}]")
    fleet.offers = dict.fromkeys(NAMES, "1:3007.16-2") | {"m3": "3007.99-1"}
    found = step(master, apply=False)
    assert (found["groups"][0]["version"], found["groups"][0]["bring"]) == ("3007.16", NAMES)
    master.until(step(master)["begun"], "finished")
    assert set(runs(fleet).values()) == {"3007.16"}
    assert step(master)["begun"] == ""
    fleet.offers = dict.fromkeys(NAMES, "3007.17-1")
    assert step(master, apply=False)["groups"][0]["version"] == "3007.17"


@pytest.mark.parametrize("offered", ["3008.3-1", "3007", "", "3007.16.1.x3", "no version"])
def test_a_series_that_nobody_offers_brings_nobody_along(master, fleet, write, offered):
    write(f"groups: [{{name: lts, target: '*', version: '3007', {LIMITS}}}]")
    fleet.offers = dict.fromkeys(NAMES, offered)
    found = step(master)
    assert found["begun"] == ""
    waits, bring = found["groups"][0]["waits"], found["groups"][0]["bring"]
    assert "the newest version of 3007 is not known" in waits
    assert bring == []


def test_no_minion_decides_alone_which_version_is_the_newest(master, fleet, write):
    write(f"groups: [{{name: lts, target: 'm[0-1]', version: '3007', {LIMITS}}}]")
    fleet.offers = {"m0": "3007.99-1", "m1": "3007.16-1"}
    assert step(master)["begun"] == ""


def test_a_group_of_one_does_not_decide_for_the_other_groups_of_a_series(master, fleet, write):
    """Whoever is the first to get a version would have kept all others from newer ones."""
    write(
        f"groups: [{{name: test, target: m0, version: '3007', {LIMITS}}}, "
        f"{{name: rest, target: '*', version: '3007', {LIMITS}}}]"
    )
    fleet.offers = dict.fromkeys(NAMES, "3007.16-1") | {"m0": "3007.2-1"}
    found = step(master, apply=False)
    assert [row["version"] for row in found["groups"]] == ["3007.16", "3007.16"]


def test_one_that_answers_alone_does_not_decide(master, fleet, write):
    write(f"groups: [{{name: lts, target: '*', version: '3007', {LIMITS}}}]")
    fleet.offers = dict.fromkeys(NAMES, "3007.16-1")
    hears = fleet.hears

    def slow(name, fun, arg, now):
        if fun == "safeupdate.plan":
            fleet.silent |= set(NAMES) - {name}
        return hears(name, fun, arg, now)

    fleet.hears = slow
    assert step(master)["groups"][0]["version"] == ""


def test_who_belongs_to_another_group_has_no_say_in_a_series(master, fleet, write):
    write(
        f"groups: [{{name: new, target: 'm[0-3]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: rest, target: '*', version: '3007', {LIMITS}}}]"
    )
    fleet.offers = dict.fromkeys(("m4", "m5"), "3007.16-1")
    assert step(master, apply=False)["groups"][1]["version"] == "3007.16"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("groups: [", 0o600, "it is no YAML"),
        ("groups: []", 0o600, "must be a list of groups"),
        ("groups: [{name: a, target: '*', version: 3007.10}]", 0o600, "arrived as the number"),
        (ALL.replace("soak: 0", "soak: -1"), 0o600, "'soak' must be"),
        (f"{ALL}\n{ALL}", 0o600, "it is no YAML"),
        ("groups: !!python/object/apply:os.system ['false']", 0o600, "it is no YAML"),
        (b"\xff\xfe".decode("latin-1"), 0o600, "policy"),
        (ALL, 0o666, "others than the user of the master may write to it"),
        (ALL, 0o620, "others than the user of the master may write to it"),
    ],
)
def test_a_broken_policy_does_nothing_and_says_so(master, fleet, write, text, mode, said):
    path = write(text, mode)
    for apply in (False, True):
        with pytest.raises(InputError, match=f"The policy {path} cannot be used.*{said}.*Nothing"):
            step(master, apply=apply)
    assert (asked(fleet), master.published) == (set(), [])


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_policy(master, make):
    path = policies.path_of(master.opts)
    os.makedirs(os.path.dirname(path))
    make(path)
    with pytest.raises(InputError, match="it is no regular file"):
        step(master)
    assert "it is no regular file" in policies.wanted(master.opts, NAMES)[1]


def test_whom_nobody_can_tell_is_no_end_of_the_check(master, write):
    write(ALL.replace("target: '*'", "target: 'os:Debian', tgt_type: grain"))
    master.opts["minion_data_cache"] = False
    meant, broken = policies.wanted(master.opts, NAMES)
    assert (meant, "does not keep grains" in broken) == ({}, True)


def test_without_a_policy_nothing_is_done(master):
    with pytest.raises(InputError, match=r"There is no policy: .*policy.yml is not there"):
        step(master)
    assert policies.wanted(master.opts, NAMES) == ({}, "")


def test_another_file_may_be_named(master, tmp_path):
    path = tmp_path / "other.yml"
    path.write_text(ALL)
    path.chmod(0o644)
    master.opts[policies.OPTION] = str(path)
    assert step(master, apply=False)["policy"] == str(path)


def test_it_can_be_switched_off(master, fleet, write):
    write(f"enabled: false\n{ALL}")
    found = step(master)
    assert (found["enabled"], found["begun"]) == (False, "")
    assert found["groups"][0]["waits"] == "the policy is switched off"
    assert asked(fleet) == set()


def test_two_processes_do_not_apply_it_at_once(master, fleet, write):
    write(ALL)

    def ask(opts, minions, fun, arg=(), timeout=5.0):
        if fun == "safeupdate.report":
            with pytest.raises(LockHeldError, match="Another process is applying the policy"):
                step(master)
        return master.ask(opts, minions, fun, arg, timeout)

    def order(opts, what, given):
        return master.order(what, given["plan"], **given)

    more = {"ask": ask, "clock": master._clock, "order": order, "store": master.store()}
    found = policies.step(master.opts, apply=True, **more)
    assert found["begun"]
    assert len(master.store().rollouts()) == 1


def test_an_engine_that_does_not_begin_it_is_told(master, fleet, write):
    write(ALL)

    def order(opts, what, given):
        raise CacheError("the disk is full")

    more = {"ask": master.ask, "clock": master._clock, "order": order, "store": master.store()}
    found = policies.step(master.opts, apply=True, **more)
    assert (found["begun"], found["groups"][0]["waits"]) == ("", "the disk is full")


def test_no_other_group_begins_while_it_is_not_known_whether_one_has(master, fleet, write):
    """The engine may end when it has begun a rollout, and before it has said so."""
    write(
        f"groups: [{{name: a, target: 'm[0-2]', version: '{NEW}', {LIMITS}}}, "
        f"{{name: b, target: '*', version: '{NEW}', {LIMITS}}}]"
    )

    def order(opts, what, given):
        master.order(what, given["plan"], **given)
        raise SafeUpdateError("The engine has ended meanwhile.")

    more = {"ask": master.ask, "clock": master._clock, "order": order, "store": master.store()}
    found = policies.step(master.opts, apply=True, **more)
    assert found["groups"][0]["waits"] == "The engine has ended meanwhile."
    assert len(master.store().rollouts()) == 1
    (name,) = master.store().rollouts()
    assert step(master)["groups"][1]["waits"].startswith(f"the rollout {name} is running")


def test_an_inventory_says_who_does_not_run_what_the_policy_wants(master, fleet, write):
    write(ALL)
    fleet.hosts["m0"].version = NEW
    meant, broken = policies.wanted(master.opts, NAMES)
    assert (meant["m1"], broken) == ((NEW, "all"), "")

    def ask(minions, fun, given, timeout):
        return master.ask(master.opts, minions, fun, given or (), timeout)

    made = stocktaking.Inventory(master.store(), ask, lambda: 0, master=NEW, clock=master._clock)
    found = made.check(NAMES, 5.0, meant=meant)
    adrift = {row["minion"] for row in found["drift"] if row["code"] == "not-by-policy"}
    assert (adrift, found["retcode"]) == (set(NAMES) - {"m0"}, 1)
    write("groups: [")
    meant, broken = policies.wanted(master.opts, NAMES)
    assert meant == {}
    found = made.check(["m0"], 5.0, meant=meant, broken=broken)
    assert found["retcode"] == 1
    assert any("cannot be used" in line for line in found["unreadable"])


def test_the_runner_shows_it_and_refuses_in_one_line(master, write, monkeypatch):
    monkeypatch.setattr(safeupdate, "__opts__", master.opts, raising=False)
    with pytest.raises(safeupdate.errors.RefusedError, match="There is no policy"):
        safeupdate.policy()
    write(ALL)
    monkeypatch.setattr(
        policies, "step", lambda opts, apply, by: {"apply": apply, "by": bool(by), "at": 60.0}
    )
    monkeypatch.setattr(safeupdate.progress, "for_person", lambda opts: False)
    told = safeupdate.policy(apply=True, zone="Asia/Kolkata")
    assert told.pop("times") == {"at": "1970-01-01T05:31:00+05:30"}
    assert told == {"apply": True, "by": True, "at": 60.0}
    with pytest.raises(safeupdate.errors.RefusedError, match="no time zone 'Mars'"):
        safeupdate.policy(zone="Mars")


def test_a_busy_host_is_brought_along_when_it_can_be(master, fleet, write):
    write(ALL.replace("jitter: 0", "jitter: 0, sample: 0, late_timeout: 600"))
    fleet.hosts["m5"].refuses = BUSY
    name = step(master)["begun"]
    master.until(name, "finished", most=20_000)
    assert runs(fleet) == {**dict.fromkeys(NAMES[:5], NEW), "m5": OLD}
    fleet.hosts["m5"].refuses = ""
    again = step(master)["begun"]
    master.until(again, "finished")
    assert set(runs(fleet).values()) == {NEW}
    assert rollouts.BEGIN == "begin"


@pytest.mark.parametrize("busy", ["m0", "m5"], ids=["the canary", "one of the rest"])
def test_a_busy_host_blocks_no_policy(master, fleet, write, busy):
    """For a day nobody else got anything: neither newcomers nor the next group."""
    more = LIMITS.replace("jitter: 0", "jitter: 0, sample: 0")
    write(
        f"groups: [{{name: a, target: '{busy}', version: '{NEW}', {more}}}, "
        f"{{name: b, target: '*', version: '{NEW}', {more}}}]"
    )
    fleet.hosts[busy].refuses = BUSY
    begun = []
    while (found := step(master))["begun"] and len(begun) < 9:
        begun.append(found["next"])
        began = master.time.now
        master.until(found["begun"], "finished")
        assert master.time.now - began < 3600
    assert begun == ["a"] * given_up.MOST_TIMES + ["b"]
    assert runs(fleet) == dict.fromkeys(NAMES, NEW) | {busy: OLD}


def test_a_busy_canary_ends_a_rollout_of_a_policy_and_another_one_is_drawn(master, fleet, write):
    write(ALL)
    fleet.hosts["m0"].refuses = BUSY
    found = master.until(step(master)["begun"], "finished")
    steps = {name: each.step.value for name, each in found.minions.items()}
    assert steps == {"m0": "missed"} | dict.fromkeys(NAMES[1:], "cancelled")
    assert found.minions["m5"].reason == "is left to the next rollout: m0 is busy"
    assert asked(fleet) == set()
    fleet.hosts["m0"].refuses = ""
    master.until(step(master)["begun"], "finished")
    assert set(runs(fleet).values()) == {NEW}


def test_what_is_over_is_read_once_however_many_versions_are_wanted(master, fleet, write):
    write(ALL.replace("jitter: 0", "jitter: 0, max_failed: 3, sample: 0"))
    fleet.hosts["m4"].ends = "rolled_back"
    master.until(step(master)["begun"], "finished")
    groups = [f"{{name: g{n}, target: 'm{n}', version: '{NEW}-{n}'}}" for n in range(6)]
    read = []
    for many in (1, 6):
        write(f"groups: [{', '.join(groups[:many])}]")
        store, reads = master.store(), []
        real = store.cache.packed
        store.cache.packed = lambda bank, key, real=real, to=reads: (
            to.append(key) or real(bank, key)
        )
        policies.step(master.opts, ask=master.ask, clock=master._clock, store=store)
        read.append(sorted(key for key in reads if not key.startswith("sheet")))
    assert read[0] == read[1]


def test_a_failure_is_remembered_however_many_rollouts_come_after_it(master, fleet, write):
    """A policy that brings newcomers along has begun hundreds by then."""
    write(ALL.replace("jitter: 0", "jitter: 0, max_failed: 3, sample: 0"))
    fleet.hosts["m4"].ends = "rolled_back"
    failed = master.until(step(master)["begun"], "finished")
    master.time.now += 2 * DAY
    for number in range(3):
        fleet.hosts["m0"].version = OLD
        master.until(step(master)["begun"], "finished")
        master.time.now += 2 * DAY
        master.store().tidy(master.time.now, kept=number)
    assert failed.plan.id in master.store().rollouts()
    found = step(master, apply=False)
    assert found["groups"][0]["left"]["m4"].startswith("rolled back in the rollout")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]
)
def test_whatever_happens_it_comes_to_what_it_wants_or_says_why_not(master, fleet, write, seed):
    """Days with a schedule, an engine that dies, and hosts that break, are away, busy, or held."""
    dice, limit = random.Random(seed), 2
    write(
        f"groups: [{{name: all, target: '*', version: '{NEW}', canaries: 1, soak: 60, jitter: 0, "
        f"max_unavailable: {limit}, max_failed: 2, sample: 0, late_timeout: 7200, "
        "windows: ['20:00-06:00'], closed: ['2026-05-29']}]"
    )
    # The canary is well: else somebody has to look at once, which has a test of its own.
    for host in list(fleet.hosts.values())[1:]:
        host.ends = dice.choice(["committed", "committed", "committed", "rolled_back"])
        host.refuses = dice.choice(["", "", BUSY])
        host.held = dice.choice(["", "", "", "ask Jo"])
        gone = master.time.now + dice.uniform(0, DAY)
        host.away = ((gone, gone + dice.uniform(600, DAY)),) if dice.random() < 0.4 else ()
    for half_hour in range(5 * 48):
        if half_hour == 3 * 48:
            for host in fleet.hosts.values():
                host.refuses = ""
        # The windows of a night: nothing is to be seen in the rest of the day.
        if not master.time.now % DAY / 3600 >= 19 and master.time.now % DAY / 3600 > 7:
            master.time.now += 1800.0
            continue
        found = step(master)
        if found["begun"]:
            hour = master.time.now % DAY / 3600
            assert hour >= 20 or hour < 6, hour
            assert not DAY * 20602 <= master.time.now < DAY * 20603, "a closed day"
        for _ in range(15):
            master.tick(120.0)
            if dice.random() < 0.02:
                master.start()
        assert fleet.most_busy <= limit
    (row,) = step(master, apply=False)["groups"]
    left = {name for name, version in runs(fleet).items() if version != NEW}
    stands = "is stopped" in row["waits"]
    assert left <= set(row["left"]) or stands, (row, left)
    assert "m0" not in left
    taken = {host.name: len(host.taken) for host in fleet.hosts.values()}
    assert max(taken.values()) <= 1, f"nobody is updated twice: {taken}"
