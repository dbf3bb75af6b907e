"""
Two hundred minions that speak the real protocol, against one real master.

A minion is a key, Salt's own channels and a simulated host (``tests/support/swarm.py``).
"""

import random

import pytest
import salt.client
import salt.runner
import salt.version

from devtools import venvs
from saltext_safeupdate.fleet.rollout import Mode, Step
from saltext_safeupdate.master import questions
from saltext_safeupdate.master.account import Account, path_of
from saltext_safeupdate.master.store import Store
from tests.integration.conftest import MASTER, PackagedMaster
from tests.support.as_user import as_user
from tests.support.masters import kill
from tests.support.swarm import Machine, Swarm, names
from tests.support.waiting import wait_for

COUNT = 200
# One series in every run, the others in the soak: two hundred sign-ins take their time.
pytestmark = [] if salt.version.__version__ == venvs.NEWEST else [pytest.mark.soak]


@pytest.fixture(scope="module")
def master(salt_factories):
    daemon = salt_factories.salt_master_daemon(
        "queen",
        factory_class=PackagedMaster,
        overrides={
            "engines": [{"safeupdate_redeliver": {"window": 600}}],
            "auto_accept": True,
            "worker_threads": 3,
            **MASTER,
        },
    )
    with daemon.started():
        yield daemon


@pytest.fixture(scope="module")
def swarm(master, tmp_path_factory):
    hosts = [Machine(name, extension=f"1.{name}") for name in names(COUNT)]
    with Swarm(master.config, hosts, tmp_path_factory.mktemp("swarm")) as made:
        made.wait_until_up()
        yield made


@pytest.fixture
def publish(master):
    """Publish a job as an administrator does; return its JID."""
    with salt.client.LocalClient(mopts=master.config.copy()) as client:
        yield lambda *args, **more: client.pub(*args, **more)["jid"]


def test_all_are_in_the_account_hear_it_and_run_it(master, swarm, publish):
    jid = publish("*", "test.ping")
    (one,) = (each for each in Account(path_of(master.config)).since(0) if each.jid == jid)
    assert one.minions == set(swarm.hosts)
    wait_for(lambda: len(swarm.ran(jid)) == COUNT, f"all run it: {len(swarm.ran(jid))}")
    assert swarm.most_heard(jid) == 1


@pytest.mark.parametrize(
    ("target", "kind", "meant"),
    [
        ("m000*", "glob", range(10)),
        (["m0007", "m0150", "m9999"], "list", [7, 150]),
        ("m01[0-4]\\d", "pcre", range(100, 150)),
        ("L@m0001,m0002,m0003 and not m0002", "compound", [1, 3]),
    ],
)
def test_only_those_run_it_that_are_meant(swarm, publish, target, kind, meant):
    wanted = {names(COUNT)[number] for number in meant}
    jid = publish(target, "test.echo", ["here"], tgt_type=kind)
    last = publish("*", "test.ping")
    wait_for(lambda: len(swarm.ran(last)) == COUNT, "all have heard what came later")
    assert swarm.ran(jid) == wanted


def test_those_that_were_restarted_get_it_again_and_nobody_twice(master, swarm, publish):
    """Of those that were there, some have lost their return: they say that they have run it."""
    away, mute = names(COUNT)[:40], names(COUNT)[40:60]
    swarm.away(away, gone=True)
    for name in mute:
        swarm.hosts[name].mute = True
    jid = publish("*", "test.echo", ["once"])
    wait_for(lambda: len(swarm.ran(jid)) == COUNT - len(away), "those that are there run it")
    for name in mute:
        swarm.hosts[name].mute = False
    swarm.away(away, gone=False)
    wait_for(lambda: len(swarm.ran(jid)) == COUNT, "the others run it as well")
    # The next query is about those as well that have run it and could not say so.
    report = runner(master, "redeliver", "*")
    assert jid not in report["published"]
    assert {report["accepted"][name][jid] for name in swarm.hosts} == {"delivered"}
    assert swarm.most_heard(jid) == 1


def test_each_answers_for_itself_and_who_is_away_is_missing(master, swarm):
    """Answers come late, in any order, and some of them twice."""
    away = names(COUNT)[100:110]
    swarm.away(away, gone=True)
    for name in names(COUNT)[::3]:
        swarm.hosts[name].late, swarm.hosts[name].twice = 0.5, 1.0
    answers = questions.ask(master.config, swarm.hosts, "safeupdate.report", {"question": 7})
    swarm.away(away, gone=False)
    assert set(swarm.hosts) - set(answers) == set(away)
    assert {name: answers[name]["extension"] for name in answers} == {
        name: f"1.{name}" for name in answers
    }
    assert {answer["question"] for answer in answers.values()} == {7}


def runner(master, fun, *args, **kwargs):
    def call():
        client = salt.runner.RunnerClient(master.config.copy())
        return client.cmd(f"safeupdate.{fun}", list(args), kwarg=kwargs, print_event=False)

    return as_user(call)


# -- a whole rollout -------------------------------------------------------------------------

OLD, NEW = "3007.15", "3008.3"
AT_ONCE = 20
WANTED = {
    "version": NEW,
    "canaries": 2,
    "waves": ["25%", "100%"],
    "max_unavailable": AT_ONCE,
    "max_failed": 10,
    "sample": "60%",
    "soak": 0,
    "jitter": 2,
    # Some lose one message in twenty, and the machine may be slow.
    "minion_timeout": 240,
    "silence_timeout": 60,
    "late_timeout": 3600,
}
# What befalls some of them; the canaries are spared.
ENDS = {"m0005": "hangs", "m0030": "rolled_back", "m0100": "failed", "m0150": "rolled_back"}
LIARS = ("m0020", "m0120")
AWAY = names(COUNT)[40:50]
VERDICTS = {
    "committed": Step.DONE,
    "rolled_back": Step.ROLLED_BACK,
    "failed": Step.FAILED,
    "hangs": Step.TIMED_OUT,
}


def begin(swarm, seed):
    """Give each host its fate, by that seed."""
    dice = random.Random(seed)
    for name, host in swarm.hosts.items():
        host.version, host.phase, host.number, host.taken = OLD, "idle", 0, []
        host.takes, host.waits, host.restarts = dice.uniform(2, 6), 0.5, dice.uniform(0, 1)
        host.late, host.twice = dice.choice((0, 0, 1.0)), dice.choice((0, 0.5))
        host.loses = 0.0
        host.ends, host.lies = ENDS.get(name, "committed"), name in LIARS
    swarm.most_busy = 0


@pytest.fixture
def first_are_canaries(monkeypatch):
    monkeypatch.setattr(random.SystemRandom, "sample", lambda _, names, count: names[:count])


@pytest.mark.soak
@pytest.mark.usefixtures("first_are_canaries")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rollout_takes_down_no_more_than_it_may_and_tells_the_truth(master, swarm, publish, seed):
    """The master is killed in its midst. Its keys are new then; what it knows is stored."""
    begin(swarm, seed)
    swarm.away(AWAY, gone=True)
    plan = runner(master, "plan", "*", **WANTED)
    # One that lies may say that it runs the version already.
    assert set(plan["left_out"]) <= set(LIARS), plan["left_out"]
    name = runner(master, "rollout", plan=plan["id"], background=True)["rollout"]
    hosts = swarm.hosts
    for host in list(hosts.values())[2::5]:
        host.loses = 0.05
    missed = publish("*", "test.echo", ["missed"])
    wait_for(lambda: sum(h.version == NEW for h in hosts.values()) > 40, "forty are done")
    kill(master)
    swarm.away(AWAY, gone=False)
    master.start()
    wait_for(lambda: stored(master, name).mode.final, "the rollout is over", 3600)

    found = stored(master, name)
    honest = {name: host for name, host in hosts.items() if not host.lies}
    assert found.mode is Mode.FINISHED, found.history
    assert found.plan.unavailable == AT_ONCE
    assert AT_ONCE / 2 < swarm.most_busy <= AT_ONCE
    assert {name: found.minions[name].step for name in honest} == {
        name: VERDICTS[host.ends] for name, host in honest.items()
    }
    assert {name: host.version for name, host in honest.items()} == {
        name: NEW if host.ends == "committed" else OLD for name, host in honest.items()
    }
    assert not [host.taken for host in honest.values() if len(host.taken) != 1]
    wait_for(lambda: set(AWAY) <= swarm.ran(missed), "those in a restart run what they missed")


def stored(master, name):
    return Store(master.config).rollout(name)
