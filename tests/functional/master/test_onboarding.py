"""Hosts without the extension, brought in by waves; they are simulated, the engine asks them."""

import io

import pytest
from salt.exceptions import AuthenticationError

from saltext_safeupdate import __version__
from saltext_safeupdate.core.errors import (
    InputError,
    LockHeldError,
    RecordError,
    SafeUpdateError,
)
from saltext_safeupdate.master import draining, newest, onboarding
from saltext_safeupdate.master.alone import alone
from saltext_safeupdate.master.store import ROLLOUTS
from tests.functional.master.fleet_site import Fleet, Master, Time

NAMES = [f"m{number}" for number in range(8)]
WHEEL = "salt://saltext_safeupdate-0.1.0-py3-none-any.whl"
LACKS = "'safeupdate.check' is not available."
UNREAD = [{"code": "executor", "problem": "It is not in.", "fix": "Set it."}]
REMARK = [{"code": "master", "problem": "The master does not tell.", "fix": "Run setup."}]
INSTALL, ENABLE = "pip.install", "safeupdate.enabled"


class Newcomers(Fleet):
    """
    Minions on which this extension is installed, and set up, by what is published.

    Each takes 30 s for the one and is away for 60 s after the other. *broken* never comes back,
    *deaf* installs nothing.
    """

    def __init__(self, names, clock):
        super().__init__(names)
        self.clock = clock
        self.installed = dict.fromkeys(names)
        self.enabled = dict.fromkeys(names)
        self.broken, self.deaf = set(), set()
        self.most_away, self.order, self.published_args = 0, [], []

    def published(self, minions, fun, arg):
        now = self.clock()
        self.published_args.append((fun, arg))
        for name in minions:
            if fun == "state.single":
                assert arg == [ENABLE, "safeupdate"]
                assert self.has(name), "it would fail"
                self.enabled[name] = now
            elif name not in self.deaf:
                self.installed[name] = now
            self.order.append((ENABLE if fun == "state.single" else INSTALL, name))

    def has(self, name):
        return self.installed[name] is not None and self.clock() > self.installed[name] + 30

    def away(self, name):
        since = self.enabled[name]
        return since is not None and (name in self.broken or since < self.clock() < since + 60)

    def hears(self, name, fun, arg, now):
        if not self.has(name):
            return LACKS, False
        since = self.enabled[name]
        return (UNREAD if since is None else REMARK), True


@pytest.fixture
def master(tmp_path, monkeypatch):
    time = Time()
    fleet = Newcomers(NAMES, lambda: time.now)
    made = Master(tmp_path, tmp_path / "cache", fleet, time)
    monkeypatch.setattr(newest, "by_chance", lambda minions, count: minions[:count])
    yield made
    made.close()


def opts_of(master):
    return {**master.opts, "cachedir": str(master.cache)}


def run(master, target="*", *, clock=None, refuses=lambda what: None, **given):
    """*refuses* raises what the master raises that is asked, or publishes, just then."""
    fleet = master.fleet
    out = io.StringIO()
    how = {k: given.pop(k) for k in ("wheel", "sls", "test", "by", "ask_gate") if k in given}
    after = given.pop("after", lambda: None)
    settings = {"soak": 60, "max_unavailable": 2, "canaries": 1, "waves": ["50%", "100%"]} | given

    def ask(opts, minions, fun, arg=(), timeout=5.0):
        refuses("ask")
        # Whoever is away hears nothing.
        fleet.silent = {name for name in NAMES if fleet.away(name)}
        fleet.most_away = max(fleet.most_away, len(fleet.silent))
        return master.ask(opts, minions, fun, arg, timeout)

    def pause(seconds):
        master.time.now += seconds
        after()

    def publish(minions, fun, arg):
        refuses("publish")
        fleet.published(minions, fun, arg)

    found = onboarding.run(
        opts_of(master),
        target,
        "glob",
        settings,
        **({"wheel": WHEEL} | how),
        out=out,
        publish=publish,
        ask=ask,
        clock=clock or master._clock,
        passed=master._clock,
        pause=pause,
    )
    return found, out.getvalue()


def test_they_come_in_by_waves_never_more_at_once_than_may_be_away(master):
    found, said = run(master)
    fleet = master.fleet
    assert (sorted(found["done"]), found["failed"], found["retcode"]) == (NAMES, {}, 0)
    assert [len(wave) for wave in found["waves"]] == [1, 3, 4]
    assert 0 < fleet.most_away <= 2
    enabled = [name for what, name in fleet.order if what == ENABLE]
    assert enabled == [name for wave in found["waves"] for name in wave], "one wave after the other"
    assert found["remarks"] == {name: ["master"] for name in NAMES}
    assert "done: m0" in said


def test_begun_again_it_goes_on_with_those_who_are_not_set_up(master):
    run(master, target="m[0-3]")
    before = len(master.fleet.order)
    found, _ = run(master)
    assert sorted(found["done"]) == NAMES[4:]
    assert set(found["left_out"]) == set(NAMES[:4])
    assert f"runs the extension {__version__} already" in found["left_out"]["m0"]
    assert {name for _, name in master.fleet.order[before:]} == set(NAMES[4:])
    again, _ = run(master)
    assert (again["waves"], again["retcode"]) == ([], 0)


def test_who_has_the_extension_is_only_set_up(master):
    master.fleet.installed["m0"] = 0.0
    found, _ = run(master, target="m0", wheel="")
    assert found["done"] == ["m0"]
    assert master.fleet.order == [(ENABLE, "m0")]


def test_a_canary_that_does_not_come_back_stops_it(master):
    master.fleet.broken = {"m0"}
    found, said = run(master, minion_timeout=300)
    assert found["stopped"] == "canary m0 does not answer any more"
    assert (found["not_begun"], found["retcode"]) == (NAMES[1:], 1)
    assert "failed: m0" in said
    assert {name for _, name in master.fleet.order} == {"m0"}


@pytest.mark.parametrize("failing", ["deaf", "broken"])
def test_too_many_failures_stop_it_and_one_that_is_allowed_does_not(master, failing):
    setattr(master.fleet, failing, {"m2"})
    found, _ = run(master, max_failed=1, minion_timeout=300, max_unavailable=3)
    assert list(found["failed"]) == ["m2"]
    assert len(found["done"]) == 7
    assert found["stopped"] == ""
    assert found["retcode"] == 1


def test_more_than_may_fail_stop_it(master):
    master.fleet.deaf = {"m1", "m2"}
    found, _ = run(master, max_failed=1, minion_timeout=300, max_unavailable=4)
    assert found["stopped"] == "2 minions have failed, and 1 may"
    assert "does not have the extension" in found["failed"]["m1"]
    assert found["not_begun"], "the next wave has not begun"


def test_outside_its_windows_nobody_begins(master):
    # It is 20:26 UTC.
    run(master, windows=["22:00-23:59"])
    first = min(each for each in master.fleet.installed.values())
    assert first % 86400 / 3600 >= 22


def test_who_does_not_answer_or_is_drained_is_left_out(master):
    master.fleet.broken, master.fleet.enabled["m7"] = {"m7"}, 0.0
    draining.drain(master.store(), ["m6"], 1e6, "new disk", "jo", master.time.now)
    found, _ = run(master)
    assert "does not answer" in found["left_out"]["m7"]
    assert "drained" in found["left_out"]["m6"]
    assert sorted(found["done"]) == NAMES[:6]
    assert found["retcode"] == 1, "somebody is left out because of a problem"


def test_one_that_says_what_it_likes_decides_for_itself_alone(master):
    hears = master.fleet.hears

    def lies(name, fun, arg, now):
        return ({"m0": "done", "m1": "done"}, True) if name == "m3" else hears(name, fun, arg, now)

    master.fleet.hears = lies
    found, _ = run(master)
    assert "senseless" in found["left_out"]["m3"]
    assert sorted(found["done"]) == [name for name in NAMES if name != "m3"]


def test_one_that_is_leaving_is_asked_again_until_the_next_one_answers(master):
    hears, leaving = master.fleet.hears, [{"code": "leaving", "problem": "It is.", "fix": "Wait."}]

    def leaves(name, fun, arg, now):
        said = hears(name, fun, arg, now)
        late = now < (master.fleet.enabled[name] or now) + 200
        return (leaving, True) if name == "m3" and late and said[0] is REMARK else said

    master.fleet.hears = leaves
    found, _ = run(master)
    assert sorted(found["done"]) == NAMES
    assert found["remarks"]["m3"] == ["master"]


def test_a_test_begins_nothing(master):
    found, said = run(master, test=True)
    assert len(found["not_begun"]) == 8
    assert (master.fleet.order, said) == ([], "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"version": "3008.3"}, "no setting version"),
        (
            {"target": None, "groups": [{"name": "g", "target": "m0", "pause_after": "canaries"}]},
            "no setting pause_after",
        ),
        ({"wheel": "/srv/x.whl"}, "has to be the salt:// path"),
        ({"sls": "base"}, "not both"),
        ({"target": "x*"}, "no minion with an accepted key"),
        ({"groups": ["m0"]}, "a target or 'groups', and not both"),
        ({"target": None}, "a target or 'groups', and not both"),
        ({"gate_before": "quiet"}, "has no gate 'quiet'"),
        ({"wheel": ""}, "does not have the extension; give 'wheel' or 'sls'"),
    ],
)
def test_what_makes_no_sense_begins_nothing(master, given, why):
    with pytest.raises(InputError, match=why):
        run(master, **given)
    assert master.fleet.order == []


def test_two_do_not_set_minions_up_at_once(master):
    with (
        alone(opts_of(master), onboarding._LOCK, ""),
        pytest.raises(LockHeldError, match="Another process"),
    ):
        run(master)


class Away:
    """A master that begins to be away when the first minion has begun, for so many seconds."""

    def __init__(self, master, seconds, error, *, at="ask"):
        self.fleet, self.time, self.seconds = master.fleet, master.time, seconds
        self.error, self.at, self.since = error, at, None

    def __call__(self, what):
        if self.since is None and self.fleet.order and what == self.at:
            self.since = self.time.now
        if self.since is not None and self.time.now < self.since + self.seconds:
            raise self.error


@pytest.mark.parametrize("at", ["ask", "publish"])
def test_a_master_that_starts_anew_in_the_midst_ends_nothing(master, at):
    away = Away(master, 120, AuthenticationError("it has another key"), at=at)
    found, said = run(master, refuses=away)
    assert away.since is not None
    assert (sorted(found["done"]), found["failed"], found["retcode"]) == (NAMES, {}, 0)
    assert master.fleet.most_away <= 2
    assert said.count("it has another key") == 1
    for what in (INSTALL, ENABLE):
        assert sorted(name for each, name in master.fleet.order if each == what) == NAMES


def test_a_master_that_does_not_come_back_ends_it_and_who_has_begun_is_told(master):
    found, said = run(master, refuses=Away(master, 1e6, SafeUpdateError("no engine runs")))
    assert "no engine runs" in found["stopped"]
    assert list(found["failed"]) == ["m0"]
    assert "has begun" in found["failed"]["m0"]
    assert (found["done"], found["not_begun"], found["retcode"]) == ([], NAMES[1:], 1)
    assert "failed: m0" in said


@pytest.mark.parametrize("step", [86400.0, -86400.0])
def test_a_clock_that_is_set_in_the_midst_fails_nobody_and_delays_nobody(master, step):
    begun = master.time.now

    def wall():
        return master.time.now + (step if master.fleet.order else 0)

    found, _ = run(master, clock=wall)
    assert (sorted(found["done"]), found["failed"]) == (NAMES, {})
    assert master.time.now - begun < 3600


def test_the_wheel_goes_where_nobody_else_can_have_put_another_one(master):
    """In a directory such as /var/tmp, any user of the host could: pip runs as root."""
    run(master)
    (functions, (get, install, _)), *_ = master.fleet.published_args
    assert functions[:2] == ["cp.get_file", "pip.install"]
    there = f"/var/cache/salt-safeupdate/{WHEEL.removeprefix('salt://')}"
    assert get == [WHEEL, there, {"__kwarg__": True, "makedirs": True}]
    assert install[0] == there


def test_how_it_stands_is_kept_and_shown_from_anywhere(master):
    opts = opts_of(master)
    with pytest.raises(InputError, match="No minions have been set up in waves yet"):
        onboarding.shown(opts)
    seen = []
    found, _ = run(master, by="jo on here", after=lambda: seen.append(onboarding.shown(opts)))
    assert seen[0]["mode"] == "running"
    assert seen[0]["under_way"] == {"m0": "installing"}
    assert {step for each in seen for step in each["under_way"].values()} == {
        "installing",
        "setting up",
    }
    kept = onboarding.shown(opts, "Asia/Kolkata")
    assert {key: kept[key] for key in found} == found
    assert (kept["mode"], kept["by"], kept["under_way"]) == ("finished", "jo on here", {})
    assert kept["times"].keys() == {"began", "looked", "ended"}
    assert kept["times"]["ended"].endswith("+05:30")
    run(master, test=True, target="m0", wheel="")
    assert onboarding.shown(opts)["done"] == found["done"], "a test leaves no record"


class Killed(Exception):
    """The end of the process of the runner."""


def test_one_whose_process_is_gone_is_interrupted_and_says_who_has_not_begun(master):
    def after():
        if len(master.fleet.order) > 2:
            raise Killed

    with pytest.raises(Killed):
        run(master, after=after)
    kept = onboarding.shown(opts_of(master))
    assert (kept["mode"], kept["ended"], kept["times"]["ended"]) == ("interrupted", 0, None)
    begun = {name for _, name in master.fleet.order}
    assert begun == {*kept["done"], *kept["under_way"]}
    assert set(kept["not_begun"]) == set(NAMES) - begun


def test_it_is_kept_that_somebody_begins_before_that_is_asked_for(master):
    def refuses(what):
        if what == "publish":
            raise Killed

    with pytest.raises(Killed):
        run(master, refuses=refuses)
    assert onboarding.shown(opts_of(master))["under_way"] == {"m0": "installing"}
    assert master.fleet.order == []


def test_while_it_cannot_be_kept_nobody_begins_and_it_continues_when_it_can(master):
    bank = master.cache / ROLLOUTS
    aside = bank.with_name("aside")
    times = []

    def after():
        # For two minutes, a file is where the records are.
        times.append(master.time.now)
        if len(times) == 1:
            bank.rename(aside)
            bank.write_text("")
        elif bank.is_file() and times[-1] > times[0] + 120:
            assert [name for _, name in master.fleet.order] == ["m0"]
            bank.unlink()
            aside.rename(bank)

    found, said = run(master, after=after)
    assert (sorted(found["done"]), found["failed"], found["stopped"]) == (NAMES, {}, "")
    assert said.count("cannot ask, publish or keep its record: The cache of the master") == 1
    assert onboarding.shown(opts_of(master))["done"] == found["done"]
    for what in (INSTALL, ENABLE):
        assert sorted(name for each, name in master.fleet.order if each == what) == NAMES


def test_one_whose_end_cannot_be_kept_still_tells_it(master):
    bank = master.cache / ROLLOUTS

    def after():
        if len(master.fleet.order) == 2 and not bank.is_file():
            bank.rename(bank.with_name("aside"))
            bank.write_text("")

    found, said = run(master, after=after)
    assert "cannot ask, publish or keep its record" in found["stopped"]
    assert (found["done"], found["not_begun"], found["retcode"]) == (["m0"], NAMES[3:], 1)
    assert "the record of the end cannot be stored" in said


def test_how_one_ends_whose_master_does_not_come_back_is_kept(master):
    found, _ = run(master, refuses=Away(master, 1e6, SafeUpdateError("no engine runs")))
    kept = onboarding.shown(opts_of(master))
    assert {key: kept[key] for key in found} == found
    assert (kept["mode"], kept["under_way"]) == ("stopped", {})


@pytest.mark.parametrize(
    "odd", [["odd"], {}, {"began": "", "looked": 0, "ended": 0, "stopped": ""}]
)
def test_a_record_that_is_none_is_told(master, odd):
    master.store().cache.write(ROLLOUTS, "onboarding", odd)
    with pytest.raises(RecordError, match="it is no record of an onboarding"):
        onboarding.shown(opts_of(master))


def gates(master, no=(), until=0.0):
    """Return gates that say no, the ones of these names until then, and what they were asked."""
    asked = []
    times = master.fleet.times = []

    def ask_gate(name):
        asked.append((name, len(master.fleet.order) // 2))
        times.append(master.time.now)
        quiet = name not in no or master.time.now > until
        return quiet, "" if quiet else "alarms\x1b[2J"

    master.opts["safeupdate_gates"] = dict.fromkeys(("quiet", "works"), "test.true")
    return asked, ask_gate


def test_no_wave_begins_or_ends_before_its_gates_say_yes(master):
    asked, ask_gate = gates(master, no=["works"], until=master.time.now + 3600)
    out = run(master, gate_before="quiet", gate_after="works", ask_gate=ask_gate, gate_timeout=7200)
    found, said = out
    assert sorted(found["done"]) == NAMES
    assert "waits after wave 1: the gate works says no: alarms" in said
    assert "\x1b" not in said
    # Each wave is whole before the next one, and whatever says no is asked once a minute.
    assert [each for each in asked if each[0] == "quiet"] == [("quiet", n) for n in (0, 1, 4)]
    assert 50 < asked.count(("works", 1)) <= 61
    assert asked[-1] == ("works", 8)
    # A wave has soaked before it is asked whether it works.
    assert master.fleet.times[asked.index(("works", 1))] >= master.fleet.enabled["m0"] + 60 + 60


def test_a_gate_that_says_no_for_too_long_stops_it(master):
    asked, ask_gate = gates(master, no=["works"], until=1e12)
    found, _ = run(master, gate_after=["works"], ask_gate=ask_gate, gate_timeout=600)
    assert found["done"] == ["m0"]
    assert found["stopped"].startswith("the gate works has not said yes for 600 s")
    assert (found["not_begun"], found["retcode"]) == (NAMES[1:], 1)
    assert 10 <= len(asked) <= 12


@pytest.mark.parametrize("step", [86400.0, -86400.0])
def test_a_clock_that_is_set_while_a_gate_says_no_neither_stops_nor_delays_it(master, step):
    begun = master.time.now
    _, ask_gate = gates(master, no=["quiet"], until=begun + 300)

    def wall():
        return master.time.now + (step if master.time.now > begun + 120 else 0)

    wanted = {"gate_before": "quiet", "gate_timeout": 600}
    found, _ = run(master, clock=wall, ask_gate=ask_gate, **wanted)
    assert (sorted(found["done"]), found["stopped"]) == (NAMES, "")
    assert master.time.now - begun < 3600
    kept = onboarding.shown(opts_of(master))
    assert begun <= kept["began"] < begun + 60, "by the wall clock before it was set"
    assert kept["ended"] == wall()


def test_the_time_outside_the_windows_is_none_in_which_a_gate_says_no(master):
    # It is 20:26 UTC, and the window is open for four minutes.
    asked, ask_gate = gates(master, no=["quiet"], until=master.time.now + 80_000)
    wanted = {"gate_before": "quiet", "gate_timeout": 600, "windows": ["20:00-20:30"]}
    found, _ = run(master, ask_gate=ask_gate, **wanted)
    assert (sorted(found["done"]), found["stopped"]) == (NAMES, "")
    assert asked


def test_groups_have_their_own_limits_and_come_one_after_the_other(master):
    groups = [
        {"name": "first", "target": "m[0-2]", "max_unavailable": 1, "canaries": 0, "soak": 0},
        {"name": "rest", "target": "*"},
    ]
    seen = []
    found, _ = run(
        master,
        target=None,
        groups=groups,
        max_unavailable=4,
        after=lambda: seen.append(set(onboarding.shown(opts_of(master))["under_way"])),
    )
    assert sorted(found["done"]) == NAMES
    assert [name for _, name in master.fleet.order[:6]] == ["m0", "m0", "m1", "m1", "m2", "m2"]
    assert max(len(each & {"m0", "m1", "m2"}) for each in seen) == 1
    assert max(map(len, seen)) > 1


def test_a_group_in_which_as_many_have_failed_as_may_be_away_stops_it(master):
    master.fleet.broken = {"m1"}
    groups = [{"name": "first", "target": "m[0-2]", "max_unavailable": 1, "canaries": 0}]
    found, _ = run(
        master, target=None, groups=groups, max_unavailable=4, max_failed=3, minion_timeout=300
    )
    assert found["stopped"] == "as many minions of first have failed as may be away at once"
    assert found["not_begun"] == ["m2"]


def test_a_misspelt_name_is_told_and_a_misspelt_exclusion_begins_nothing(master):
    """One who was to be left out would be set up, and restart."""
    group = {"name": "named", "target": ["m1", "m9"]}
    found, _ = run(master, None, groups=[group], wheel=WHEEL)
    assert (found["done"], set(found["left_out"])) == (["m1"], {"m9"})
    assert "no minion with an accepted key is called that" in found["left_out"]["m9"]
    assert found["retcode"] == 1
    with pytest.raises(InputError, match=r"'exclude' has 'm77'.*Nothing was"):
        run(master, wheel=WHEEL, exclude="m7,m77")
    assert master.fleet.installed["m7"] is None


def test_one_of_whom_little_is_known_belongs_to_an_earlier_group_that_names_it(master):
    groups = [
        {"name": "named", "target": "m1"},
        {"name": "later", "target": "not G@os:Debian", "tgt_type": "compound"},
    ]
    found, _ = run(master, None, groups=groups, wheel=WHEEL)
    assert found["done"] == ["m1"]
    assert set(found["left_out"]) == set(NAMES) - {"m1"}
    assert "nobody knows if it belongs to later" in found["left_out"]["m2"]
