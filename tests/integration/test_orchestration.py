"""Rollouts in orchestrations and by users who may, or may not; a real master, real channels."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
import salt.client
import salt.config
import salt.exceptions
import salt.loader
import salt.netapi
import salt.runner
import salt.template
import salt.utils.json
import salt.version

from saltext_safeupdate.master.store import Store
from tests.integration.conftest import MASTER, PackagedMaster
from tests.support.as_user import as_user
from tests.support.raw_minion import HonestMinion
from tests.support.waiting import wait_for
from tests.unit.fleet.world import OLD, Host

# One series is enough for the short form: what differs between them has tests of its own.
pytestmark = [] if str(salt.version.__version__).startswith("3008") else [pytest.mark.soak]

STATES = Path(__file__).parents[2] / "states"
NEW = str(salt.version.__version__)
SECRET = "a shared secret of the test"
MAY = ["safeupdate.status", "safeupdate.plan", "safeupdate.pause"]
CHIEF = [*MAY, "safeupdate.rollout", "safeupdate.resume", "safeupdate.drain", "safeupdate.undrain"]
HOWTO = Path(__file__).parents[2] / "docs" / "topics" / "howto" / "fleet.md"
QUICK = {
    "version": NEW,
    "canaries": 0,
    "soak": 0,
    "jitter": 0,
    "stage": False,
    "max_unavailable": 2,
    "waves": ["100%"],
}


class Updating(HonestMinion):
    """A minion that answers to rollouts as its simulated host does, and runs all else."""

    def __init__(self, master, minion_id, path):
        self.host = Host(minion_id, takes=0.5, version=OLD)
        super().__init__(master, minion_id, path)

    def heard(self, load):
        short = load["fun"].partition("safeupdate.")[2]
        if short == "update" and self._meant(load):
            # As the real one: it begins, and returns at once.
            self.host.take(self.host.number + 1, (NEW, ""), time.monotonic())
        if not self._meant(load) or short not in ("report", "request", "withdraw", "plan"):
            super().heard(load)
            return
        given = next((arg for arg in load["arg"] if isinstance(arg, dict)), {})
        self.host.live(time.monotonic())
        refused = ""
        if short == "request":
            goal = (given["version"], given["extension"])
            refused = self.host.take(given["number"], goal, time.monotonic())
        elif short == "withdraw":
            self.host.cancel(given["number"])
        if short == "plan":
            self.returns(load["jid"], load["fun"], {"findings": [], "steps": []})
            return
        told = vars(self.host.report(given.get("question", 0), refused)).copy()
        told.pop("minion")
        self.returns(load["jid"], load["fun"], told)


class Scene:
    def __init__(self, opts, path):
        self.opts = opts
        self.minions = {name: Updating(opts, name, path / name) for name in ("lb1", "web1", "web2")}

    def reset(self):
        for name, minion in self.minions.items():
            minion.host = Host(name, takes=0.5, version=OLD)
            minion.ran.clear()

    def run(self, fun, *args, **kwargs):
        """Run a runner function here, and return all that Salt says of it."""

        def call():
            client = salt.runner.RunnerClient(self.opts.copy())
            return client.cmd(fun, list(args), kwarg=kwargs, print_event=False, full_return=True)

        return as_user(call)

    def orchestrate(self, name, **pillar):
        """Run an orchestration; return the results of its states by name, in their order."""
        found = self.run("state.orchestrate", f"orch.{name}", pillar={"safeupdate": pillar})
        (states,) = found["return"]["data"].values()
        assert isinstance(states, dict), states
        rows = sorted(states.values(), key=lambda row: row["__run_num__"])
        return {row["__id__"]: row["result"] for row in rows}, rows

    def versions(self):
        return {name: minion.host.version for name, minion in self.minions.items()}

    def rollouts(self):
        return Store(self.opts).rollouts()


@pytest.fixture(scope="module")
def scene(salt_factories, tmp_path_factory):
    roots = tmp_path_factory.mktemp("orch") / "srv"
    shutil.copytree(STATES, roots)
    overrides = {
        "file_roots": {"base": [str(roots)]},
        "engines": [{"safeupdate_redeliver": {}}],
        "gather_job_timeout": 3,
        "worker_threads": 3,
        "external_auth": {
            "sharedsecret": {"ops": [{"@runner": MAY}], "chief": [{"@runner": CHIEF}]}
        },
        "sharedsecret": SECRET,
        **MASTER,
    }
    master = salt_factories.salt_master_daemon(
        "orch-master", factory_class=PackagedMaster, overrides=overrides
    )
    with master.started():
        made = Scene(master.config.copy(), tmp_path_factory.mktemp("minions"))
        wait_for(lambda: made.run("safeupdate.plan", "*", **QUICK)["success"], "all minions answer")
        yield made
        for minion in made.minions.values():
            minion.close()


@pytest.fixture
def fresh(scene):
    scene.reset()
    return scene


def test_an_update_by_pillar(fresh):
    results, rows = fresh.orchestrate("update", rollout={"target": "web*", **QUICK})
    assert results == {"master-is-new-enough": True, "rollout": True}, rows
    assert fresh.versions() == {"lb1": OLD, "web1": NEW, "web2": NEW}

    before = fresh.rollouts()
    again, rows = fresh.orchestrate("update", rollout={"target": "web*", **QUICK})
    assert again == results, rows
    assert rows[-1]["changes"]["return"]["why"] == f"nothing to do: runs {NEW} already (2)"
    assert fresh.rollouts() == before
    nobody, rows = fresh.orchestrate("update", rollout={"target": "nobody*", **QUICK})
    assert nobody["rollout"] is False, rows


def test_the_master_comes_first(fresh):
    before = fresh.rollouts()
    wanted = {"target": "web*", **QUICK, "version": "9999.1"}
    results, rows = fresh.orchestrate("update", rollout=wanted)
    assert results["master-is-new-enough"] is False
    assert "Update the master first" in str(rows[0])
    assert results.get("rollout", False) is False
    assert fresh.rollouts() == before


def test_a_canary_that_fails_ends_it(fresh):
    fresh.minions["web1"].host.ends = "rolled_back"
    before = len(fresh.rollouts())
    given = {"rollout": {"target": "*", **QUICK}, "canaries": "web1"}
    results, rows = fresh.orchestrate("canary", **given)
    assert [results[name] for name in ("canaries", "verify", "rest")] == [False] * 3, rows
    assert fresh.versions()["web2"] == OLD
    assert len(fresh.rollouts()) == before + 1
    last = fresh.rollouts()[-1]
    fresh.run("safeupdate.abort", last)
    wait_for(lambda: Store(fresh.opts).rollout(last).mode.final, "its end")


def test_canaries_then_a_check_then_the_rest(fresh):
    given = {"rollout": {"target": "*", **QUICK}, "canaries": "web1"}
    results, rows = fresh.orchestrate(
        "canary", **given, verify={"fun": "test.echo", "arg": ["fine"]}
    )
    assert set(results.values()) == {True}, rows
    assert list(results)[-3:] == ["canaries", "verify", "rest"]
    assert [run[1:] for run in fresh.minions["web1"].ran if run[1] == "test.echo"] == [
        ("test.echo", ["fine"])
    ]
    assert set(fresh.versions().values()) == {NEW}


def test_parts_leave_their_service_and_come_back(fresh):
    fresh.minions["web2"].host.ends = "rolled_back"
    given = {"rollout": QUICK, "balancer": "lb1", "out": "test.echo", "back": "test.arg"}
    parts = {"left": "web1", "right": "web2", "never": "web1"}
    results, rows = fresh.orchestrate("drain", **given, parts=parts)
    told = [(run[1], run[2]) for run in fresh.minions["lb1"].ran]
    assert told == [
        *(("test.echo", ["left"]), ("test.arg", ["left"])),
        *(("test.echo", ["right"]), ("test.arg", ["right"])),
    ], rows
    assert results["rollout-left"] is True
    assert results["rollout-right"] is False
    assert results["out-never"] is False
    last = fresh.rollouts()[-1]
    fresh.run("safeupdate.abort", last)
    wait_for(lambda: Store(fresh.opts).rollout(last).mode.final, "its end")


@pytest.mark.parametrize("heard", [True, False])
def test_a_part_that_may_be_out_comes_back(heard, fresh):
    """The balancer is away, or what it says is lost: nothing that was given up comes late."""
    balancer = fresh.minions["lb1"]
    given = {"rollout": QUICK, "balancer": "lb1", "out": "test.echo", "back": "test.arg"}
    balancer.away, balancer.slow = not heard, heard
    try:
        results, rows = fresh.orchestrate("drain", **given, parts={"left": "web1", "never": "web2"})
    finally:
        balancer.away = balancer.slow = False
    balancer.start_event()
    found = {name: results[f"{name}-left"] for name in ("out", "rollout", "back")}
    assert found == dict.fromkeys(found, False), rows
    report = fresh.run("safeupdate.redeliver", "lb1")["return"]
    assert report["published"] == {}, report
    told = [(run[1], run[2]) for run in balancer.ran if run[1] in ("test.echo", "test.arg")]
    assert told == ([("test.echo", ["left"]), ("test.arg", ["left"])] if heard else [])
    assert fresh.versions()["web1"] == OLD


@pytest.mark.parametrize("setting", ["background", "plan"])
def test_what_would_not_be_waited_for_is_refused_before_anything(setting, fresh):
    """A part went back into service, and the next one left it, although nothing was updated."""
    before = fresh.rollouts()
    given = {"balancer": "lb1", "out": "test.echo", "back": "test.arg", "parts": {"left": "web1"}}
    results, rows = fresh.orchestrate("drain", **given, rollout={**QUICK, setting: True})
    assert set(results.values()) == {False}, rows
    assert f"cannot have {setting}. Nothing was started" in str(rows[0])
    assert (fresh.rollouts(), fresh.minions["lb1"].ran) == (before, [])


def test_batch_mode_bounds_nothing_and_a_rollout_does(fresh):
    """The how-to says so: a batch is over when its jobs have returned, not when updates are."""
    hosts = [fresh.minions[name].host for name in ("web1", "web2")]
    for host in hosts:
        # Away longer than anything here takes.
        host.takes = 3600.0
    client = salt.client.LocalClient(mopts=fresh.opts.copy())
    batch = client.cmd_batch("web1,web2", "safeupdate.update", tgt_type="list", batch="1")
    assert sorted(name for each in batch for name in each if name in fresh.minions) == [
        *("web1", "web2")
    ]
    assert [host.busy for host in hosts] == [True, True], "-b 1, and both are away at once"

    fresh.reset()
    hosts = [fresh.minions[name].host for name in ("web1", "web2")]
    for host in hosts:
        host.takes = 3600.0
    wanted = {"target": "web*", **QUICK, "max_unavailable": 1, "background": True}
    name = fresh.run("safeupdate.rollout", **wanted)["return"]["rollout"]
    wait_for(lambda: any(host.busy for host in hosts), "the first one")
    asked = Store(fresh.opts).rollout(name).elapsed
    wait_for(lambda: Store(fresh.opts).rollout(name).elapsed > asked + 5, "looks at the second")
    assert sum(host.busy for host in hosts) == 1
    for host in hosts:
        host.takes = 0.0
    wait_for(lambda: Store(fresh.opts).rollout(name).mode.final, "its end")
    assert fresh.versions()["web1"] == fresh.versions()["web2"] == NEW


# -- who may do what -----------------------------------------------------------------------


def asked(scene, user, fun, *args, secret=SECRET, **kwargs):
    """Ask the master to run something, as a user who is not its own."""
    port = scene.opts["ret_port"]
    uri = {"master_uri": f"tcp://127.0.0.1:{port}", "master_ip": "127.0.0.1"}
    client = salt.runner.RunnerClient(scene.opts | uri)
    low = {"fun": fun, "arg": list(args), "kwarg": kwargs, "eauth": "sharedsecret"}
    return client.cmd_sync({**low, "username": user, "password": secret}, timeout=120)


@pytest.mark.parametrize(
    ("user", "fun", "secret"),
    [
        ("ops", "safeupdate.rollout", SECRET),
        ("ops", "safeupdate.abort", SECRET),
        ("ops", "safeupdate.report", SECRET),
        ("ops", "state.orchestrate", SECRET),
        ("ops", "safeupdate.status", "guessed"),
        ("nobody", "safeupdate.status", SECRET),
    ],
)
def test_who_may_not_is_refused_and_nothing_is_started(fresh, user, fun, secret):
    before, heard = fresh.rollouts(), len(fresh.minions["web1"].published)
    with pytest.raises(salt.exceptions.SaltException, match=r"uthenticat|uthoriz"):
        asked(fresh, user, fun, "*", secret=secret, **QUICK)
    assert fresh.rollouts() == before
    assert "safeupdate.request" not in [
        load["fun"] for load in fresh.minions["web1"].published[heard:]
    ]


def test_who_may_look_sees(fresh):
    answer = asked(fresh, "ops", "safeupdate.status")
    assert set(fresh.rollouts()) == set(answer)


def by_api(scene, user, **low):
    """Ask as salt-api does, which has the request of a user."""
    port = scene.opts["ret_port"]
    at = {"master_uri": f"tcp://127.0.0.1:{port}", "master_ip": "127.0.0.1"}
    client = salt.netapi.NetapiClient({**scene.opts, **at, "netapi_enable_clients": ["runner"]})
    return client.run({"eauth": "sharedsecret", "username": user, "password": SECRET, **low})


def test_by_salt_api_a_rollout_begins_pauses_and_resumes_in_the_name_of_a_user(fresh):
    (shown,) = re.findall(r"```json\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    low = json.loads(shown)
    low["kwarg"] |= QUICK
    name = by_api(fresh, "chief", **low)["rollout"]

    def order(fun, user="chief"):
        return by_api(
            fresh, user, client="runner", fun=f"safeupdate.{fun}", kwarg={"rollout": name}
        )

    order("pause", "ops")
    with pytest.raises(salt.exceptions.SaltException, match="uthenticat"):
        order("resume", "ops")
    order("resume")
    wait_for(lambda: order("status")["mode"] == "finished", "its end")
    assert fresh.versions() == {"lb1": OLD, "web1": NEW, "web2": NEW}
    lines = [line for _, line in order("status")["history"]]
    told = [line.split(" on ")[0] for line in lines if " on " in line]
    assert told == ["began by chief", "paused by ops", "resumed by chief"], lines
    assert order("status")["by"].startswith("chief on ")


def test_by_salt_api_a_drain_takes_its_timeout_as_the_how_to_says(fresh):
    given = {"target": "web1", "timeout": 600}
    found = by_api(fresh, "chief", client="runner", fun="safeupdate.drain", kwarg=given)
    assert found["until"] <= time.time() + 600
    fun = "safeupdate.undrain"
    assert by_api(fresh, "chief", client="runner", fun=fun, kwarg={"target": "*"}) == ["web1"]


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("", True),
        ("3008", True),
        ("3008.3", True),
        ("1:3008.3-1", True),
        ("3007.15+more", True),
        ("3008.4", False),
        ("3009", False),
        ("1:3009.0-1", False),
        ("newest", False),
    ],
)
def test_which_version_the_master_is_new_enough_for(version, enough, tmp_path):
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "root_dir": str(tmp_path), "cachedir": str(tmp_path)}
    functions = {
        "pillar.get": lambda key, default: version,
        "saltutil.runner": lambda name: "3008.3",
    }
    (told,) = rendered(opts, functions, "master.sls").values()
    assert list(told) == [f"test.{'succeed' if enough else 'fail'}_without_changes"]


@pytest.mark.parametrize("parts", [{}, ["web1"], None])
def test_parts_that_are_not_named_are_no_success(parts, tmp_path):
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "root_dir": str(tmp_path), "cachedir": str(tmp_path)}
    functions = {"pillar.get": {"safeupdate:parts": parts}.get}
    high = rendered(opts, functions, "drain.sls")
    assert list(high) == ["include", "parts-are-named"]
    assert next(iter(high["parts-are-named"])) == "test.fail_without_changes"


def rendered(opts, functions, *path, **given):
    return salt.template.compile_template(
        str(STATES.joinpath("orch", *path)),
        salt.loader.render(opts, functions),
        "jinja|yaml",
        [],
        [],
        **given,
    )


# -- reactions to events -------------------------------------------------------------------

EVIL = 'it\'s {{ opts }} "over"\n- runner.cmd.run: {a: b}\n# \x1b[2J'


@pytest.mark.parametrize("name", ["chat", "mail", "ticket"])
def test_reactions_say_what_an_event_says_and_nothing_else(name, tmp_path):
    """What minions have said is in an event, too: it stays a text in the reaction."""
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    opts.update(
        root_dir=str(tmp_path),
        cachedir=str(tmp_path),
        safeupdate_chat="https://chat.example/hook",
        safeupdate_mail={"minion": "mx", "to": "ops@example", "from": "s@example", "server": "m"},
        safeupdate_tickets={"url": "https://tickets.example/", "headers": str(tmp_path / "h")},
    )
    event = {"data": {"rollout": "r1", "why": EVIL}, "tag": "salt/run/safeupdate/r1/stopped"}
    high = rendered(opts, {}, "react", f"{name}.sls", **event)
    assert list(high) == [name]
    ((_, body),) = high[name].items()
    given = {key: value for part in body[-1]["args"] for key, value in part.items()}
    told = given.get("data") or given["message"]
    if name == "mail":
        assert told == EVIL
        assert given["subject"] == "Rollout r1: stopped"
    else:
        assert EVIL in " ".join(salt.utils.json.loads(told).values())
    if name == "ticket":
        (tmp_path / "h").write_text("Authorization: Bearer secret")
        high = rendered(opts, {}, "react", f"{name}.sls", **event)
        assert "secret" not in str(high), "arguments are in events and in the job cache"
        assert given["header_file"] == str(tmp_path / "h")
