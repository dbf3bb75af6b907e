"""
A whole rollout: a real master that is killed in its midst, six real minions, and one that lies.

One breaks, one hangs, one is off and comes back, one is rolled back. What counts is what their
own records say, not what the rollout believes.
"""

import functools
import itertools
import json
import random
import subprocess

import pytest
import salt.version

from saltext_safeupdate.master import rollouts
from saltext_safeupdate.master.store import Store
from tests.integration.conftest import minion_options
from tests.support.fleet import Guest, Master, most_at_once
from tests.support.raw_minion import RawMinion
from tests.support.waiting import LONGEST, wait_for

SALT = str(salt.version.__version__)
OLD, NEW, NEWEST = (f"{SALT}-{build}" for build in (1, 2, 3))
INSTALLED = {"salt-minion": OLD, "salt-common": OLD}
AVAILABLE = {
    "salt-common": {version: {} for version in (OLD, NEW, NEWEST)},
    "salt-minion": {version: {"salt-common": version} for version in (OLD, NEW, NEWEST)},
}
# In this order: the first one is a canary on its own, the second one that of the rest.
NAMES = ("alone", "better", "broken", "hung", "late", "undone")
# One that hangs, one that has failed and one that is off take their places for good.
AT_ONCE = 4
GROUPS = [{"name": "first", "target": "alone"}, {"name": "rest", "target": "*"}]
WANTED = {
    "groups": GROUPS,
    "version": NEW,
    "canaries": 1,
    "waves": ["100%"],
    "max_unavailable": AT_ONCE,
    "max_failed": 5,
    "sample": 0,
    "soak": 0,
    "jitter": 0,
    "minion_timeout": 120,
    "silence_timeout": 30,
    "late_timeout": 3600,
    "exclude": ["mallory"],
}
# The moments of a wave at which the master is killed: the first one in every run, each in a soak.
MOMENTS = ("installing", "staging", "asked", "settled", "next wave")

# One series is enough for the short form: the parts that differ have tests of their own.
pytestmark = [] if SALT.startswith("3008") else [pytest.mark.soak]


class Mallory(RawMinion):
    """Says, in the name of others, that they are done; as often as it is asked to lie."""

    def __init__(self, *args):
        self.lies = itertools.count()
        super().__init__(*args)

    def heard(self, load):
        if not load["fun"].startswith("safeupdate.") or next(self.lies) > 12:
            return
        for victim in load["tgt"] if isinstance(load["tgt"], list) else ():
            said = {
                "fun": load["fun"],
                "fun_args": [],
                "success": True,
                "retcode": 0,
                "return": {
                    "number": 2**62,
                    "phase": "committed",
                    "version": SALT,
                    "installed": NEW,
                },
            }
            ret = {"jid": load["jid"], "id": victim, **said}
            self.event(f"salt/job/{load['jid']}/ret/{victim}", ret, **said)
            self.lie({"cmd": "_return", **ret, "resource_id": victim})
            self.lie({"cmd": "_return", **ret})
            self.lie({"cmd": "_syndic_return", "jid": load["jid"], "return": {victim: said}})


class Scene:
    """The master, the minions and what an administrator does with them."""

    def __init__(self, path):
        self.path = path
        self.master = Master(path / "master")
        self.guests = {name: self._guest(name) for name in NAMES}
        self.guests["broken"].database.update(broken={"salt-minion": "it breaks"})
        self.mallory = None

    def _guest(self, name):
        home = self.path / name
        options = minion_options(home, Guest.database_of(home), multiprocessing=False)
        # On a busy host a minion may need more than a few seconds to prove healthy.
        watch = 10 if name == "undone" else 120
        ours = options["safeupdate"] | {"watch_timeout": watch, "restart_timeout": 120}
        ours |= {"jobs_timeout": 3600} if name == "hung" else {}
        ours |= {"health_check": ["/bin/false"]} if name == "undone" else {}
        options |= {"safeupdate": ours, "enable_fqdns_grains": False}
        return Guest(name, home, self.master, options, INSTALLED, AVAILABLE)

    def start(self):
        self.master.start()
        for guest in self.guests.values():
            guest.start()
        wait_for(self.master.reachable, "the master")
        self.mallory = Mallory(self.master.opts, "mallory", self.path / "mallory")
        wait_for(lambda: self.master.ping(NAMES) == set(NAMES), "all minions")
        self.guests["late"].kill()
        return self

    def stop(self):
        if self.mallory is not None:
            self.mallory.close()
        for daemon in (*self.guests.values(), self.master):
            daemon.kill()

    @functools.cached_property
    def store(self):
        """What is read all the time: with each new one, Salt loads its caches anew."""
        return Store(self.master.opts)

    def rollout(self, name):
        return self.store.rollout(name)

    def steps(self, name):
        return {m: each.step.value for m, each in self.rollout(name).minions.items()}

    def mode(self, name):
        return self.store.outline(name).mode.value

    def is_at(self, name, moment):
        """Tell whether the wave of all the rest has come to a moment; it may be past it already."""
        found = self.rollout(name)
        rest = [found.minions[each] for each in ("broken", "hung", "undone")]
        if moment == "next wave":
            return found.wave >= 1
        if found.wave < 2:
            return False
        settled = any(minion.step.settled for minion in rest)
        return {
            "staging": any(minion.staged for minion in rest),
            "asked": any(minion.step.value in ("asked", "updating") for minion in rest) or settled,
            "installing": any(minion.step.value == "updating" for minion in rest) or settled,
            "settled": settled,
        }[moment]


@pytest.fixture
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("fleet"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.parametrize(
    "moment", [MOMENTS[0], *(pytest.param(each, marks=pytest.mark.soak) for each in MOMENTS[1:])]
)
def test_a_rollout_in_which_everything_happens(scene, moment, monkeypatch):
    monkeypatch.setattr(random.SystemRandom, "sample", lambda _, names, count: names[:count])
    master, guests = scene.master, scene.guests
    hang = master.publish("hung", "probe.wait_for", "go")
    assert hang
    wait_for(lambda: ("note", "waiting") in guests["hung"].database.journal(), "the long job")
    plan = master.runner("plan", **WANTED)
    assert plan["left_out"] == {"mallory": "excluded"}, plan
    assert plan["away"] == ["late"]
    assert [wave["minions"] for wave in plan["waves"]][:2] == [["alone"], ["better"]]

    begun = master.runner("rollout", plan=plan["id"], background=True)
    name = begun["rollout"]
    assert (begun["changed"], begun["exit_status"]) == ([], 3)
    refused = master.runner("rollout", plan=plan["id"], background=True)
    assert "has been run already" in str(refused), refused

    # A pause: who has been asked goes on, and nobody else begins.
    master.order(rollouts.PAUSE, name, why="the night")
    asked = {each for each, step in scene.steps(name).items() if step != "waiting"}
    looked = scene.rollout(name).elapsed
    wait_for(lambda: scene.rollout(name).elapsed > looked + 20, "the pause to be looked at")
    assert {guest.id for guest in guests.values() if guest.phase()} <= asked
    assert scene.mode(name) == "paused"
    assert len(asked) < len(NAMES), "somebody is left to begin"
    master.order(rollouts.RESUME, name)

    # The master dies, and another one takes up what is stored.
    wait_for(lambda: scene.is_at(name, moment), f"the moment: {moment}")
    master.kill()
    before, looked = scene.steps(name), scene.rollout(name).elapsed
    master.start()
    wait_for(lambda: scene.rollout(name).elapsed > looked, "the new engine")
    assert scene.mode(name) == "running", scene.rollout(name).history
    assert set(scene.steps(name)) == set(before)

    wait_for(lambda: scene.steps(name)["hung"] == "timed_out", "the time-out of the one that hangs")
    assert guests["hung"].phase() not in ("committed", ""), "it has begun, and waits for its job"
    wait_for(lambda: scene.steps(name)["undone"] == "rolled_back", "the one that is rolled back")
    assert guests["undone"].database.installed == INSTALLED
    assert scene.steps(name)["late"] == "waiting", "it is off, whatever others say of it"
    assert next(scene.mallory.lies) > 12, "it had enough to lie about"

    # What hangs may end, and what was off comes back: both are done in the end.
    (guests["hung"].home / "go").touch()
    # The rollout ends with the one that is off, and nobody is looked after then.
    wait_for(lambda: scene.steps(name)["hung"] == "done", "the one that hung")
    guests["late"].start()
    wait_for(lambda: scene.mode(name) in ("finished", "stopped"), "the end")
    status = master.runner("status", name, rows=True)
    assert "it breaks" in next(row["reason"] for row in status["rows"] if row["step"] == "failed")
    assert {row["minion"]: row["step"] for row in status["rows"]} == {
        "alone": "done",
        "better": "done",
        "broken": "failed",
        "hung": "done",
        "late": "done",
        "undone": "rolled_back",
    }
    assert (status["mode"], status["exit_status"], status["looked_after"]) == ("finished", 1, True)
    installed = {name: guest.database.installed["salt-minion"] for name, guest in guests.items()}
    assert installed == dict.fromkeys(NAMES, NEW) | {"broken": OLD, "undone": OLD}
    assert most_at_once(guests.values()) <= AT_ONCE
    assert all(len(guest.intervals()) == 1 for guest in guests.values()), "each was begun once"

    _abort(scene)
    _back(scene, name)


def _back(scene, name):
    """All go back to what they ran before; its version is kept from all until it is allowed."""
    master, guests = scene.master, scene.guests
    (guests["hung"].home / "go").touch()
    # Those of the scene are short, for the one that hangs; a busy host takes longer than that.
    begun = master.runner("rollout", back=name, background=True, minion_timeout=3600)
    back = begun["rollout"]
    wait_for(lambda: scene.mode(back) in ("finished", "stopped"), "the way back")
    told = master.runner("status", back, rows=True)
    plan = Store(master.opts).plan(back)
    ends = {row["minion"]: (row["step"], row["phase"], row["reason"]) for row in told["rows"]}
    seen = (told["mode"], told["why"], ends, plan.left_out, told["history"])
    assert {each: end[0] for each, end in ends.items()} == dict.fromkeys(
        ("alone", "better", "hung", "late"), "done"
    ), seen
    assert told["exit_status"] == 0, seen
    installed = {each: guest.database.installed["salt-minion"] for each, guest in guests.items()}
    assert installed == dict.fromkeys(NAMES, OLD), seen
    assert most_at_once(guests.values()) <= AT_ONCE

    refused = master.runner("plan", **WANTED)
    assert f"{NEW} is in quarantine: taken back by the rollout {back}" in str(refused)
    allowed = master.runner("allow", NEW, everywhere=True)
    assert (allowed["lifted"], allowed["failed"], allowed["silent"]) == (True, {}, ["mallory"])
    assert allowed["minions"]["undone"] == [NEW], "it had rolled the version back itself"
    assert Store(master.opts).quarantined() == {}


def _abort(scene):
    """Another rollout, in the foreground of a program, is aborted before it installs."""
    master, hung = scene.master, scene.guests["hung"]
    (hung.home / "go").unlink()
    hung.database.journal_path.unlink()
    master.publish("hung", "probe.wait_for", "go")
    wait_for(lambda: ("note", "waiting") in hung.database.journal(), "the long job")
    words = ("target=hung", f"version={NEWEST}", "canaries=0", "soak=0", "jitter=0", "stage=False")
    program = subprocess.Popen(
        master.command("safeupdate.rollout", *words, "max_unavailable=1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: hung.phase() == "waiting", "the update to wait for the job")
        told = master.runner("status")
        (name,) = [name for name, each in told.items() if each["mode"] == "running"]
        refused = master.runner("rollout", "hung", version=NEWEST, canaries=0, max_unavailable=1)
        assert f"The rollout {name} is not over" in str(refused)
        assert master.order(rollouts.ABORT, name, why="enough")["rollout"] == name
        out, shown = program.communicate(timeout=LONGEST)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 1, shown
    assert json.loads(out)["mode"] == "aborted"
    assert "enough" in shown, "what happened was shown"
    assert scene.steps(name) == {"hung": "cancelled"}
    assert hung.phase() == "cancelled"
    assert hung.database.installed["salt-minion"] == NEW
