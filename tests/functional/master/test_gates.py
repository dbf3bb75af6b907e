"""Gates of the administrator: runner functions that the master's configuration names."""

import json
import os
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError
from saltext_safeupdate.core.host.command import Result, run
from saltext_safeupdate.fleet.actions import Check
from saltext_safeupdate.fleet.rollout import Mode
from saltext_safeupdate.master import gate, rollouts
from saltext_safeupdate.master.gatekeeper import Gatekeeper
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.support.unread_bus import unread_bus
from tests.support.waiting import LONGEST

NAMES = [f"m{number}" for number in range(4)]


@pytest.fixture
def fleet():
    return Fleet(NAMES)


@pytest.fixture
def master(tmp_path, fleet):
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    made.opts[gate.OPTION] = {"quiet": "quiet.now"}
    made.gates = {"quiet": lambda: (True, "")}
    yield made
    made.close()


def test_a_rollout_waits_for_its_gate(master, fleet):
    says = [(False, "3 alarms")]
    master.gates["quiet"] = lambda: says[-1]
    name = master.begin(master.plan(gate_before=["quiet"]))
    for _ in range(200):
        master.tick()
    found = master.store().rollout(name)
    assert found.why == "waits before wave 1: the gate quiet says no: 3 alarms"
    assert not any(host.taken for host in fleet.hosts.values())
    assert 3 <= len(master.asked_gates) <= 5, "once a minute"
    says.append((True, ""))
    master.until(name, "finished")
    # A new engine asks none again that has said yes.
    asked = len(master.asked_gates)
    assert asked == 5 or asked == 6


def test_a_gate_that_the_configuration_does_not_have_is_refused_before_anything_starts(master):
    with pytest.raises(InputError, match=r"no gate 'loud' .* It has quiet\. Nothing was started"):
        master.plan(gate_before=["quiet"], gate_after=["loud"])
    assert master.published == []


def test_a_gate_that_is_gone_meanwhile_says_no(master, fleet):
    master.gates["quiet"] = lambda: (False, "an alarm")
    name = master.begin(master.plan(gate_before=["quiet"], gate_timeout=90))
    master.opts[gate.OPTION] = {}
    found = master.until(name, "stopped")
    assert "no gate 'quiet'" in found.why
    assert not any(host.taken for host in fleet.hosts.values())


def test_a_pause_of_the_rollout_itself_waits_for_a_person(master, fleet):
    name = master.begin(master.plan(pause_after="canaries"))
    found = master.until(name, "paused")
    assert [host.name for host in fleet.hosts.values() if host.taken] == ["m0"]
    assert "'resume' continues" in found.why
    master.order(rollouts.RESUME, name, by="jo")
    assert master.until(name, "finished").mode is Mode.FINISHED


@pytest.mark.parametrize(
    ("returned", "yes", "why"),
    [
        (True, True, ""),
        ({"result": True, "comment": "quiet"}, True, "quiet"),
        ({"retcode": 0, "data": {}, "outputter": "highstate"}, True, ""),
        (False, False, "False"),
        (None, False, "None"),
        ("yes", False, "yes"),
        (1, False, "1"),
        ({}, False, "it has returned None"),
        ({"status": 200, "body": "{}"}, False, "it has returned None"),
        ({"error": "no route"}, False, "no route"),
        ({"result": None, "retcode": 0}, False, ""),
        ({"retcode": 1}, False, "it has returned 1"),
        ({"retcode": False}, False, "it has returned False"),
        ("a\x1b[2J\nb", False, "a\\x1b[2J b"),
    ],
)
def test_only_a_clear_yes_is_one(returned, yes, why):
    assert gate.said(returned) == (yes, why)


@pytest.mark.parametrize(
    "told",
    [
        *(5, [], {"arg": []}, {"fun": 5}, {"fun": "a.b", "arg": "x"}, {"fun": "a.b", "kwarg": []}),
        *({"fun": "a.b", "user": "x"}, {"fun": "a.b", "timeout": "long"}),
    ],
)
def test_a_gate_that_is_not_understood_is_none(told):
    with pytest.raises(InputError):
        gate.named({gate.OPTION: {"a": told}}, "a")


RUNNER = """
import os

def now(said=True, fails=False):
    print("noise")
    os.system("echo more noise")
    if fails:
        raise RuntimeError("monitoring is away")
    return said
"""


@pytest.fixture
def config(tmp_path):
    """Return a function that writes the configuration of a master with some gates."""
    runners = tmp_path / "runners"
    runners.mkdir()
    (runners / "quiet.py").write_text(RUNNER)
    (tmp_path / "var" / "cache" / "salt" / "master" / "proc").mkdir(parents=True)

    def write(gates):
        options = {
            "root_dir": str(tmp_path),
            "sock_dir": bus,
            "runner_dirs": [str(runners)],
            gate.OPTION: gates,
            "job_cache": False,
        }
        (tmp_path / "master").write_text(json.dumps(options))
        return tmp_path / "master"

    with unread_bus(tmp_path) as bus:
        yield write


@pytest.mark.parametrize(
    ("kwarg", "answer"),
    [
        ({}, {"yes": True, "why": ""}),
        ({"said": False}, {"yes": False, "why": "False"}),
        ({"said": {"result": False, "comment": "loud"}}, {"yes": False, "why": "loud"}),
        ({"fails": True}, {"yes": False, "why": "monitoring is away"}),
    ],
)
def test_the_program_calls_the_runner_function_and_says_what_it_returns(config, kwarg, answer):
    told = asked(config({"quiet": {"fun": "quiet.now", "kwarg": kwarg}}), "quiet")
    assert told["yes"] is answer["yes"]
    assert answer["why"] in told["why"]


@pytest.mark.parametrize(("name", "why"), [("gone", "quiet.gone"), ("other", "no gate 'other'")])
def test_the_program_says_no_if_there_is_no_such_function_or_gate(config, name, why):
    told = asked(config({"quiet": "quiet.now", "gone": "quiet.gone"}), name)
    assert (told["yes"], why in told["why"]) == (False, True), told


def asked(config, name):
    """Run the program, as the engine does, and return what it answers."""
    argv = [sys.executable, "-m", gate.__name__, str(config), name]
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return json.loads(run(argv, timeout=LONGEST, env=env).stdout)


class Held:
    """Work that is done when somebody says so."""

    def __init__(self):
        self.work = []

    def __call__(self, work):
        self.work.append(work)


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "its answer makes no sense"),
        ("[]", "its answer makes no sense"),
        ('{"yes": 1, "why": ""}', ""),
        (CommandError(["python"], "did not end within 360 s"), "did not end within 360 s"),
    ],
)
def test_what_the_program_does_not_say_is_a_no(master, printed, why):
    def program(argv, *, timeout, **_):
        assert (argv[1:4], timeout) == (("-I", "-m", gate.__name__), 360.0)
        if isinstance(printed, Exception):
            raise printed
        return Result(argv=argv, returncode=0, stdout=printed, stderr="")

    said = []
    keeper = Gatekeeper(master.opts, run=program, beside=lambda work: work())
    keeper.ask("r1", Check("quiet", 7, "before", 1), said.append)
    (found,) = said
    assert (found.opens, found.number, why in found.why) == (False, 7, True)


def test_what_a_gate_says_is_never_older_than_its_question(master):
    """It began before that was asked, so it may not know of what has made somebody ask."""
    held, said, began = Held(), [], []

    def program(argv, **_):
        began.append(argv)
        if len(began) == 1:
            for number in (2, 3):
                keeper.ask("r1", Check("quiet", number, "before", 1), said.append)
        yes = "true" if len(began) == 1 else "false"
        return Result(argv=argv, returncode=0, stdout=f'{{"yes": {yes}, "why": ""}}', stderr="")

    keeper = Gatekeeper(master.opts, run=program, beside=held)
    keeper.ask("r1", Check("quiet", 1, "before", 1), said.append)
    for work in held.work:
        work()
    assert [(each.number, each.opens) for each in said] == [(1, True), (3, False)]
    assert len(began) == 2


def test_a_gate_that_takes_long_is_asked_once_at_a_time(master):
    held, said = Held(), []
    keeper = Gatekeeper(
        master.opts,
        run=lambda argv, **_: Result(
            argv=argv, returncode=0, stdout='{"yes": true, "why": ""}', stderr=""
        ),
        beside=held,
    )
    for number in (1, 2):
        keeper.ask("r1", Check("quiet", number, "before", 1), said.append)
    keeper.ask("r2", Check("quiet", 1, "before", 1), said.append)
    assert len(held.work) == 2, "one for each rollout"
    for work in held.work:
        work()
    assert [(each.number, each.opens) for each in said] == [(2, True), (1, True)]
    keeper.ask("r1", Check("quiet", 3, "after", 1), said.append)
    assert len(held.work) == 3
