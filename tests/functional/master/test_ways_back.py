"""A fleet that goes back to what it ran before, and what is allowed again after that."""

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import text, way_back
from saltext_safeupdate.fleet.rollout import Step
from saltext_safeupdate.master import allowing, orders, progress, rollouts
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.unit.fleet.world import BUSY, NEW, OLD

NAMES = [f"m{number}" for number in range(6)]
OLDER = "3006.28"


@pytest.fixture
def fleet():
    made = Fleet(NAMES)
    made.hosts["m4"].version = OLDER
    return made


@pytest.fixture
def master(tmp_path, fleet):
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    yield made
    made.close()


@pytest.fixture
def name(master):
    """A rollout that is over: all run the new version."""
    begun = master.begin(master.plan())
    master.until(begun, "finished")
    return begun


def ran(fleet):
    return {host.name: host.version for host in fleet.hosts.values()}


BEFORE = dict.fromkeys(NAMES, OLD) | {"m4": OLDER}


def test_each_goes_to_what_it_ran_before_by_the_same_waves(master, fleet, name):
    forward = master.store().rollout(name)
    plan = master.plan(None, back=name)
    assert plan.versions == BEFORE
    assert "1 to 3006.28" in text.plan_text(plan)
    same = [(wave.group, len(wave.minions), wave.canary) for wave in forward.plan.waves]
    assert [(wave.group, len(wave.minions), wave.canary) for wave in plan.waves] == same
    assert (plan.unavailable, plan.request.soak, plan.request.stage) == (1, 0, False)
    begun = master.begin(plan)
    assert master.until(begun, "finished").count(Step.DONE) == len(NAMES)
    assert (ran(fleet), master.status(begun), fleet.most_busy) == (BEFORE, 0, 1)
    asked = [given[0] for fun, _, given in master.published if fun == "safeupdate.request"]
    assert [given.get("back") for given in asked] == [None] * 6 + [True] * 6
    told = orders.shown(master.store(), begun)
    assert (told["version"], told["back"]) == ("", name)
    assert f"back from {name}" in progress.text(told)


def test_its_version_is_kept_from_rollouts_until_it_is_allowed(master, fleet, name):
    begun = master.begin(master.plan(None, back=name))
    master.until(begun, "finished")
    assert master.store().quarantined() == {NEW: f"taken back by the rollout {begun}"}
    with pytest.raises(InputError, match="is in quarantine: taken back by"):
        master.plan()
    told = []
    given = {"by": "jo on here", "tell": lambda *event: told.append(event)}
    assert allowing.allow(master.opts, master.store(), NEW, **given)
    assert told == [("salt/run/safeupdate/allowed", {"version": NEW, "by": "jo on here"})]
    master.until(master.begin(master.plan()), "finished")
    assert set(ran(fleet).values()) == {NEW}


def test_minions_that_went_back_refuse_it_until_it_is_allowed_everywhere(master, fleet, name):
    fleet.quarantines = True
    master.until(master.begin(master.plan(None, back=name)), "finished")
    assert {tuple(host.kept) for host in fleet.hosts.values()} == {(NEW,)}
    allowing.allow(master.opts, master.store(), NEW, tell=lambda *_: None)
    with pytest.raises(InputError, match=f"No minion is left.*unquarantine \"'{NEW}'\""):
        master.plan()
    found = allowing.allow_everywhere(master.opts, master.store(), NEW, ask=master.ask)
    assert found["minions"] == {each: [NEW] for each in NAMES}
    master.until(master.begin(master.plan()), "finished")
    assert set(ran(fleet).values()) == {NEW}


def test_it_waits_for_the_windows_of_what_it_takes_back_unless_somebody_says_otherwise(master):
    # It is 20:26 UTC on 2026-05-28.
    begun = master.begin(master.plan(windows=["20:00-21:00"], closed=["2026-05-29"]))
    master.until(begun, "finished")
    master.time.now += 3 * 3600.0
    plan = master.plan(None, back=begun)
    assert [each.text for each in plan.request.windows] == ["20:00-21:00"]
    told = text.plan_text(plan)
    assert "  nobody begins before 2026-05-30 20:00:00 UTC" in told
    assert "'windows=[] closed=[]' goes at once" in told
    plan = master.plan(None, back=begun, windows=[], closed=[])
    assert "nobody begins" not in text.plan_text(plan)
    master.until(master.begin(plan), "finished")


def test_all_that_have_brought_a_version_are_taken_back_by_its_name(master, fleet):
    """A policy brings a fleet to a version in as many rollouts as it has newcomers."""
    web = {"groups": [{"name": "web", "target": "m[0-2]"}], "max_unavailable": 1, "soak": 600}
    db = {"groups": [{"name": "db", "target": "m3"}], "max_unavailable": 1, "soak": 0}
    late = {"groups": [{"name": "db", "target": "m4"}], "canaries": 0}
    for one in (web, db, late):
        target = None
        master.until(master.begin(master.plan(target, **one)), "finished", most=9000)
    fleet.hosts["m5"].version = NEW  # by hand
    # One of them was brought on since, and another one was taken back already.
    (on,) = [master.begin(master.plan("m1", version="3009.1"))]
    master.until(on, "finished")
    plan = master.plan(None, back=NEW)
    assert plan.versions == {"m0": OLD, "m2": OLD, "m3": OLD, "m4": OLDER}
    assert {group.name: dict(group.own).get("canaries") for group in plan.request.groups} == {
        "web": 1,
        "db": 0,
    }
    assert plan.limits == {"web": 1, "db": 1}
    assert (plan.request.soak, plan.request.of("web").soak, plan.request.keep) == (0, 0, True)
    begun = master.begin(plan)
    found = master.until(begun, "finished", most=9000)
    assert (found.keeps, fleet.most_busy) == (NEW, 1)
    assert ran(fleet) == {**BEFORE, "m1": "3009.1", "m5": NEW}
    assert master.store().quarantined() == {NEW: f"taken back by the rollout {begun}"}
    told = orders.shown(master.store(), begun)
    assert f"back from {NEW}" in progress.text(told)
    with pytest.raises(InputError, match=r"No stored rollout has installed 3005\.1"):
        master.plan(None, back="3005.1")
    with pytest.raises(InputError, match=r"'back' has arrived as the number 3007\.1"):
        master.plan(None, back=3007.1)


def test_a_part_goes_back_and_the_others_stay(master, fleet, name):
    plan = master.plan("m[3-5]", back=name)
    master.until(master.begin(plan), "finished")
    assert ran(fleet) == {**dict.fromkeys(NAMES[:3], NEW), "m3": OLD, "m4": OLDER, "m5": OLD}
    assert master.store().quarantined() == {}


def test_who_was_not_asked_by_it_stays_as_it_is(master, fleet):
    begun = master.begin(master.plan("m[0-2]"))
    master.until(begun, "finished")
    plan = master.plan("*", back=begun)
    assert plan.minions == ("m0", "m1", "m2")
    assert plan.left_out == dict.fromkeys(NAMES[3:], f"was not asked to update by {begun}")
    assert plan.unfit == frozenset()


def test_one_that_came_back_by_itself_is_there_already(master, fleet):
    fleet.hosts["m3"].ends = "rolled_back"
    begun = master.begin(master.plan(max_failed=1))
    master.until(begun, "finished")
    plan = master.plan(None, back=begun)
    assert plan.left_out == {"m3": f"runs {OLD} already"}
    again = master.begin(plan)
    master.until(again, "finished")
    assert (master.status(again), ran(fleet)) == (0, BEFORE)


def test_who_is_away_or_busy_then_goes_back_later_and_is_no_failure(master, fleet, name):
    """Under load, one that was refused three times was called refused: the exit status was 1."""
    fleet.silent.add("m5")
    fleet.hosts["m2"].refuses = BUSY
    plan = master.plan(None, back=name, max_unavailable=3)
    assert plan.away == {"m5"}
    assert plan.versions == BEFORE, "the master knows it"
    begun = master.begin(plan)
    for _ in range(200):
        master.tick(30.0)
    assert ran(fleet) == BEFORE | {"m2": NEW, "m5": NEW}
    fleet.silent.clear()
    fleet.hosts["m2"].refuses = ""
    for _ in range(200):
        master.tick(30.0)
    assert (ran(fleet), master.status(begun)) == (BEFORE, 0), steps_of(master, begun)


def test_one_that_is_at_work_when_it_is_planned_is_waited_for_and_goes_back(master, fleet, name):
    """Left behind, it would be the one that runs the bad version."""
    fleet.hosts["m0"].phase = "installing"
    fleet.hosts["m0"].began, fleet.hosts["m0"].takes = master.time.now, 1200.0
    fleet.hosts["m0"].goal = (NEW, "")
    plan = master.plan(None, back=name, max_unavailable=3)
    assert plan.busy == {"m0": "an update is under way there (installing)"}
    assert plan.waves[0].minions == ("m1",), "it is no canary"
    assert "Busy now, updated when they can be (1)" in text.plan_text(plan)
    assert master.store().plan(plan.id) == plan
    begun = master.begin(plan)
    fleet.hosts["m0"].takes = 600.0
    assert master.until(begun, "finished", most=20_000).count(Step.DONE) == len(NAMES)
    assert (ran(fleet), master.status(begun)) == (BEFORE, 0)


def steps_of(master, name):
    found = master.store().rollout(name)
    return {minion: (each.step.value, each.reason) for minion, each in found.minions.items()}


def test_one_that_is_slow_is_done_although_it_took_too_long(master, fleet, name):
    fleet.hosts["m5"].takes = 5000.0
    begun = master.begin(master.plan(None, back=name, minion_timeout=900, max_failed=1))
    found = master.until(begun, "stopped", "finished", most=20_000)
    assert found.mode.value == "finished"
    assert steps_of(master, begun)["m5"][0] == "timed_out"
    assert master.status(begun) == 1, "it is not there yet, and nobody says so"


def test_the_engine_may_die_before_the_version_is_kept_from_everybody(master, fleet, name):
    plan = master.plan(None, back=name)
    store = type(master.driving._store)
    keep, store.quarantine = store.quarantine, lambda *_: (_ for _ in ()).throw(OSError("full"))
    try:
        begun = master.begin(plan)
        master.tick()
    finally:
        store.quarantine = keep
    assert not master.store().quarantined()
    master.start()
    for _ in range(5):
        master.tick()
    assert set(master.store().quarantined()) == {NEW}
    master.until(begun, "finished")


def lies_of(master, name, **before):
    """Store what minions have said that they ran."""
    store = master.store()
    told = store.rollout(name)
    for minion, version in before.items():
        told.minions[minion].before = version
    store.save_rollout(told)


def test_one_that_came_from_a_bad_version_keeps_nobody_else_from_going_back(master, fleet, name):
    """A minion says itself what it ran, so one could have closed the way down to all."""
    master.store().quarantine("3007.1", "it is bad")
    lies_of(master, name, m5="3007.1")
    plan = master.plan(None, back=name)
    assert plan.left_out == {"m5": "came from 3007.1, and 3007.1 is in quarantine: it is bad"}
    assert plan.unfit == {"m5"}
    begun = master.begin(plan)
    master.until(begun, "finished")
    assert (ran(fleet), master.status(begun)) == (BEFORE | {"m5": NEW}, 1)
    assert set(master.store().quarantined()) == {"3007.1", NEW}


@pytest.mark.parametrize("lie", [NEW, f"{NEW}-1", f"1:{NEW}-2"])
def test_one_that_names_the_bad_version_keeps_it_from_no_quarantine(master, fleet, name, lie):
    lies_of(master, name, m5=lie)
    plan = master.plan(None, back=name)
    assert list(plan.left_out) == ["m5"]
    assert plan.left_out["m5"].startswith(f"came from {lie}, the version that is taken back")
    begun = master.begin(plan)
    master.until(begun, "finished")
    assert master.store().quarantined() == {NEW: f"taken back by the rollout {begun}"}


def test_whom_an_earlier_engine_has_asked_is_not_forgotten(master, fleet, name):
    """It was left at the bad version, as if nobody had asked it, and the exit status was 0."""
    lies_of(master, name, m1="", m2="")
    plan = master.plan(None, back=name)
    assert list(plan.left_out) == ["m1", "m2"]
    assert plan.left_out["m1"].startswith(f"its version before {name} is not known")
    begun = master.begin(plan)
    master.until(begun, "finished")
    assert ran(fleet) == BEFORE | {"m1": NEW, "m2": NEW}
    assert master.status(begun) == 1
    lies_of(master, name, **dict.fromkeys(NAMES, ""))
    with pytest.raises(InputError, match="if an earlier version of the extension"):
        master.plan(None, back=name)


def test_all_may_go_back_to_another_build_of_the_version(master, name):
    builds = dict.fromkeys(NAMES, f"{NEW}-1")
    assert way_back.barred(name, NEW, builds, {}) == {}
    assert list(way_back.barred(name, NEW, builds | {"m0": OLD}, {})) == NAMES[1:]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"version": OLD}, "version cannot be given with 'back'"),
        ({"allow_downgrade": True, "stage": True}, "allow_downgrade, stage cannot be given"),
        ({"back": "20200101-000000-aaaa"}, "There is no rollout 20200101-000000-aaaa to go back"),
    ],
)
def test_what_is_refused(master, name, given, said):
    with pytest.raises(InputError, match=said):
        master.plan(None, **{"back": name, **given})


def test_a_rollout_that_has_asked_nobody_cannot_be_taken_back(master, fleet):
    plan = master.plan()
    begun = master.begin(plan)
    with pytest.raises(InputError, match="No minion was asked to update by the rollout"):
        master.plan(None, back=begun)


def test_one_that_is_not_over_is_ended_first(master, fleet):
    begun = master.begin(master.plan())
    while not fleet.most_busy:
        master.tick()
    with pytest.raises(Exception, match=f"The rollout {begun} is not over"):
        master.plan(None, at_once=True, back=begun)
    master.order(rollouts.ABORT, begun, why="it is bad")
    master.until(begun, "aborted")
    again = master.begin(master.plan(None, at_once=True, back=begun))
    master.until(again, "finished")
    assert ran(fleet) == BEFORE


def test_a_downgrade_has_to_be_meant(master, fleet, name):
    plan = master.plan(version=OLD, allow_downgrade=True)
    master.until(master.begin(plan), "finished")
    assert set(ran(fleet).values()) == {OLD}
    asked = [given[0] for fun, _, given in master.published if fun == "safeupdate.request"]
    assert [given.get("allow_downgrade") for given in asked] == [None] * 6 + [True] * 6


def test_a_version_is_allowed_everywhere_by_one_word(master, fleet):
    store = master.store()
    store.quarantine(NEW, "elsewhere")
    fleet.hosts["m1"].kept = [f"{NEW}-1", OLD]
    fleet.hosts["m2"].kept = [NEW]
    fleet.silent.add("m3")
    found = allowing.allow_everywhere(master.opts, store, NEW, ask=master.ask)
    assert found == {
        "version": NEW,
        "lifted": True,
        "minions": {"m1": [f"{NEW}-1"], "m2": [NEW]},
        "failed": {},
        "silent": ["m3"],
        "retcode": 1,
    }
    assert (fleet.hosts["m1"].kept, fleet.hosts["m2"].kept) == ([OLD], [])
    assert store.quarantined() == {}
    fleet.silent.clear()
    again = allowing.allow_everywhere(master.opts, store, NEW, ask=master.ask)
    assert (again["lifted"], again["minions"], again["retcode"]) == (False, {}, 0)


def test_where_it_cannot_be_allowed_is_told(master, fleet):
    fleet.hosts["m1"].kept = [NEW]

    def ask(opts, minions, fun, arg=(), timeout=5.0):
        if fun == "safeupdate.unquarantine":
            fleet.failing["m1"] = "the database\x1b is locked"
        return master.ask(opts, minions, fun, arg, timeout)

    found = allowing.allow_everywhere(master.opts, master.store(), NEW, ask=ask)
    assert (found["failed"], found["retcode"]) == ({"m1": "the database? is locked"}, 1)


def test_one_that_keeps_thousands_of_versions_and_answers_nothing_delays_nobody(master, fleet):
    """Each was asked for on its own, for half a minute: the version was allowed days later."""
    store = master.store()
    store.quarantine(NEW, "elsewhere")
    fleet.hosts["m1"].kept = [NEW, *(f"{NEW}-{number}" for number in range(1000))]
    fleet.hosts["m2"].kept = [NEW]
    asked = []

    def ask(opts, minions, fun, arg=(), timeout=5.0):
        if fun == "safeupdate.unquarantine":
            asked.append((arg[0], list(minions)))
            fleet.silent.add("m1")
        return master.ask(opts, minions, fun, arg, timeout)

    found = allowing.allow_everywhere(master.opts, store, NEW, ask=ask)
    assert asked == [(NEW, ["m1", "m2"])]
    assert (found["lifted"], found["silent"], found["minions"]) == (True, ["m1"], {"m2": [NEW]})
