"""Rollouts from the plan to the end: with what is stored, asked and answered, without processes."""

import dataclasses
import random
from pathlib import Path

import pytest

from saltext_safeupdate.admin.errors import RefusedError
from saltext_safeupdate.core.errors import CacheError, InputError, RecordError, SafeUpdateError
from saltext_safeupdate.fleet.rollout import Mode, Step, begin
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import engine, orders, planning, progress, rollouts
from saltext_safeupdate.master.store import Store
from saltext_safeupdate.runners import safeupdate
from tests.functional.master.fleet_site import WANTED, Fleet, Master, Time
from tests.unit.fleet.world import NEW

NAMES = [f"m{number}" for number in range(6)]


@pytest.fixture
def fleet():
    return Fleet(NAMES)


@pytest.fixture
def make_master(tmp_path, fleet):
    made, time = [], Time()

    def make(name="one"):
        made.append(Master(tmp_path, tmp_path / "cache", fleet, time, name))
        return made[-1]

    yield make
    for master in made:
        master.close()


@pytest.fixture
def master(make_master):
    return make_master()


def steps(master, name):
    return {m: each.step.value for m, each in master.store().rollout(name).minions.items()}


def test_a_whole_rollout(master, fleet):
    plan = master.plan()
    assert (plan.left_out, plan.steps["m0"]) == ({}, ("10-x",))
    assert plan.reboots == {"m0"}
    assert not any(host.taken for host in fleet.hosts.values()), "a plan starts nothing"
    assert master.check(plan) == []
    name = master.begin(plan)
    master.until(name, "finished")
    assert set(steps(master, name).values()) == {"done"}
    assert all(host.version == NEW and len(host.taken) == 1 for host in fleet.hosts.values())
    assert (fleet.most_busy, master.status(name)) == (1, 0)
    told = [tag.rpartition("/")[2] for tag, data in master.told if data["rollout"] == name]
    assert told[0] == "began"
    assert told[-1] == "finished"
    assert master.driving.idle
    before = len(master.published)
    for _ in range(200):
        master.tick()
    assert len(master.published) == before, "nobody is asked when it is over"


def test_how_long_it_takes_is_known_from_earlier_ones(master, fleet):
    assert master.plan().expected == 0
    master.until(master.begin(master.plan()), "finished")
    for host in fleet.hosts.values():
        host.version = "3007.15"
    assert master.plan().expected > 60


def test_a_broken_canary_stops_it_and_another_try_goes_on(master, fleet):
    fleet.hosts["m0"].ends = "failed"
    name = master.begin(master.plan())
    found = master.until(name, "stopped")
    assert "canary m0" in found.why
    assert master.status(name) == 2
    assert [host.name for host in fleet.hosts.values() if host.taken] == ["m0"]
    with pytest.raises(InputError, match="do not belong"):
        master.order(rollouts.RETRY, name, minions=["x"])
    fleet.hosts["m0"].ends = "committed"
    assert master.order(rollouts.RETRY, name)["mode"] == "running"
    master.until(name, "finished")
    assert set(steps(master, name).values()) == {"done"}


def test_another_try_needs_the_end_of_the_quarantine_on_the_minion(master, fleet):
    """The minion that was rolled back refuses the version itself, whatever the rollout wants."""
    fleet.quarantines, bad = True, fleet.hosts["m0"]
    bad.ends = "rolled_back"
    name = master.begin(master.plan())
    master.until(name, "stopped")
    bad.ends = "committed"
    master.order(rollouts.RETRY, name)
    found = master.until(name, "stopped")
    assert (steps(master, name)["m0"], len(bad.taken)) == ("refused", 1)
    for told in (found.minions["m0"].reason, found.why):
        assert f"allow it with safeupdate.unquarantine \"'{NEW}'\"" in told
    fleet.hears("m0", "safeupdate.unquarantine", [NEW], master.time.now)
    master.order(rollouts.RETRY, name)
    master.until(name, "finished")
    assert set(steps(master, name).values()) == {"done"}


def test_a_pause_an_abort_and_what_is_over(master, fleet):
    name = master.begin(master.plan())
    master.order(rollouts.PAUSE, name, why="night")
    for _ in range(120):
        master.tick(60.0)
    assert sum(len(host.taken) for host in fleet.hosts.values()) <= 1
    assert master.store().rollout(name).mode is Mode.PAUSED
    assert master.order(rollouts.RESUME, name)["mode"] == "running"
    while not any(host.busy for host in fleet.hosts.values()):
        master.tick()
    assert master.order(rollouts.ABORT, name, why="enough")["mode"] == "aborting"
    for what in (rollouts.PAUSE, rollouts.RESUME, rollouts.RETRY):
        with pytest.raises(InputError, match=r"is being aborted.* Nothing was changed"):
            master.order(what, name, why="")
    master.until(name, "aborted")
    assert set(steps(master, name).values()) <= {"done", "cancelled"}
    for what in (rollouts.PAUSE, rollouts.RESUME, rollouts.ABORT, rollouts.RETRY):
        with pytest.raises(InputError, match="is over"):
            master.order(what, name, why="")
    with pytest.raises(InputError, match="no rollout"):
        master.order(rollouts.PAUSE, "other", why="")


def test_it_is_told_who_has_done_what(master):
    plan = master.plan()
    master.order(rollouts.BEGIN, plan.id, plan=plan.id, by="jo on here, /dev/pts/3")
    master.order(rollouts.PAUSE, plan.id, why="night", by="ann on there")
    master.start()
    master.order(rollouts.RESUME, plan.id, by="ben")
    master.order(rollouts.ABORT, plan.id, why="enough")
    found = master.until(plan.id, "aborted")
    lines = [line for _, line in found.history]
    assert lines[0] == "began by jo on here, /dev/pts/3: 6 minions in 2 waves"
    assert {"paused by ann on there: night", "resumed by ben", "aborted: enough"} <= set(lines)
    told = orders.shown(master.store(), plan.id)
    assert told["by"] == "jo on here, /dev/pts/3"
    assert "by jo on here, /dev/pts/3" in progress.text(told)
    events = {tag.rpartition("/")[2]: data.get("by") for tag, data in master.told}
    wanted = {"began": told["by"], "paused": "ann on there", "resumed": "ben", "aborting": ""}
    assert wanted.items() <= events.items()


def test_a_dead_engine_is_told_of_at_once(master, monkeypatch):
    name = master.begin(master.plan())
    looks = [master.time.now]
    monkeypatch.setattr(orders.time, "time", lambda: looks[0])
    assert "nobody looks after it" not in orders_text(master, name)
    looks[0] += 121.0
    assert "nobody looks after it" in orders_text(master, name)
    monkeypatch.setattr(orders, "Store", lambda opts: master.store())
    monkeypatch.setattr(orders.questions, "call", lambda *_: pytest.fail("it was waited for"))
    for what in (rollouts.PAUSE, rollouts.RESUME, rollouts.RETRY, rollouts.ABORT):
        with pytest.raises(SafeUpdateError, match=r"has not driven .* Nothing was changed"):
            orders.order(master.opts, what, {"rollout": name})


def orders_text(master, name):
    return progress.text(orders.shown(master.store(), name))


def test_who_is_held_is_left_out_with_the_reason(master, fleet):
    fleet.hosts["m1"].held = "ask\nJo"
    locked = {"code": "version-locked", "problem": "salt is locked.", "blocking": False}
    fleet.findings["m2"] = [locked, {"code": "space", "problem": "no space", "blocking": True}]
    plan = master.plan()
    assert plan.left_out == {"m1": "held: ask Jo", "m2": "held: salt is locked."}
    name = master.begin(plan)
    master.until(name, "finished")
    assert master.status(name) == 0
    assert not fleet.hosts["m1"].taken + fleet.hosts["m2"].taken


def test_who_can_never_be_updated_is_left_out_with_the_reason(master, fleet, monkeypatch):
    fleet.failing = dict.fromkeys(("m1", "m2", "m3"), "'safeupdate.report' is not available.")
    grains = {"m1": {"kernel": "Windows"}, "m2": {"kernel": "Linux"}}
    monkeypatch.setattr(planning.targets, "grains_of", lambda opts, minions: grains)
    plan = master.plan()
    assert plan.left_out["m1"].startswith("unsupported: it runs Windows, and only packages of")
    assert "too old" in plan.left_out["m2"]
    assert plan.unfit == {"m2", "m3"}, "the others can be mended"


def test_a_plan_tells_who_is_in_another_rollout(master):
    name = master.begin(master.plan("m1,m2", "list"))
    plan = master.plan()
    assert plan.elsewhere == {"m1": name, "m2": name}
    assert master.store().plan(plan.id).elsewhere == plan.elsewhere
    master.order(rollouts.ABORT, name, why="enough")
    master.until(name, "aborted")
    assert master.plan().elsewhere == {}


def test_nothing_that_a_minion_says_is_obeyed_by_a_terminal(master, fleet):
    evil = "no\u202e\x1b[2J\nspace"
    item = {"code": evil, "problem": evil, "fix": evil, "blocking": True}
    fleet.findings = {"m1": [item]}
    fleet.failing = {"m2": evil}
    plan = master.plan()
    assert set(plan.left_out) == {"m1", "m2"}
    assert all(why.isprintable() and "space" in why for why in plan.left_out.values())
    fleet.hosts["m0"].refuses = evil
    name = master.begin(plan)
    found = master.until(name, "stopped")
    assert found.minions["m0"].reason.isprintable()
    assert found.why.isprintable()


def test_a_master_that_is_killed_at_any_moment_goes_on(master, fleet, monkeypatch):
    """Before and after each time that it stores, it ends; what was to be done is not done."""
    fleet.hosts["m3"].ends = "rolled_back"
    name = master.begin(master.plan(max_failed=1))
    saves, chance = 0, random.Random(3)
    real = Store.save_rollout

    class Killed(BaseException):
        pass

    def save(store, rollout):
        nonlocal saves
        saves += 1
        dies = chance.random()
        if dies < 0.15:
            raise Killed
        real(store, rollout)
        if dies > 0.85:
            raise Killed

    monkeypatch.setattr(Store, "save_rollout", save)
    for _ in range(4000):
        try:
            master.tick()
        except Killed:
            master.start()
        if master.driving.idle:
            break
    assert saves > 20
    found = master.store().rollout(name)
    assert found.mode is Mode.FINISHED
    assert found.count(Step.DONE) == 5
    assert steps(master, name)["m3"] == "rolled_back"
    assert all(host.taken == sorted(set(host.taken)) for host in fleet.hosts.values())
    assert (fleet.most_busy, master.status(name)) == (1, 1)


def test_a_beginning_that_was_stored_with_an_error_is_looked_after(master, fleet, monkeypatch):
    plan, real = master.plan(), Store.save_rollout

    def save(store, rollout):
        real(store, rollout)
        raise CacheError("The cache was away for its answer.")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "save_rollout", save)
        with pytest.raises(SafeUpdateError, match="away for its answer"):
            master.begin(plan)
    master.until(plan.id, "finished")
    assert all(len(host.taken) == 1 for host in fleet.hosts.values())


def test_a_cache_that_is_away_stops_all_and_starts_nothing(master, fleet, monkeypatch, caplog):
    name = master.begin(master.plan())

    def away(*_):
        raise CacheError("The cache is away.")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "save_rollout", away)
        patched.setattr(Store, "rollout", away)
        for _ in range(5):
            # What was stored before may still go out.
            master.tick()
        before = len(master.published)
        for _ in range(20):
            master.tick()
        assert not any(host.taken for host in fleet.hosts.values())
        assert len(master.published) == before
        assert caplog.text.count("stands still: The cache is away") == 1
        with pytest.raises(SafeUpdateError, match="cache is away"):
            master.order(rollouts.PAUSE, name, why="")
    master.until(name, "finished")
    assert set(steps(master, name).values()) == {"done"}


@pytest.mark.parametrize("unreadable", ["rollouts", "rollout"])
def test_what_an_engine_cannot_read_at_first_goes_on_later(master, monkeypatch, unreadable):
    name = master.begin(master.plan())

    def away(*_):
        raise CacheError("The cache is away.")

    with monkeypatch.context() as patched:
        patched.setattr(Store, unreadable, away)
        master.start()
        for _ in range(5):
            master.tick()
        assert master.driving._driven == {}
    master.until(name, "finished")


def test_what_is_long_over_is_removed_once_a_day(master, fleet, monkeypatch):
    store, plan = master.store(), master.plan("m0")

    def finished(name):
        over = begin(dataclasses.replace(plan, id=name), master.time.now)
        over.mode = Mode.FINISHED
        store.save_rollout(over)

    finished("over")
    paused = master.begin(master.plan("m1"))
    master.order(rollouts.PAUSE, paused, why="for long")
    master.time.now += 91 * 86400
    # Without anything newer, the clock may be ahead.
    finished("today")
    for _ in range(3):
        master.tick()
    assert store.rollouts() == store.plans() == [paused, "today"]
    looks = []
    monkeypatch.setattr(Store, "tidy", lambda *_: looks.append("rollouts") or [])

    def forget():
        looks.append("minions")
        raise RecordError("There is no accepted key at all.")

    master.forget = forget
    for _ in range(48):
        master.tick(3600.0)
    assert looks == ["rollouts", "minions"] * 2
    assert master.order(rollouts.RESUME, paused)["mode"] == "running"


def test_an_engine_that_stands_down_is_seen_in_the_rollouts_that_it_drove(master):
    """It says why, at once, and nothing can be ordered of it."""
    name = master.begin(master.plan("m0"))
    reason = "This Salt is not known: something differs."
    master.account.set_fact(accounts.STOOD_DOWN, reason)
    told = orders.shown(master.store(), name, opts=master.opts)
    assert (told["looked_after"], told["stood_down"]) == (False, reason)
    assert f"nobody looks after it: {reason}" in progress.text(told)
    with pytest.raises(SafeUpdateError, match=reason):
        orders.order(master.opts, rollouts.PAUSE, {})
    other = {**master.opts, "cachedir": str(master.cache)}
    assert orders.shown(master.store(), name, opts=other)["stood_down"] == ""


def test_who_looks_at_what_is_over_reads_little(master, monkeypatch):
    """A hundred rollouts of thousands of minions would take a minute to read."""
    over = begin(master.plan("m0"), master.time.now, owner="one_master/1")
    over.mode, over.minions["m0"].step = Mode.FINISHED, Step.DONE
    master.store().save_rollout(over)
    read = []
    real = Store.rollout
    monkeypatch.setattr(
        Store, "rollout", lambda store, name: read.append(name) or real(store, name)
    )
    master.start()
    master.tick()
    master.plan("m1", at_once=True)
    (told,) = orders.listed({**master.opts, "cachedir": str(master.cache)}).values()
    assert (told["mode"], told["counts"], told["minions"]) == ("finished", {"done": 1}, 1)
    assert (told["exit_status"], told["owner"], told["version"]) == (0, "one_master", NEW)
    assert read == []
    second = master.begin(master.plan("m1"))
    assert read == [second]


def test_a_second_master_stays_away_until_it_takes_over(master, make_master, fleet):
    name = master.begin(master.plan())
    second = make_master("two")
    for _ in range(5):
        second.tick()
    assert second.driving.idle
    with pytest.raises(InputError, match="driven by one_master; ask there"):
        second.order(rollouts.PAUSE, name, why="")
    second.order(rollouts.RESUME, name, take_over=True)
    for _ in range(60):
        master.tick(0.5)
        second.tick(0.5)
    assert master.driving.idle, "the first one has seen it"
    second.until(name, "finished")
    assert (fleet.most_busy, master.store().rollout(name).owner[:10]) == (1, "two_master")
    assert all(len(host.taken) == 1 for host in fleet.hosts.values())


def test_a_rollout_whose_account_was_lost_while_no_engine_ran_is_told(master, caplog):
    """Nobody drives it, and to ask the master of that name was no help: it was that one."""
    name = master.begin(master.plan())
    for suffix in ("", "-wal", "-shm"):
        Path(master.account.path + suffix).unlink(missing_ok=True)
    master.account.set_fact(accounts.ENGINE, "started")
    master.start()
    master.tick()
    assert f"resume {name} take_over=True" in caplog.text
    with pytest.raises(InputError, match="the account was lost, and nobody drives it"):
        master.order(rollouts.PAUSE, name, why="")
    master.order(rollouts.RESUME, name, take_over=True)
    master.until(name, "finished")


def test_a_master_that_may_not_resume_does_not_take_over_either(master, make_master):
    """It was refused, and drove the rollout from then on all the same."""
    name = master.begin(master.plan())
    second = make_master("two")
    master.store().quarantine(NEW, "elsewhere")
    with pytest.raises(InputError, match="is in quarantine"):
        second.order(rollouts.RESUME, name, take_over=True)
    for _ in range(5):
        second.tick()
    assert second.driving.idle
    assert master.store().rollout(name).owner[:10] == "one_master"


def test_two_rollouts_do_not_have_one_minion(master):
    first = master.begin(master.plan("m0"))
    plan = master.plan("m[0-3]")
    message = f"rollout {first} is not over, and m0 belongs.*running, 0 minutes old.*one_master"
    with pytest.raises(SafeUpdateError, match=message):
        master.check(plan)
    with pytest.raises(SafeUpdateError, match=message):
        master.begin(plan)
    master.until(first, "finished")
    second = master.begin(plan)
    with pytest.raises(InputError, match="has been run already"):
        master.begin(plan)
    found = master.until(second, "finished")
    # Its plan is older than the end of the first one, and one is up to date by now.
    assert found.count(Step.DONE) == 4


def test_who_is_in_an_update_is_not_asked_what_it_could_not_answer(master, fleet):
    fleet.hosts["m1"].phase = "hangs"
    first = master.begin(master.plan("m0"))
    asked = len(master.published)
    with pytest.raises(SafeUpdateError, match=f"rollout {first} is not over, and m0 belongs"):
        master.plan("m[0-3]", at_once=True)
    assert len(master.published) == asked
    assert master.plan("m[1-3]").left_out == {"m1": "an update is under way there (installing)"}


def test_what_has_changed_since_the_plan_is_said(master, fleet):
    fleet.silent = {"m1"}
    plan = master.plan("m[0-3]")
    assert plan.away == {"m1"}
    fleet.silent = {"m2"}
    fleet.hosts["m3"].version = NEW
    assert master.check(plan) == [
        "m1: answers again",
        "m2: does not answer now",
        f"m3: runs {NEW} already",
    ]
    master.time.now += 86401
    with pytest.raises(InputError, match="hours old"):
        master.check(plan)
    assert master.check(plan, most_age=1e6)


def test_a_plan_whose_target_means_others_now_is_not_run(master, tmp_path):
    plan = master.plan("m*")
    (tmp_path / "pki" / "minions" / "m9").write_text("a key")
    master.fleet.hosts["m9"] = master.fleet.hosts["m0"]
    assert master.check(plan) == ["m9: belongs to the target now, and is not in the plan"]
    (tmp_path / "pki" / "minions" / "m0").unlink()
    with pytest.raises(InputError, match="m0: does not belong to the target any more"):
        master.check(plan)


def test_who_is_left_out_and_why(master, fleet):
    fleet.hosts["m0"].version = NEW
    fleet.findings["m1"] = [
        {"code": "disk", "problem": "It is full.", "fix": "Empty it.", "blocking": True},
        {"code": "other", "problem": "Odd.", "fix": "", "blocking": False},
    ]
    fleet.failing["m2"] = "'safeupdate.report' is not available."
    fleet.silent = {"m3"}
    plan = master.plan(exclude=["m4"])
    assert dict(plan.left_out) == {
        "m0": f"runs {NEW} already",
        "m1": "[disk] It is full. Empty it.",
        "m2": "safeupdate does not work there, or is too old: "
        "'safeupdate.report' is not available.",
        "m4": "excluded",
    }
    assert plan.away == {"m3"}
    assert set(plan.minions) == {"m3", "m5"}


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("nobody*", {}, "matches no minion with an accepted key"),
        ("*", {"max_unavailable": "1%"}, "less than one"),
        ("*", {"windows": ["25:00-26:00"]}, "impossible time"),
        ("*", {"windows": ["22:00-04:00 Mars/City"]}, "unknown time zone"),
        ("*", {"version": ""}, "needs a 'version'"),
        ("*", {"canary": 1}, "no setting canary"),
        ("*", {"exclude": NAMES}, "No minion is left"),
        ("*", {"exclude": "m*"}, r"'exclude' has 'm\*', and no minion"),
        ("*", {"exclude": ["m0", "m00"]}, "'exclude' has 'm00'"),
        (["m9", "m8"], {}, "No minion is left"),
        (None, {}, "needs a target"),
        ("*", {"groups": ["*"]}, "not both"),
    ],
)
def test_bad_input_is_an_error_and_starts_nothing(master, target, settings, message):
    with pytest.raises(InputError, match=message):
        master.plan(target, **settings)
    assert (master.published, master.store().plans()) == ([], [])


@pytest.mark.parametrize("excluded", ["m0,m1", " m0, m1 ", ["m0", "m1"]])
def test_who_is_to_be_left_alone_is(master, fleet, excluded):
    """At a command line a list is a text."""
    plan = master.plan(exclude=excluded)
    assert dict(plan.left_out) == {"m0": "excluded", "m1": "excluded"}
    assert not plan.unfit


@pytest.mark.parametrize("target", ["m0, m1", ["m0", " m1"]])
def test_one_that_is_named_and_unknown_is_a_problem_of_the_plan(master, fleet, target):
    plan = master.plan(target, tgt_type="list")
    assert set(plan.minions) == {"m0"}
    assert set(plan.left_out) == plan.unfit == {" m1"}
    assert "no minion with an accepted key is called that" in plan.left_out[" m1"]


def test_a_master_of_masters_says_where_minions_below_its_syndics_are(master, fleet):
    master.opts["order_masters"] = True
    with pytest.raises(InputError, match=r"no minion.*on the master of their syndic.*Nothing was"):
        master.plan("below*")
    plan = master.plan(["m0", "below1"], tgt_type="list")
    assert "on the master of their syndic" in plan.left_out["below1"]
    assert plan.unfit == {"below1"}


def test_a_syndic_is_no_minion_that_is_away(master, fleet):
    syndics = Path(master.opts["cachedir"]) / "syndics"
    syndics.mkdir(parents=True)
    for name in ("m1", "m2"):
        (syndics / name).touch()
    fleet.silent |= {"m1", "m3"}
    assert master.plan().away == {"m1", "m3"}
    master.opts["order_masters"] = True
    plan = master.plan()
    # One that answers is a minion, whatever it has sent besides.
    assert (plan.away, set(plan.left_out)) == ({"m3"}, {"m1"})
    assert "it is a syndic, and the keys of minions below a syndic are there" in plan.left_out["m1"]
    assert not plan.unfit
    with pytest.raises(InputError, match="No minion is left to update: m1 unsupported"):
        master.plan("m1")


def test_a_rollout_that_is_repeated_has_nothing_to_do(master, fleet):
    for host in fleet.hosts.values():
        host.version = NEW
    opts = {**master.opts, "cachedir": str(master.cache)}
    for background in (True, False):
        found = orders.run(opts, "*", "glob", WANTED, ask=master.ask, background=background)
        assert (found["rollout"], found["mode"], found["exit_status"]) == ("", "finished", 0)
        assert found["why"] == f"nothing to do: runs {NEW} already (6)"
        assert (found["counts"], found["minions"], found["left_out"]) == ({}, 0, 6)
    assert {fun for fun, *_ in master.published} == {"safeupdate.report"}
    assert master.store().rollouts() == master.store().plans() == []
    fleet.failing = {"m3": "'safeupdate.report' is not available."}
    with pytest.raises(InputError, match="No minion is left to update: m3 safeupdate does not"):
        master.plan()
    with pytest.raises(InputError, match="matches no minion"):
        orders.run(opts, "nobody*", "glob", WANTED, ask=master.ask)


def test_a_version_that_nobody_offers(master, fleet):
    finding = {"code": "version", "problem": "9.9 is not offered.", "fix": "", "blocking": True}
    fleet.findings = {name: [finding] for name in NAMES}
    with pytest.raises(InputError, match=r"No minion is left.*9\.9 is not offered"):
        master.plan(version="9.9")
    assert master.store().plans() == []


def test_a_version_that_two_canaries_have_rolled_back_is_kept_from_all(master, fleet):
    for name in ("m0", "m1"):
        fleet.hosts[name].ends = "rolled_back"
    wanted = {"canaries": 2, "max_unavailable": 2}
    plan, other = master.plan("m[0-3]", **wanted), master.plan("m4")
    name = master.begin(plan)
    master.until(name, "stopped")
    for refused in (
        lambda: master.plan("m5"),
        lambda: master.plan("m5", version=f"{NEW}-1"),
        lambda: master.begin(other),
        lambda: master.order(rollouts.RESUME, name),
        lambda: master.order(rollouts.RETRY, name),
    ):
        with pytest.raises(InputError, match=f"{NEW}.* is in quarantine.*allow \"'{NEW}"):
            refused()
    for _ in range(100):
        master.tick()
    assert [each for each in fleet.hosts if fleet.hosts[each].taken] == ["m0", "m1"]
    assert master.store().allow(NEW)
    for _ in range(100):
        master.tick()
    assert not master.store().quarantined(), "what somebody has allowed stays so"
    master.order(rollouts.RESUME, name)
    master.until(name, "finished")
    master.until(master.begin(other), "finished")


def test_a_quarantine_reaches_rollouts_that_are_under_way_and_ends_with_them_resumed(master, fleet):
    name = master.begin(master.plan(canaries=0, waves=[1, "100%"]))
    while not fleet.most_busy:
        master.tick()
    (began,) = [each for each, host in fleet.hosts.items() if host.taken]
    master.store().quarantine(NEW, "elsewhere")
    assert f"{NEW} is in quarantine: elsewhere" in master.until(name, "stopped").why
    for _ in range(200):
        master.tick()
    assert [each for each, host in fleet.hosts.items() if host.taken] == [began], "nobody else"
    assert steps(master, name)[began] == "done", "what had begun came to its end"
    with pytest.raises(InputError, match="is in quarantine"):
        master.order(rollouts.RESUME, name)
    assert master.store().allow(NEW, "jo on here", master.time.now)
    master.order(rollouts.RESUME, name, by="ann")
    lines = [line for _, line in master.until(name, "finished").history]
    assert f"{NEW} was allowed again by jo on here" in lines
    assert set(steps(master, name).values()) == {"done"}
    assert master.store().allowed()[NEW]["because"] == "elsewhere"


def test_what_a_refusal_names_is_what_allow_takes(master, fleet, monkeypatch):
    """A version has several spellings: it is kept under one of them."""
    opts = {**master.opts, "cachedir": str(master.cache)}
    monkeypatch.setattr(safeupdate, "__opts__", opts, raising=False)
    store, one = master.store(), f"1:{NEW}-2"
    name = master.begin(master.plan())
    store.quarantine(one, "elsewhere")
    assert f"safeupdate.allow \"'{one}'\", then 'resume'" in master.until(name, "stopped").why
    with pytest.raises(InputError, match=f"{NEW} is in quarantine.*allow \"'{one}'\""):
        master.order(rollouts.RESUME, name)
    with pytest.raises(RefusedError, match=f"nothing was allowed.*is {one};"):
        safeupdate.allow(NEW)
    assert safeupdate.allow(one) is True
    master.order(rollouts.RESUME, name)
    master.until(name, "finished")


def test_a_new_account_knows_whose_rollouts_these_are(master, tmp_path):
    """The old one was set aside while the engine ran; the next engine drives its rollouts."""
    owner = rollouts.owner_of(master.account, "one_master")
    new = accounts.Account(str(tmp_path / "new" / "account.db"))
    engine.renew(new, owner)
    assert rollouts.owner_of(new, "one_master") == owner


def test_a_quarantine_survives_an_engine_that_dies_before_it_is_stored(master, fleet, monkeypatch):
    for name in ("m0", "m1"):
        fleet.hosts[name].ends = "rolled_back"

    class Killed(BaseException):
        pass

    def dies(*_):
        raise Killed

    name = master.begin(master.plan("m[0-3]", canaries=2, max_unavailable=2))
    with monkeypatch.context() as patched:
        patched.setattr(Store, "quarantine", dies)
        with pytest.raises(Killed):
            master.until(name, "aborted")
    assert master.store().rollout(name).mode is Mode.STOPPED
    assert not master.store().quarantined()
    master.start()
    for _ in range(3):
        master.tick()
    assert "m0, m1" in master.store().quarantined()[NEW]


def test_an_engine_that_is_started_again_and_again_sees_who_is_away(master, fleet):
    """Each one lives for less than the time after which a minion counts as away."""
    name = master.begin(master.plan(max_unavailable=2, silence_timeout=100, canaries=0))
    fleet.silent = {"m4", "m5"}
    for _ in range(8):
        for _ in range(40):
            master.tick()
        master.start()
    found = master.store().rollout(name)
    assert [each for each, minion in found.minions.items() if minion.away] == ["m4", "m5"]
    assert "nobody can begin" in found.why


def test_canaries_are_drawn_by_chance(master, monkeypatch):
    """No minion can count on being one."""
    drawn = []

    def sample(dice, minions, count):
        drawn.append(list(minions))
        return minions[-count:]

    monkeypatch.setattr(random.SystemRandom, "sample", sample)
    given = {**WANTED, "canaries": 2, "exclude": ["m5"]}
    wanted = planning.requested(master.store(), "*", "glob", given)
    found = planning.make(master.opts, wanted, store=master.store(), ask=master.ask)
    assert found.waves[0].minions == ("m3", "m4")
    assert master.store().plan(found.id) == found, "the plan has them for good"
    assert drawn[-1] == ["m0", "m1", "m2", "m3", "m4"]


def test_nobody_is_asked_twice_a_second_in_publications(master):
    """Those that begin at once are in one publication."""
    name = master.begin(master.plan(canaries=0, waves=["100%"], max_unavailable=6, stage=False))
    master.until(name, "finished")
    requests = [tgt for fun, tgt, _ in master.published if fun == "safeupdate.request"]
    assert requests == [NAMES]


def test_a_mistake_in_one_rollout_ends_no_engine_and_no_other_rollout(
    master, fleet, monkeypatch, caplog
):
    """Salt starts an engine anew that ends, and it would end again."""
    first = master.begin(master.plan("m0"))
    other = master.begin(master.plan("m1"))
    advance = rollouts.controller.advance

    def fails(rollout, *more):
        if rollout.plan.id == first:
            raise OverflowError("date value out of range")
        return advance(rollout, *more)

    monkeypatch.setattr(rollouts.controller, "advance", fails)
    master.until(other, "finished")
    assert f"the rollout {first} stands still: date value out of range" in caplog.text
    assert "Traceback" in caplog.text
    monkeypatch.setattr(rollouts.controller, "advance", advance)
    master.until(first, "finished")


def test_a_mistake_in_an_order_ends_no_engine_and_is_told(master, fleet, monkeypatch, caplog):
    """Whoever had ordered it waited, and all rollouts of the master stood."""
    first = master.begin(master.plan("m0"))
    other = master.plan("m1")

    def fails(*_):
        raise TypeError("'NoneType' object is not iterable")

    monkeypatch.setattr(rollouts.steering, "pause", fails)
    with pytest.raises(SafeUpdateError, match=r"a mistake in this extension.*NoneType.*"):
        master.order(rollouts.PAUSE, first, why="night")
    monkeypatch.setattr(rollouts.rollout, "begin", fails)
    with pytest.raises(SafeUpdateError, match="The stored state counts"):
        master.begin(other)
    assert "an order was not understood: pause" in caplog.text
    assert master.store().rollouts() == [first]
    assert master.until(first, "finished").mode is Mode.FINISHED


def test_a_series_is_one_version_from_the_plan_on(master, fleet):
    """Minions say what they would install; none decides alone, and the plan has the exact one."""
    hears, offers = fleet.hears, dict.fromkeys(NAMES, "1:3008.9-2") | {"m3": "3008.99-1"}
    sources = []

    def told(name, fun, arg, now):
        said, good = hears(name, fun, arg, now)
        if fun == "safeupdate.plan" and good:
            sources.append(str(arg))
            said |= {"targets": {"salt": offers[name]}}
        return said, good

    fleet.hears = told
    plan = master.plan(version="3008", source="salt://builds")
    assert plan.request.version == "3008.9"
    assert all("salt://builds" in each for each in sources)
    name = master.begin(plan)
    # Whatever is on offer meanwhile.
    offers.update(dict.fromkeys(NAMES, "3008.10"))
    master.until(name, "finished")
    assert {each.version for each in fleet.hosts.values()} == {"3008.9"}
    with pytest.raises(InputError, match=r"newest version of 3007 is not known.*steps.*exact"):
        master.plan(version="3007")
