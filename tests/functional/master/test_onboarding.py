"""Hosts without the extension, brought in by waves; they are simulated, the engine asks them."""

import io

import pytest
from salt.exceptions import AuthenticationError

from saltext_safeupdate import __version__
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.master import draining, newest, onboarding
from saltext_safeupdate.master.alone import alone
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
    how = {key: given.pop(key) for key in ("wheel", "sls", "test") if key in given}
    settings = {"soak": 60, "max_unavailable": 2, "canaries": 1, "waves": ["50%", "100%"]} | given

    def ask(opts, minions, fun, arg=(), timeout=5.0):
        refuses("ask")
        # Whoever is away hears nothing.
        fleet.silent = {name for name in NAMES if fleet.away(name)}
        fleet.most_away = max(fleet.most_away, len(fleet.silent))
        return master.ask(opts, minions, fun, arg, timeout)

    def pause(seconds):
        master.time.now += seconds

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


def test_a_test_begins_nothing(master):
    found, said = run(master, test=True)
    assert len(found["not_begun"]) == 8
    assert (master.fleet.order, said) == ([], "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"version": "3008.3"}, "no setting version"),
        ({"wheel": "/srv/x.whl"}, "has to be the salt:// path"),
        ({"sls": "base"}, "not both"),
        ({"target": "x*"}, "no minion with an accepted key"),
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
