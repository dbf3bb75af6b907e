"""
What a hostile minion can make a real master publish, or keep from others: nothing.

The master's zone is not UTC. Every minion here is a key and the protocol, so what a minion of
Salt would never send can be sent, too.
"""

import itertools
import json
import os
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import salt.client
import salt.runner
import salt.utils.jid
import salt.utils.minions
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from salt.exceptions import SaltException

from devtools import as_packaged
from saltext_safeupdate.master import questions, stocktaking, targets
from saltext_safeupdate.master.store import Store
from tests.integration.conftest import MASTER, PackagedMaster
from tests.support.as_user import as_user
from tests.support.raw_minion import QUERY, HonestMinion, RawMinion, without_a_key
from tests.support.waiting import wait_for
from tests.unit.fleet.world import Host, World

EVIL = "touch /evil"
PEERS = {"mallory": ["test.ping"]}
# Functions of the runner, each with what is worth the most to somebody with that right only. What
# is in {} is a place where the user of the master may write.
REACH = {
    "report": [
        {"rollout": "r1", "path": "{}/aim.html"},
        {"rollout": "r1", "path": "{}/known", "force": True},
        {"rollout": "r1", "public": True},
        {"rollout": "r1", "path": "{}/aim.html", "skip_grains": False, "async": False},
        {"rollout": "r1", "path": "{}/aim.html", "__pub_user": "root", "__opts__": {"async": 1}},
    ],
    "metrics": [{"path": "{}/aim.prom"}, {"path": ["{}/aim.prom"]}],
    "avail": [{"source": "{}"}, {"source": "salt://builds", "keyring": "{}/known"}],
    "setup": [{}, {"config_file": "{}/aim.conf"}, {"test": True}],
    "onboard": [{"target": "*", "wheel": "salt://e.whl"}, {"target": "*", "sls": "evil"}],
}
# Functions of a minion that take a source; whoever may call them names each of these.
WITH_SOURCE = [f"safeupdate.{name}" for name in ("avail", "plan", "stage", "update", "request")]
SOURCES = ("{}", "index", "salt://evil", "file://salt://builds", 5)
# A user of the host of the master.
PUBLISHER = "daemon"
SECRET = "a shared secret of the test"
USERS = {f"only-{name}": [{"@runner": [f"safeupdate.{name}"]}] for name in REACH}
PEER_RUN = {"mallory": [f"safeupdate.{name}" for name in REACH]}
ONLY_SHELL = "only for 'salt-run' in a shell of the master"
REPORT = "safeupdate.report"


def is_peers(load):
    """Tell whether the hostile minion has published what it may."""
    return load.get("id") == "mallory" and load["fun"] in PEERS["mallory"]


class Stage:
    """A master, a minion that lies and minions that do not."""

    def __init__(self, master, path):
        self.master, self.path = master, path
        self.opts = master.config.copy()
        self.published = {}
        self.mallory = RawMinion(self.opts, "mallory", path / "mallory")
        self.victim = HonestMinion(self.opts, "victim", path / "victim")
        self.plain = HonestMinion(self.opts, "plain", path / "plain", ledger=False)
        self.minions = (self.mallory, self.victim, self.plain)
        self.client = salt.client.LocalClient(mopts=self.opts.copy())
        for minion in (self.victim, self.plain):
            wait_for(lambda m=minion: self.pings(m), f"{minion.id} hears")

    def pings(self, minion):
        jid = self.publish(minion, "test.ping")
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not self.ran(minion, jid):
            time.sleep(0.05)
        return self.ran(minion, jid)

    def publish(self, minion, fun="test.echo", *args):
        """Publish as the administrator does; return the JID."""
        jid = self.client.pub(minion.id, fun, list(args))["jid"]
        self.published[jid] = (fun, list(args))
        return jid

    @staticmethod
    def ran(minion, jid):
        """Return how often a minion ran a job."""
        return [run[0] for run in minion.ran].count(jid)

    def missed(self, *args):
        """Publish a job that the victim misses; return its JID."""
        self.victim.away = True
        jid = self.publish(self.victim, "test.echo", *args)
        wait_for(lambda: self._heard(jid), "the job is published")
        self.victim.away = False
        return jid

    def _heard(self, jid):
        return any(load["jid"] == jid for load in self.victim.published)

    def redeliver(self, target="*"):
        def call():
            runner = salt.runner.RunnerClient(self.opts.copy())
            return runner.cmd("safeupdate.redeliver", [target], print_event=False)

        return as_user(call)

    def still_redelivers(self):
        """A real job that was missed is published again: the engine lives, and has seen all."""
        jid = self.missed("missed")
        report = self.redeliver("victim")
        wait_for(lambda: self.ran(self.victim, jid), f"the job is published again: {report}")
        return jid

    def foreign(self):
        """Return what was published, other than by the administrator, queries and PEERS."""
        return [
            load
            for load in self.mallory.published[:]
            if self.published.get(load["jid"]) != (load["fun"], load["arg"])
            and load["fun"] != QUERY
            and not is_peers(load)
        ]

    def twice(self):
        counts = [(m.id, jid, self.ran(m, jid)) for m in self.minions[1:] for jid in self.published]
        return [found for found in counts if found[2] > 1]

    def assert_unharmed(self):
        self.still_redelivers()
        assert self.foreign() == []
        assert self.twice() == []

    def close(self):
        self.client.destroy()
        for minion in self.minions:
            minion.close()


@pytest.fixture(scope="module")
def stage(salt_factories, tmp_path_factory):
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    daemon = salt_factories.salt_master_daemon(
        "attacked",
        factory_class=PackagedMaster,
        overrides={
            "engines": [{"safeupdate_redeliver": {"window": 600}}],
            "peer": PEERS,
            "peer_run": PEER_RUN,
            "external_auth": {"sharedsecret": USERS},
            "publisher_acl": {PUBLISHER: [{"guest": WITH_SOURCE}]},
            "sharedsecret": SECRET,
            # When a key is deleted. The minions here do not sign in again.
            "rotate_aes_key": False,
            "auto_accept": True,
            "worker_threads": 3,
            **MASTER,
        },
    )
    try:
        with daemon.started():
            made = Stage(daemon, tmp_path_factory.mktemp("minions"))
            yield made
            made.close()
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before


def fresh_jid():
    return salt.utils.jid.gen_jid({})


def job(jid, target, **more):
    """What a job cache holds of a job, as the hostile minion would like it to be."""
    return {
        **{"jid": jid, "fun": "cmd.run", "arg": [EVIL], "tgt": target, "tgt_type": "glob"},
        **{"ret": "", "user": "root", "minions": [target], "Minions": [target], **more},
    }


def forged_jobs(target):
    """Yield messages that tell of a job that nobody has published."""
    new = fresh_jid()
    poisoned = {"cmd": "_return", "return": True, "fun_args": [EVIL], "success": True}
    yield {**job(fresh_jid(), target), **poisoned}
    yield {**job(fresh_jid(), [target], tgt_type="list"), **poisoned}
    yield {**job("req", target), **poisoned}
    event = {"cmd": "_minion_event", "pretag": None}
    for tag in (f"salt/job/{new}/new", f"salt/job/{new}/publish", f"new_job/{new}", new):
        yield {**event, "tag": tag, "data": job(new, target), **job(new, target)}
        yield {**event, "events": [{"tag": tag, "data": job(new, target)}]}
        yield {**event, "events": [{"tag": tag, "data": job(new, target)}], "pretag": "salt"}
    yield {**event, "events": [{"tag": "any", "data": {"jid": new, "minions": [target]}}]}
    load = job(new, target)
    yield {"cmd": "_syndic_return", "jid": new, "return": {target: {"return": 1}}, "load": load}
    one = {"jid": new, "id": "mallory", "return": {}, "load": load}
    yield {"cmd": "_syndic_return", "load": [one]}


# Commands that only the master's users may send, and what else a channel may be given.
COMMANDS = (
    {"cmd": "publish", "fun": "cmd.run", "arg": [EVIL], "tgt": "*", "tgt_type": "glob"},
    {"cmd": "minion_pub", "fun": "cmd.run", "arg": [EVIL], "tgt": "victim", "ret": "", "tmo": 1},
    {"cmd": "minion_publish", "fun": "cmd.run", "arg": [EVIL], "tgt": "victim", "ret": ""},
    {"cmd": "minion_runner", "fun": "safeupdate.redeliver", "arg": []},
    {"cmd": "_mine", "data": {"publish": [EVIL], 5: {}}, "clear": True},
    {"cmd": "_file_recv", "path": ["..", "account.db"], "loc": 0, "data": EVIL, "size": 9},
    {"cmd": "_file_recv", "path": ["safeupdate", "account.db"], "loc": 0, "data": b"\0" * 99},
    {"cmd": "run_func", "func": "_return", "load": {"id": "victim"}},
    {"cmd": "_prep_pub"},
    {"cmd": ["_return"]},
    {},
)


def shapes(jid):
    """Yield data of every shape under the tags that an engine may look at."""
    values = (None, 5, "text", [], [1], {}, {"id": {}}, {"id": 5, "minions": 5}, {"minions": {}})
    odd = ({"id": "victim", "jid": {}, "fun": {}, "return": []}, {"minions": [None, 5, {}]})
    tags = ("new", "ret/victim", "ret", "start")
    for tag, data in itertools.product(tags, (*values, *odd)):
        yield {"cmd": "_minion_event", "tag": f"salt/job/{jid}/{tag}", "data": data}
    for data in (*values, *odd):
        yield {"cmd": "_minion_event", "tag": "salt/minion/victim/start", "data": data}
        yield {"cmd": "_minion_event", "tag": data, "data": data}
        yield {"cmd": "_minion_event", "events": data}
        yield {"cmd": "_minion_event", "events": [{"tag": "minion_start", "data": data}, data]}
        yield {"cmd": "_return", "jid": data, "fun": data, "return": data}
        yield {"cmd": "_return", "jid": jid, "fun": QUERY, "return": data, "success": data}
        yield {"cmd": "_syndic_return", "load": data}


def test_no_message_of_a_minion_is_published(stage):
    for load in (*forged_jobs("victim"), *forged_jobs("*"), *COMMANDS):
        stage.mallory.lie(load)
    stage.mallory.start_event()
    stage.assert_unharmed()


def test_peer_publishing_keeps_to_what_the_master_allows_and_is_not_redelivered(stage):
    """What a minion may publish is not in the account: minions could fill it."""
    stage.victim.away = True
    stage.mallory.lie(
        {"cmd": "minion_pub", "fun": "test.ping", "arg": [], "tgt": "victim", "ret": "", "tmo": 1}
    )
    wait_for(lambda: any(map(is_peers, stage.mallory.published)), "the job")
    stage.victim.away = False
    stage.assert_unharmed()
    for load in filter(is_peers, stage.mallory.published):
        assert stage.ran(stage.victim, load["jid"]) == 0


def test_data_of_any_shape_leaves_the_engine_alive(stage):
    for load in shapes(fresh_jid()):
        stage.mallory.lie(load)
    stage.assert_unharmed()


def test_nobody_else_returns_a_job_for_a_minion_that_has_missed_it(stage):
    """Not by events, not as a syndic, and not in the name of a resource."""
    jid = stage.missed("mine")
    value = {"return": True, "retcode": 0, "success": True, "fun": "test.echo", "fun_args": []}
    ret = {"jid": jid, "id": "victim", **value}
    for tag in (f"salt/job/{jid}/ret/victim", jid):
        stage.mallory.event(tag, ret, **{**ret, "id": "mallory"})
        stage.mallory.lie({"cmd": "_minion_event", "events": [{"tag": tag, "data": ret}]})
    stage.mallory.lie({"cmd": "_syndic_return", "jid": jid, "return": {"victim": value}})
    stage.mallory.lie({"cmd": "_syndic_return", "load": [{**ret, "return": {"victim": value}}]})
    stage.mallory.lie({"cmd": "_return", "resource_id": "victim", **ret})
    stage.mallory.lie({"cmd": "_return", **ret, "fun": QUERY, "return": {jid: "delivered"}})
    stage.redeliver("victim")
    wait_for(lambda: stage.ran(stage.victim, jid), "the job that the victim has missed")
    stage.assert_unharmed()


def test_somebody_without_a_key_is_not_believed(stage):
    """Not by Salt either: the job cache has no return of them."""
    jid = stage.missed("without a key")
    said = {"return": "forged", "success": True, "retcode": 0, "fun_args": []}
    for load in (
        {"cmd": "_return", "id": "victim", "jid": jid, "fun": "test.echo", **said},
        {"cmd": "_return", "id": "victim", "jid": jid, "fun": QUERY, "return": {jid: "delivered"}},
        {"cmd": "_syndic_return", "id": "victim", "jid": jid, "return": {"victim": said}},
        {"cmd": "_minion_event", "id": "victim", "tag": "forged", "data": said},
    ):
        assert without_a_key(stage.opts, load) is not None, "it was dealt with"
    assert stage.client.get_cache_returns(jid) == {}
    stage.redeliver("victim")
    wait_for(lambda: stage.ran(stage.victim, jid), "the job that the victim has missed")
    wait_for(lambda: stage.client.get_cache_returns(jid), "its own return")
    assert stage.client.get_cache_returns(jid)["victim"]["ret"] is True
    stage.assert_unharmed()


def test_a_minion_that_answers_with_an_error_is_asked_again(stage):
    """It has a ledger, so what it has missed may be published again."""
    jid = stage.missed("in spite of an error")
    stage.victim.failing = 1
    stage.victim.start_event()
    wait_for(lambda: stage.victim.failing == 0, "the first query")
    wait_for(lambda: stage.ran(stage.victim, jid), "the job that it has missed")


def test_nobody_else_answers_a_query_for_a_minion(stage):
    """One without a ledger would run the job again, as often as it is told."""
    stage.plain.slow = True
    jid = stage.publish(stage.plain, "test.echo", "once")
    wait_for(lambda: stage.ran(stage.plain, jid), "the job runs")
    # It does not answer in time, so that whoever is faster has the word.
    stage.plain.away = True
    before = len(stage.mallory.published)

    def forge():
        for load in stage.mallory.published[before:]:
            if load["fun"] == QUERY:
                answer = {"fun": QUERY, "return": {}, "success": True, "retcode": 0, "fun_args": []}
                ret = {"jid": load["jid"], "id": "plain", **answer}
                stage.mallory.event(f"salt/job/{load['jid']}/ret/plain", ret, **answer)
                stage.mallory.lie(
                    {"cmd": "_syndic_return", "jid": load["jid"], "return": {"plain": answer}}
                )
                stage.mallory.lie({"cmd": "_return", **ret, "resource_id": "plain"})
                stage.mallory.lie({"cmd": "_return", **ret})
                return True
        return False

    stage.plain.start_event()
    wait_for(forge, "a query to answer in the other's place")
    stage.plain.away = False
    stage.assert_unharmed()
    assert stage.ran(stage.plain, jid) == 1
    # Its own word counts: it cannot say what it has run, so nothing is published again.
    report = stage.redeliver("plain")
    assert report["not_set_up"] == ["plain"]
    assert stage.ran(stage.plain, jid) == 1
    stage.plain.slow = False


def test_nobody_else_answers_a_question_of_the_engine(stage):
    """Not by events, not as a syndic, not in the name of a resource, and not under the JID."""
    fun = "safeupdate.report"
    stage.plain.away = True
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(questions.ask, stage.opts, ["victim", "plain"], fun, (), 20.0)
        wait_for(lambda: stage.mallory.heard_of(fun), "the question")
        jid = stage.mallory.heard_of(fun)[0]
        said = {"fun": fun, "return": {"phase": "committed"}, "success": True, "fun_args": []}
        ret = {"jid": jid, "id": "plain", **said}
        stage.mallory.event(f"salt/job/{jid}/ret/plain", ret, **said)
        stage.mallory.lie({"cmd": "_syndic_return", "jid": jid, "return": {"plain": said}})
        stage.mallory.lie({"cmd": "_return", **ret, "resource_id": "plain"})
        stage.mallory.lie({"cmd": "_return", **ret})
        assert asked.result() == {"victim": True}
    stage.plain.away = False
    assert questions.ask(stage.opts, ["victim", "plain"], fun) == {"victim": True, "plain": True}
    for load in shapes(jid):
        stage.mallory.lie(load | ({"fun": fun} if load.get("fun") == QUERY else {}))
    stage.published |= {each: (fun, []) for each in stage.mallory.heard_of(fun)}
    stage.assert_unharmed()


class Reporter(HonestMinion):
    """One that says what runs on it."""

    def heard(self, load):
        if load["fun"] == REPORT and self._meant(load):
            self.returns(load["jid"], REPORT, {"running": "3008.3\x1b[2J", "minion": "victim"})


def test_what_is_known_of_a_minion_is_its_own_word_and_goes_with_its_key_only(stage, capsys):
    leaver = Reporter(stage.opts, "leaver", stage.path / "leaver")
    # As ``salt-run`` has it: what is drawn is for a person, who has called it.
    called = {"fun": "safeupdate.versions", "output": "json"}
    runner = salt.runner.RunnerClient({**stage.opts, **called})
    store = Store(stage.opts)

    def versions(target, **options):
        """Show it as the command line does, once by default and once as JSON."""
        runner.opts["output"] = "json"
        runner.cmd("safeupdate.versions", [target], kwarg=options, print_event=True)
        found = json.loads(capsys.readouterr().out)
        runner.opts.pop("output")
        options["ask"] = False
        runner.cmd("safeupdate.versions", [target], kwarg=options, print_event=True)
        return found["rows"], capsys.readouterr().out.splitlines()

    try:
        # A new minion may not hear at once.
        wait_for(
            lambda: versions("leaver", timeout=2)[0]["leaver"]["heard"] == "report", "its answer"
        )
        rows, lines = versions("E@leaver", tgt_type="compound", timeout=60)
        assert rows["leaver"]["running"] == "3008.3?[2J"
        assert lines[:2] == ["1 of 1 on 3008.3?[2J", "leaver: 3008.3?[2J"]
        rows, lines = versions("victim", timeout=60)
        assert rows["victim"]["heard"] == "senseless"
        assert lines == ["1 with a senseless answer", "victim: gave a senseless answer: bool"]
        rows, _ = versions("mallory", timeout=1)
        assert rows["mallory"] == {"heard": "unknown"}
        stage.master.salt_key_cli().run("-d", "leaver", "-y")
        # It is shown no more at once; its record stays until the engine tidies.
        rows, _ = versions("*", timeout=1)
        assert {"victim", "mallory"} <= rows.keys()
        assert "leaver" not in rows
        assert store.record("leaver") is not None
        assert stocktaking.forget(stage.opts, None, deleted=True) == ["leaver"]
        assert store.record("leaver") is None
        assert store.record("victim") is not None
    finally:
        leaver.close()
    for load in stage.mallory.published:
        if load["fun"] == REPORT:
            stage.published[load["jid"]] = (REPORT, load["arg"])
    stage.assert_unharmed()


def test_starts_in_the_name_of_others_are_no_query(stage):
    jid = stage.missed("quiet")
    before = len(stage.victim.queries)
    for _ in range(20):
        stage.mallory.event("salt/minion/victim/start", {"id": "victim"})
        stage.mallory.lie(
            {
                "cmd": "_minion_event",
                "events": [{"tag": "minion_start", "data": {"id": "victim"}, "id": "victim"}],
            }
        )
    stage.redeliver("victim")
    wait_for(lambda: stage.ran(stage.victim, jid), "the job that the victim has missed")
    # One for the runner, and those that the engine sends in any case, however slow this is.
    assert len(stage.victim.queries) - before < 10
    stage.assert_unharmed()


def test_nobody_is_in_a_target_because_another_minion_says_so(stage):
    """Since 3008 minions tell of their resources, whose names and grains are their own choice."""
    chosen = {"role": "chosen"}
    ids = ["victim", "plain", "made-up", "made\nup"]
    told = {"resources": {"ssh": ids}, "resource_grains": {f"ssh:{name}": chosen for name in ids}}
    stage.mallory.lie({"cmd": "_register_resources", **told})
    checker = salt.utils.minions.CkMinions(stage.opts.copy())
    if hasattr(checker, "_check_resource_minions"):
        # What this process knows of the registry may be older by a moment.
        for target in (("role:chosen", "grain"), ("mall*", "glob")):
            wait_for(
                lambda target=target: "victim" in checker.check_minions(*target)["minions"],
                f"Salt itself to be deceived by {target}",
            )
    for target, kind, meant in (
        ("role:chosen", "grain", []),
        ("role:ch.*", "grain_pcre", []),
        ("G@role:chosen or T@ssh or T@ssh:victim", "compound", []),
        ("mall* and not T@ssh", "compound", ["mallory"]),
        ("mall*", "glob", ["mallory"]),
        ("made-up", "glob", []),
    ):
        assert targets.targeted(stage.opts, target, kind) == meant
    stage.victim.away = True
    # Salt waits for the victim as well, and the victim is asked for it.
    jid = stage.client.pub("mall*", "test.echo", ["for others"])["jid"]
    stage.published[jid] = ("test.echo", ["for others"])
    wait_for(lambda: stage._heard(jid), "the job is published")
    stage.victim.away = False
    report = stage.redeliver("victim")
    assert jid not in report["published"]
    stage.mallory.lie({"cmd": "_register_resources", "resources": {}, "resource_grains": {}})
    stage.assert_unharmed()
    assert stage.ran(stage.victim, jid) == 0


# -- with one right ----------------------------------------------------------------------


def asked(stage, user, fun, **kwargs):
    """Ask the master to run something, as a user who is not its own; return what it says."""
    port = stage.opts["ret_port"]
    uri = {"master_uri": f"tcp://127.0.0.1:{port}", "master_ip": "127.0.0.1"}
    client = salt.runner.RunnerClient(stage.opts | uri)
    low = {"fun": fun, "kwarg": kwargs, "eauth": "sharedsecret"}
    try:
        return str(client.cmd_sync({**low, "username": user, "password": SECRET}, timeout=120))
    except SaltException as err:
        return str(err)


def _at(place, given):
    """Return arguments with the place in them."""
    if isinstance(given, str):
        return given.replace("{}", str(place))
    if isinstance(given, list):
        return [_at(place, each) for each in given]
    if isinstance(given, dict):
        return {key: _at(place, each) for key, each in given.items()}
    return given


@pytest.fixture(scope="module")
def place(stage):
    """A directory of the user of the master with a file that is not to be changed; a rollout."""
    found = pathlib.Path(stage.opts["cachedir"]) / "place"
    found.mkdir()
    (found / "known").write_text("known")
    as_packaged.give(found)
    rollout = World([Host("m1")], soak=0).run(3600).rollout
    as_user(lambda: Store(stage.opts).save_rollout(rollout))
    return found


def content(place):
    return {path.name: path.read_text() for path in place.iterdir()}


@pytest.mark.parametrize("name", REACH)
def test_who_may_call_one_function_reaches_no_file_and_no_code(stage, place, name):
    """
    One user for each right, who may call this function of the runner and nothing else.

    | With | A file of the master's user | Code as root on minions |
    | --- | --- | --- |
    | `report`, `metrics` | no `path`, `force`, `public` | |
    | `avail` | no directory, no `keyring` | |
    | `setup` | not at all | |
    | `onboard` | | no `wheel`, no `sls` |
    """
    user = f"only-{name}"
    before, published = content(place), len(stage.mallory.published)
    for words in REACH[name]:
        said = asked(stage, user, f"safeupdate.{name}", **_at(place, words))
        assert ONLY_SHELL in said or "it takes" in said, said
        # A minion that 'peer_run' lets call it is no shell either.
        stage.mallory.lie(
            {
                "cmd": "minion_runner",
                "fun": f"safeupdate.{name}",
                "arg": [f"{key}={json.dumps(each)}" for key, each in _at(place, words).items()],
            }
        )
    for other in ("safeupdate.redeliver", "state.orchestrate", "salt.cmd"):
        assert "uthenticat" in asked(stage, user, other, target="*")
    assert content(place) == before
    assert len(stage.mallory.published) == published


def test_in_a_shell_of_the_master_files_are_written(stage, place):
    path = place / "safeupdate.prom"
    told = stage.master.salt_run_cli().run("safeupdate.metrics", str(path))
    assert told.returncode == 0, told
    assert path.read_text().startswith("# ")


def _named(fun, source):
    more = {} if fun == "safeupdate.avail" else {"version": "3008.3"}
    number = {"number": 1} if fun == "safeupdate.request" else {}
    return [{"__kwarg__": True, "source": source, **more, **number}]


def test_who_may_publish_one_function_names_no_source(stage, place, make_guest):
    """
    A user of the host of the master, who may publish these functions to one minion.

    | With | Gains |
    | --- | --- |
    | a directory that anybody writes, the index, another directory of the master | nothing |
    | another function, another minion, the runner | nothing |
    """
    guest = make_guest(stage.master, "guest")
    key = (pathlib.Path(stage.opts["cachedir"]) / f".{PUBLISHER}_key").read_text()
    with salt.client.LocalClient(mopts=stage.opts.copy()) as client:
        client.salt_user, client.key = PUBLISHER, key
        for source in _at(place, list(SOURCES)):
            args = [_named(fun, source) for fun in WITH_SOURCE]
            told = client.cmd("guest", WITH_SOURCE, args, timeout=120)
            for fun in WITH_SOURCE:
                assert "is not one that this minion allows" in str(told["guest"][fun]), fun
        for target, fun in (("guest", "test.ping"), ("victim", WITH_SOURCE[0])):
            with pytest.raises(SaltException):
                client.cmd(target, fun)
    assert guest.journal() == []
    # The user may do that, and it is nothing foreign to the tests behind.
    seen = lambda: [each for each in stage.mallory.published[:] if each["tgt"] == "guest"]  # noqa: E731
    wait_for(lambda: len(seen()) == len(SOURCES), "all of these publications")
    stage.published.update({load["jid"]: (load["fun"], load["arg"]) for load in seen()})


# -- at random -----------------------------------------------------------------------

NAMES = ("victim", "plain", "mallory", "*", "", "..", None)
SCALARS = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.binary(max_size=4)
)


def loads(stage):
    """Messages made of the words that mean something to a master, in any combination."""
    known = [*stage.published][-5:] + [load["jid"] for load in stage.mallory.published[-5:]]
    jids = st.sampled_from([*known, fresh_jid(), "req", "nocache", ""]) | SCALARS
    tags = st.one_of(
        st.builds(
            "salt/job/{}/{}".format,
            jids,
            st.sampled_from(["new", "ret/victim", "ret/plain", "ret"]),
        ),
        st.sampled_from(["salt/minion/victim/start", "minion_start", "salt/auth", ""]),
        SCALARS,
    )
    values = st.recursive(
        SCALARS | jids | st.sampled_from(NAMES),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["id", "jid", "fun", "minions", "return"]), inner)
        ),
        max_leaves=6,
    )
    fields = {
        "jid": jids | values,
        "fun": st.sampled_from(["cmd.run", "test.ping", QUERY]) | values,
        "arg": st.just([EVIL]) | values,
        "tgt": st.sampled_from(NAMES) | values,
        "tgt_type": st.sampled_from(["glob", "list", "compound"]) | values,
        "return": values,
        "load": values,
        "data": values,
        "tag": tags,
        "events": st.lists(st.fixed_dictionaries({"tag": tags, "data": values}), max_size=3)
        | values,
        "resource_id": st.sampled_from(NAMES),
        "pretag": SCALARS,
        "success": SCALARS,
        "minions": values,
        "user": st.just("root"),
        "kwargs": values,
    }
    commands = ["_return", "_syndic_return", "_minion_event", "_mine", "_file_recv", "minion_pub"]
    return st.fixed_dictionaries({"cmd": st.sampled_from(commands)}, optional=fields)


def send_at_random(stage, count):
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(loads(stage))
    def send(load):
        nonlocal sent
        stage.mallory.lie(load)
        sent += 1

    send()
    return sent


@pytest.mark.parametrize(
    "count", [20, pytest.param(3000, marks=pytest.mark.soak)], ids=["short", "long"]
)
def test_messages_at_random(stage, count):
    jid = stage.missed("among them")
    sent = send_at_random(stage, count)
    assert sent >= count
    stage.redeliver("victim")
    wait_for(lambda: stage.ran(stage.victim, jid), "the job that the victim has missed")
    stage.assert_unharmed()
    print(f"{sent} messages at random, {len(stage.mallory.published)} publications: none is theirs")
