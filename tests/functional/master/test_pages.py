"""The commands of the pages about a fleet, typed as they stand; its minions are simulated."""

import os
import re
import shlex
import types

import pytest
import salt.utils.args
import salt.utils.yaml
import salt.version

from saltext_safeupdate.fleet import text
from saltext_safeupdate.master import (
    allowing,
    draining,
    gate,
    orders,
    planning,
    policies,
    progress,
    rollouts,
    targets,
)
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.support import documents
from tests.unit.fleet.world import NEW, OLD

NAMES = ["web1", "web2", "web3", "db1", "db2", "rack7-1"]
HOWTO = documents.REPO / "docs" / "topics" / "howto"
# What a rollout is called on the pages.
NAMED = "20261122-200000-9f3a"
DAY, THURSDAY = 86400.0, 20_601
QUICK = {"soak": 0, "jitter": 0}


class Typist:
    """Does what a runner does, as somebody has typed it."""

    def __init__(self, master):
        self.master, self.named, self.shown = master, "", []
        self.does = {
            "safeupdate.plan": self.plan,
            "safeupdate.rollout": self.rollout,
            "safeupdate.status": self.status,
            "safeupdate.resume": lambda name: self.order(rollouts.RESUME, name),
            "safeupdate.retry": lambda name: self.order(rollouts.RETRY, name),
            "safeupdate.allow": self.allow,
            "safeupdate.drain": self.drain,
            "safeupdate.undrain": lambda target: draining.undrain(
                self.store, self.meant(target), self.now
            ),
            "safeupdate.policy": self.policy,
        }

    @property
    def store(self):
        return self.master.store()

    @property
    def now(self):
        return self.master.time.now

    def type(self, command):
        words = shlex.split(command.replace(NAMED, self.named), comments=True)
        if words[:1] == ["salt"]:
            return self.call(*words[1:])
        assert words[0] == "salt-run", command
        *args, kwargs = [*salt.utils.args.parse_input(words[2:], condition=True), {}][:9]
        if args and isinstance(args[-1], dict):
            kwargs = args.pop()
        return self.does[words[1]](*args, **salt.utils.args.clean_kwargs(**kwargs))

    def call(self, minion, fun, *words):
        """Call a function of a minion."""
        assert fun == "safeupdate.unquarantine", fun
        args = salt.utils.args.parse_input(words, condition=True)
        said, good = self.master.fleet.hears(minion, fun, args, self.now)
        assert good, said
        return said

    def plan(self, target=None, tgt_type="glob", **settings):
        given = settings if "back" in settings else QUICK | settings
        wanted = planning.requested(self.store, target, tgt_type, given)
        made = planning.make(
            self.master.opts,
            wanted,
            store=self.store,
            ask=self.master.ask,
            clock=self.master._clock,
            draw=lambda minions, count: minions[:count],
        )
        self.shown.append(text.plan_text(made))
        return made

    def rollout(self, target=None, *, plan=None, background=False, **settings):
        made = self.plan(target, **settings) if plan is None else self.store.plan(plan)
        if made.id:
            self.named = self.master.begin(made)
            self.run()
        return made

    def run(self):
        """Let time go by until it is over, or stands."""
        store = self.store
        for _ in range(20_000):
            busy = any(host.busy for host in self.master.fleet.hosts.values())
            self.master.tick(5.0 if busy else 30.0)
            found = store.rollout(self.named)
            if found.mode.value != "running":
                return
            if not busy and found.elapsed > 600 and not found.why:
                self.master.time.now += 900.0
        raise AssertionError((found.mode, found.why))

    def status(self, name=None):
        told = orders.listed(self.master.opts) if name is None else orders.shown(self.store, name)
        self.shown.append(progress.listed_text(told) if name is None else progress.text(told))

    def order(self, what, name):
        self.master.order(what, name, by="jo")
        self.run()

    def allow(self, version, everywhere=False):
        given = {"by": "jo", "tell": lambda *_: None}
        if not everywhere:
            return allowing.allow(self.master.opts, self.store, version, **given)
        return allowing.allow_everywhere(
            self.master.opts, self.store, version, ask=self.master.ask, **given
        )

    def meant(self, target):
        return targets.targeted(self.master.opts, target, "glob")

    def drain(self, target, timeout=86400, reason=""):
        return draining.drain(
            self.store, self.meant(target), float(timeout), reason, "jo", self.now
        )

    def policy(self, apply=False):
        found = policies.step(
            self.master.opts,
            apply=apply,
            store=self.store,
            ask=self.master.ask,
            clock=self.master._clock,
            order=lambda opts, what, given: self.master.order(what, given["plan"], **given),
        )
        self.shown.append(progress.policy_text(found))
        return found


@pytest.fixture
def fleet():
    made = Fleet(NAMES)
    made.quarantines = True
    return made


@pytest.fixture
def typist(tmp_path, fleet, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", NEW)
    first = types.SimpleNamespace(sample=lambda minions, count: minions[:count])
    monkeypatch.setattr(planning.secrets, "SystemRandom", lambda: first)
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    made.opts[gate.OPTION] = {"quiet": "monitoring.is_quiet", "checked": "state.orchestrate"}
    made.gates = {"quiet": lambda: (True, ""), "checked": lambda: (True, "")}
    hears = fleet.hears

    def told(name, fun, arg, now):
        said, good = hears(name, fun, arg, now)
        if fun == "safeupdate.report":
            said |= {"running": said["version"]}
        if fun == "safeupdate.plan":
            said |= {"targets": {"salt": "3007.16-1"}}
        return said, good

    fleet.hears = told
    yield Typist(made)
    made.close()


def blocks(page):
    return [block for block in documents.blocks(HOWTO / page) if block.language == "bash"]


def ran(fleet, *names):
    return {fleet.hosts[name].version for name in names or NAMES}


def test_windows(typist, fleet):
    """It is Thursday, 2026-05-28, 20:26 UTC: the window of Berlin has just opened."""
    first, closed, at = blocks("windows.md")
    for command in first.commands:
        typist.type(command)
    assert ran(fleet, "web1", "web2", "web3") == {NEW}
    for command in closed.commands:
        typist.type(command)
    # The first Saturday is closed, and what of its night is on Sunday.
    assert fleet.hosts["db1"].began // DAY == THURSDAY + 9
    assert ran(fleet, "db1", "db2") == {NEW}
    assert "nobody begins before 2026-06-06 22:00:00 UTC" in typist.shown[-1]
    fleet.hosts["rack7-1"].version = OLD
    for command in at.commands:
        typist.type(command)
    assert ran(fleet) == {NEW}


def test_go_back(typist, fleet):
    rollout, version, at_once, allow, named = blocks("go-back.md")
    forward, plan, part, back = rollout.commands
    typist.type(forward)
    name = typist.named
    assert ran(fleet) == {NEW}
    typist.type(plan)
    assert ran(fleet) == {NEW}, "a plan starts nothing"
    typist.type(part)
    assert (ran(fleet, "db1", "db2"), ran(fleet, "web1", "rack7-1")) == ({OLD}, {NEW})
    typist.named = name
    typist.type(back)
    assert ran(fleet) == {OLD}
    assert typist.store.quarantined() == {NEW: f"taken back by the rollout {typist.named}"}
    typist.type(allow.commands[0])
    typist.type(forward)
    for command in version.commands:
        typist.type(command)
    assert ran(fleet) == {OLD}
    assert typist.type(allow.commands[0])["lifted"] is True
    typist.type(f"{forward} windows='[20:00-21:00]'")
    # It is closed by now, or will be soon: it does not wait.
    typist.type(at_once.commands[0])
    assert (ran(fleet), typist.store.rollout(typist.named).plan.request.windows) == ({OLD}, ())
    fleet.hosts["web1"].version = NEW
    typist.type(named.commands[0])
    assert ran(fleet, "web1") == {OLD}


def test_gates(typist, fleet):
    person, monitoring, download = blocks("gates.md")
    for command in person.commands:
        typist.type(command)
    assert typist.master.asked_gates == []
    assert ran(fleet, "web1", "web2", "web3") == {NEW}
    assert any("the canaries of group 1 are done" in shown for shown in typist.shown)
    for name in ("web1", "web2", "web3"):
        fleet.hosts[name].version = OLD
    for command in monitoring.commands:
        typist.type(command)
    assert ran(fleet, "web1", "web2", "web3") == {NEW}
    assert set(typist.master.asked_gates) == {"quiet", "checked"}
    for command in download.commands:
        typist.type(command)
    assert ran(fleet) == {NEW}


def test_people_work_on_hosts(typist, fleet):
    page = next(block for block in blocks("fleet.md") if "safeupdate.drain" in block.text)
    for command in page.commands:
        typist.type(command)
    assert draining.drained(typist.store, typist.now) == {}


def test_policies(typist, fleet):
    path = policies.path_of(typist.master.opts)
    os.makedirs(os.path.dirname(path))
    example = next(
        block for block in documents.blocks(HOWTO / "policy.md") if block.language == "yaml"
    )
    intent = salt.utils.yaml.safe_load(example.text)
    # Of its hosts, these are there; its test hosts are known by a grain.
    intent["groups"][0] |= {"target": "rack7-*", "tgt_type": "glob"}
    intent["groups"][2]["exclude"] = []
    intent["defaults"] |= QUICK
    with open(path, "w", encoding="utf-8") as file:
        file.write(salt.utils.yaml.safe_dump(intent))
    os.chmod(path, 0o600)
    (look,) = blocks("policy.md")[:1]
    for command in look.commands:
        found = typist.type(command)
    assert found["next"] == "test"
    assert ran(fleet) == {OLD}
    found = typist.type("salt-run safeupdate.policy apply=True")
    typist.named = found["begun"]
    typist.run()
    assert (ran(fleet, "rack7-1"), ran(fleet, "web1")) == ({NEW}, {OLD})


def test_the_tutorial_on_a_rollout(typist, fleet, monkeypatch):
    monkeypatch.setattr(orders, "time", types.SimpleNamespace(time=lambda: typist.now))
    hears = fleet.hears
    # It is a host like any other: it has no upgrade step, and takes its time to prove healthy.
    fleet.hears = lambda *args: _without(hears(*args), "steps", "reboot")
    page = documents.REPO / "docs" / "topics" / "tutorial" / "first-rollout.md"
    marked = [block for block in documents.blocks(page) if block.mark in ("run", "output")]
    web2 = fleet.hosts["web2"]
    web2.ends = "rolled_back"
    for block in marked:
        if block.mark == "output":
            assert shape(typist.shown[-1], typist.named) == shape(block.text, NAMED)
            continue
        for command in block.commands:
            if "unquarantine" in command:
                # What was wrong there is mended. It still keeps the version in quarantine.
                web2.ends = "committed"
                assert web2.kept == [NEW]
            typist.type(command)
            if "safeupdate.plan" in command:
                typist.named = re.search(r"^Plan (\S+):", typist.shown[-1])[1]
                assert ran(fleet) == {OLD}, "a plan starts nothing"
            if "retry" in command:
                assert ran(fleet) == {NEW}
    assert ran(fleet) == {OLD}
    assert list(typist.store.quarantined()) == [NEW]


def shape(text, name):
    return documents.shape(text.replace(name, "NAME"))


def _without(told, *keys):
    said, good = told
    if isinstance(said, dict):
        said = {key: value for key, value in said.items() if key not in keys}
    return said, good
