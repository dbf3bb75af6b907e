"""
Who gets a job that was published while a minion did not run; and nothing runs twice.

| it came while | who published it, or what came since | it runs |
| --- | --- | --- |
| `systemctl restart`, no handover | ``salt --async``, a reactor, LocalClient (salt-api) | once |
| | ``salt`` that still waits, a user of ``eauth`` by password or token | once |
| | ``salt`` that has given up, ``salt.function`` and ``salt.state`` that have failed | never |
| | ``kill_job``, ``term_job``, ``signal_job``, ``kill_all_jobs``, ``term_all_jobs`` | never |
| | poweroff, reboot, halt, a service; metadata that say no; a token that was deleted | never |
| the same, and the master is started anew before the minion has answered | LocalClient | once |
| the same | ``kill_job``, while the account of the master cannot be written | never |
| `kill -9` with ``Restart=on-failure`` | a user whose rights were configured away | never |
| | LocalClient, after the restart of the master | once |
| stop, and later a start | LocalClient | never |
| a host that was off | LocalClient | never |
| a network that was cut | LocalClient | not again |
| a batch, during the restart | ``salt -b 1`` | once |

An update without a handover restarts the minion as its supervisor does it: jobs that are published
meanwhile are in ``test_jobs_storm.py``. Salt's ``salt -b 1`` on two minions is in
``tests/functional/master/test_right_minions.py``: a caller that goes on has given up.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import as_packaged, venvs
from devtools.command import end
from devtools.experiment import MINION
from devtools.lab.container import Lab
from devtools.master import Master
from tests.lab.jobs import ENGINE, WAITING, WORK, JobScene
from tests.lab.scene import RUN_DIR, STATE_DIR
from tests.lab.series import series

SECRET = "correct-horse-battery-staple"
SECOND = "127.0.0.2"
GAP = "/run/gap"
DROP_IN = f"""[Service]
ExecStartPre=/bin/sh -c "while test -e {GAP}; do sleep 0.1; done"
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=100ms
"""
REACTION = f"""
reactor:
  local.cmd.run:
    - tgt: {MINION}
    - args: [{{cmd: 'echo reactor >> {WORK}'}}]
"""
STEPS = f"""
function:
  salt.function:
    - name: cmd.run
    - tgt: {MINION}
    - timeout: 1
    - arg: ['echo orchestrated function >> {WORK}']
state:
  salt.state:
    - sls: late
    - tgt: {MINION}
    - timeout: 1
"""
AS_ALICE = """
import sys
import salt.auth, salt.client, salt.config
way, config, minion, line = sys.argv[1:]
opts = salt.config.master_config(config)
said = {"eauth": "auto", "username": "alice", "password": "x"}
if way != "password":
    said = {"token": salt.auth.LoadAuth(opts).mk_token(said)["token"]}
sent = salt.client.LocalClient(config).run_job([minion], "cmd.run", [line], "list", **said)
if way == "deleted":
    salt.auth.LoadAuth(opts).rm_token(said["token"])
print("published", sent["jid"])
"""
STATES = Path(__file__).parents[2] / "states"


@pytest.fixture(params=series("3007.15"))
def make_scene(
    lab: Lab, site: Path, request: pytest.FixtureRequest, begin: Callable[[Any], Any]
) -> Callable[..., JobScene]:
    def make(**kwargs: Any) -> JobScene:
        return begin(JobScene(lab, site, request.param, **{"config": WAITING, **kwargs}))

    return make


@pytest.mark.soak
def test_a_master_that_the_sls_sets_up(make_scene: Callable[..., JobScene]) -> None:
    """It is applied to the host, and the master starts with what it wrote."""
    scene = make_scene(master_config={"engines": None}).up()
    (scene.master.files / "safeupdate").mkdir()
    sls = (STATES / "safeupdate" / "master.sls").read_text()
    (scene.master.files / "safeupdate" / "master.sls").write_text(sls)
    scene.container.write("/etc/salt/master", yaml.safe_dump({"engines": ["test"]}))
    pillar = {"safeupdate": {"redeliver_window": 600}}
    for changed in (True, False):
        (state,) = scene.call("state.apply", "safeupdate.master", pillar=pillar).values()
        assert state["result"] is True
        assert bool(state["changes"]) is changed
    written = scene.container.read("/etc/salt/master.d/_safeupdate.conf")
    assert yaml.safe_load(written) == {
        "engines": ["test", {"safeupdate_redeliver": {"window": 600}}],
        "peer_run": {".+": ["safeupdate.master_version"]},
    }
    scene.master.stop()
    (scene.master.dir / "master.d").mkdir()
    (scene.master.dir / "master.d" / "_safeupdate.conf").write_text(written)
    scene.master.start()
    scene.answers()
    gap = Gap(scene)
    gap.begins("--no-block", "restart", scene.unit)
    jid = scene.publish("cmd.run", say("missed"))
    gap.ends()
    assert scene.returned(jid)["return"] == "missed"
    assert list(scene.master.returns(jid)) == [MINION], "in the job cache as ever"


class Gap:
    """
    A time in which no minion runs, as long as the test wants it.

    Every start of the unit waits in there, so what is published comes between two generations.
    """

    def __init__(self, scene: JobScene) -> None:
        self.scene = scene
        scene.container.write(f"/etc/systemd/system/{scene.unit}.service.d/gap.conf", DROP_IN)
        scene.container.run(["systemctl", "daemon-reload"])

    def begins(self, *command: str) -> None:
        self.scene.container.write(GAP, "")
        self.scene.container.run(["systemctl", *command], timeout=200)
        self.scene.master.wait(self._waits, 120, "the start that waits")

    def ends(self) -> None:
        self.scene.container.run(["rm", GAP])

    def _waits(self) -> bool:
        found = self.scene.container.service()
        return found["ActiveState"] == "activating" and found["MainPID"] == "0"


def program(
    scene: JobScene, name: str, *words: str, of: Master | None = None
) -> subprocess.Popen[str]:
    """Start a program of a master: ``salt``, ``salt-run``, or its Python."""
    master = of or scene.master
    path = str(Path(venvs.python(master.venv)).with_name(name))
    argv = [path, "-c", str(master.dir)] if name.startswith("salt") else []
    env = {"PYTHONPATH": str(scene.site), "PATH": "/usr/bin:/bin"}
    return master.network.popen(master.command(*argv, *words), env=env)


def done(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=240)[0]


def say(label: str) -> str:
    return f"echo {label} >> {WORK}; echo {label}"


def as_alice(scene: JobScene, way: str) -> None:
    """Publish as a user of ``eauth``; the token of one *way* is deleted at once."""
    words = [way, str(scene.master.dir / "master"), MINION, say(f"alice {way}")]
    assert "published" in done(program(scene, "python", "-c", AS_ALICE, *words))


def wait_published(scene: JobScene, word: str) -> None:
    """Wait for a publication with that word in its arguments."""

    def found() -> bool:
        jobs = scene.master.runner("jobs.list_jobs").values()
        return any(word in str(job["Arguments"]) for job in jobs)

    scene.master.wait(found, 60, f"{word} to be published")


def end_in_every_way(scene: JobScene) -> list[str]:
    """Publish a job for each function that ends some, and that function; return their JIDs."""
    jids = []
    for name in ("kill_job", "term_job", "signal_job", "kill_all_jobs", "term_all_jobs"):
        jid = scene.publish("cmd.run", say(name))
        arg = [] if name.endswith("_all_jobs") else [jid]
        scene.publish(f"saltutil.{name}", *arg, *([15] if name == "signal_job" else []))
        jids.append(jid)
    return jids


@contextlib.contextmanager
def locked(scene: JobScene) -> Iterator[Path]:
    """Have somebody write into the account of the master; yield the mark that it is whole."""
    path = scene.master.dir / "cache" / "safeupdate" / "account.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield path.with_name("account.whole")
        db.execute("ROLLBACK")


def test_who_gets_a_job_that_came_while_the_minion_did_not_run(
    make_scene: Callable[..., JobScene],
) -> None:
    config = {
        "gather_job_timeout": 3,
        "external_auth": {"auto": {"alice": ["cmd.run"]}},
        "reactor": [{"lab/react": ["salt://react.sls"]}],
    }
    scene = make_scene(master_config=config).up()
    scene.sls("react", REACTION)
    scene.sls("late", f"late:\n  cmd.run:\n    - name: {say('orchestrated state')!r}\n")
    scene.sls("steps", STEPS)
    gap = Gap(scene)
    ran: list[str] = []

    def ends(*wanted: str) -> dict[str, Any]:
        """Have it end; everything that is wanted runs, and nothing else does."""
        ran.extend(wanted)
        gap.ends()
        return judged()

    def judged() -> dict[str, Any]:
        scene.answers()
        scene.master.wait(lambda: len(scene.traces()) >= len(ran), 120, f"all of {ran}")
        report = scene.master.runner("safeupdate.redeliver")
        # What came after all that could come.
        scene.call("cmd.run", "true")
        assert sorted(scene.traces()) == sorted(ran), report
        return dict(report)

    gap.begins("--no-block", "restart", scene.unit)
    ended = end_in_every_way(scene)
    momentary = [scene.publish(f"system.{name}") for name in ("poweroff", "reboot", "halt")]
    scene.publish("service.stop", "cron")
    target = ["-L", MINION, "cmd.run"]
    no = ["--async", "--metadata", "{redeliver: False}"]
    assert "job ID" in done(program(scene, "salt", *no, *target, say("unwanted")))
    for way in ("password", "token", "deleted"):
        as_alice(scene, way)
    scene.publish("cmd.run", say("async"))
    scene.master.fire("lab/react", {})
    patient = program(scene, "salt", "-t", "600", *target, say("salt"))
    over = [
        program(scene, "salt", "-t", "1", *target, say("impatient")),
        program(scene, "salt-run", "state.orchestrate", "steps"),
    ]
    told = [done(each) for each in over]
    assert "did not return" in told[0].lower() or "no response" in told[0].lower(), told
    for word in ("reactor", "echo salt", "orchestrated function"):
        wait_published(scene, word)
    report = ends("async", "reactor", "salt", "alice password", "alice token")
    assert "salt" in done(patient)
    for jid in ended:
        assert report["given_up"][jid] == [MINION], report
    assert not [jid for jid in momentary if jid in str(report)], report

    # The end of a job that is written down nowhere, and a start that only an earlier engine heard.
    gap.begins("--no-block", "restart", scene.unit)
    jid = scene.publish("cmd.run", say("ended unseen"))
    with locked(scene) as whole:
        scene.publish("saltutil.kill_job", jid)
    scene.master.wait(whole.exists, 60, "the account to begin anew")
    scene.publish("cmd.run", say("between"))
    with locked(scene):
        gap.ends()
        said = "cannot be published again"
        scene.master.wait(lambda: said in scene.master.log(), 90, "the first try")
        scene.master.stop()
    scene.master.start()
    ran.append("between")
    judged()

    # A crash; meanwhile the master is started anew, with other rights.
    gap.begins("kill", "-s", "KILL", "--kill-who=all", scene.unit)
    for way in ("password", "token"):
        as_alice(scene, way)
    scene.master.stop()
    path = scene.master.dir / "master"
    changed = {**json.loads(path.read_text()), "external_auth": {"auto": {"bob": ["cmd.run"]}}}
    path.write_text(json.dumps(changed))
    scene.master.start()
    scene.publish("cmd.run", say("crash"))
    # It gives up before one that begins to wait now.
    done(program(scene, "salt", "-t", "2", *target, say("impatient again")))
    ends("crash")

    # Somebody has stopped it; somebody has switched the host off.
    scene.container.run(["systemctl", "stop", scene.unit], timeout=200)
    stopped = scene.publish("cmd.run", say("stopped"))
    # A start within a second is a restart.
    scene.container.run(["sleep", "2"])
    scene.container.run(["systemctl", "start", scene.unit])
    assert judged()["away"][stopped] == [MINION]
    scene.container.poweroff()
    off = scene.publish("cmd.run", say("off"))
    scene.container.up()
    assert judged()["away"][off] == [MINION]


def test_a_batch_that_meets_a_restart(make_scene: Callable[..., JobScene]) -> None:
    scene = make_scene().up()
    salt = str(Path(venvs.python(scene.master.venv)).with_name("salt"))
    batch = scene.master.network.popen(
        [
            *scene.master.command(salt, "-c", str(scene.master.dir)),
            *("-b", "1", MINION, "cmd.run", f"echo batch >> {WORK}; sleep 4; echo batched"),
        ],
        env={"PYTHONPATH": str(scene.site), "PATH": "/usr/bin:/bin"},
    )
    scene.wait_trace("batch")
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=200)
    output, _ = batch.communicate(timeout=120)
    assert "batched" in output
    assert scene.traces() == ["batch"]


def stored(scene: JobScene) -> bytes:
    """Return the bytes of the database's files."""
    found = scene.container.path(STATE_DIR).glob("safeupdate.db*")
    return b"".join(path.read_bytes() for path in found)


def modes(scene: JobScene) -> tuple[set[str], set[str]]:
    """Return the modes of our directories, and of what is written into them as jobs run."""
    folders = [STATE_DIR, RUN_DIR]
    find = ["find", *folders, "-maxdepth", "1", "-type", "f", "-not", "-name", "*.sh"]
    files = scene.container.run([*find, "-printf", "%m\n"]).stdout
    return set(scene.container.run(["stat", "-c", "%a", *folders]).stdout.split()), set(
        files.split()
    )


@pytest.mark.parametrize("seconds", [15, pytest.param(60, marks=pytest.mark.soak)])
def test_a_network_that_is_cut_and_a_secret(
    make_scene: Callable[..., JobScene], seconds: int
) -> None:
    scene = make_scene(apart=True, config={"log_level_logfile": "debug"}).up()
    line = f"echo start >> {WORK}; cat; sleep 5; echo end >> {WORK}"
    jid = scene.publish("cmd.run", line, stdin=SECRET)
    scene.wait_trace("start")
    scene.cable("down")
    missed = scene.publish("cmd.run", f"echo missed >> {WORK}; echo missed")
    scene.wait_trace("end")
    # The cut is what is tested: it has to last.
    scene.container.run(["sleep", str(seconds)])
    assert scene.query(f"SELECT state FROM jobs WHERE jid = '{jid}'") == [["finished"]]
    assert SECRET.encode() in stored(scene), "it is kept for the master"
    assert modes(scene) == ({"700"}, {"600"})
    assert scene.traces() == ["start", "end"]
    scene.cable("up")
    assert scene.returned(jid, 300)["return"] == SECRET
    # Where the cut did not break the subscription, Salt itself still delivers it.
    report = scene.master.runner("safeupdate.redeliver")
    assert missed not in report["published"], report
    assert scene.traces() in (["start", "end"], ["start", "end", "missed"])
    scene.master.wait(lambda: SECRET.encode() not in stored(scene), 120, "the wiping")
    log = scene.container.read("/var/log/salt/minion").splitlines()
    ours = [text for text in log if "saltext_safeupdate" in text]
    assert ours
    # Salt writes arguments and returns itself where it is told to be talkative.
    ours += [text for text in log if "[ERROR" in text or "[WARNING" in text]
    assert [text for text in ours if SECRET in text] == []


@pytest.mark.soak
def test_two_masters_get_what_is_theirs(
    make_scene: Callable[..., JobScene], make_master: Callable[..., Master]
) -> None:
    scene = make_scene(config={"master": ["127.0.0.1", SECOND]})
    settings = {**ENGINE, "interface": SECOND}
    second = make_master(scene.container, config=settings, pythonpath=scene.site)
    # The masters of one minion have one key.
    shutil.copytree(second.dir / "pki", scene.master.dir / "pki")
    scene.up()

    def publish(master: Master, line: str) -> str:
        return master.publish("cmd.run", line, target=MINION, tgt_type="list")

    second.wait_minion(MINION, 90)
    gap = Gap(scene)
    gap.begins("--no-block", "restart", scene.unit)
    jids = [publish(master, f"echo x >> {WORK}; hostname") for master in (scene.master, second)]
    gap.ends()
    for master, jid in zip((scene.master, second), jids, strict=True):
        assert master.wait_return(jid, MINION, 90)["success"]
    assert scene.traces() == ["x", "x"]
    # One that is away gets its return later, and holds up nobody else's.
    late = publish(second, f"echo late >> {WORK}; sleep 4; echo ended >> {WORK}; echo late")
    scene.wait_trace("late")
    second.stop()
    finished = f"SELECT state FROM jobs WHERE jid = '{late}'"
    scene.master.wait(lambda: scene.query(finished) == [["finished"]], 60, "the kept return")
    before = scene.pid()
    # Its unit brings it back.
    scene.container.run(["systemctl", "kill", "-s", "KILL", "--kill-who=all", scene.unit])
    scene.minion_started(before)
    assert scene.call("test.echo", "first") == "first"
    assert [job[0] for job in scene.open_jobs()] == [late]
    second.start()
    second.wait(lambda: MINION in second.returns(late), 300, "the return")
    assert second.returns(late)[MINION]["return"] == "late"
    assert MINION not in scene.master.returns(late)
    assert scene.traces() == ["x", "x", "late", "ended"]


class Below(JobScene):
    """Its master has a syndic; that of 3008.3 gets no answers from above."""

    def _master(self, lab: Lab, site: Path, config: Mapping[str, Any]) -> Master:
        return Master.take(lab, "3007.15", config=config, pythonpath=site)

    def syndic(self) -> subprocess.Popen[str]:
        """Start it: its files are next to those of its master."""
        home = self.master.dir / "syndic"
        places = {"pki_dir": "pki", "cachedir": "cache", "sock_dir": "sock", "log_file": "log"}
        named = {key: str(home / name) for key, name in {**places, "pidfile": "pid"}.items()}
        told = {"id": "below", "root_dir": str(home), "acceptance_wait_time": 1, **named}
        (self.master.dir / "minion").write_text(json.dumps(told))
        as_packaged.give(*(home / name for name in ("pki", "cache", "sock")), home)
        as_packaged.give(self.master.dir / "minion.d")
        return program(self, "salt-syndic", "-l", "quiet")


@pytest.mark.soak
def test_jobs_of_a_master_of_masters(
    lab: Lab, site: Path, begin: Callable[[Any], Any], make_master: Callable[..., Master]
) -> None:
    """A syndic forwards the end of a job perhaps before the job."""
    patience = {"gather_job_timeout": 3, "syndic_wait": 3}
    upward = {"syndic_master": SECOND, **patience}
    scene = begin(Below(lab, site, "3007.15", config=WAITING, master_config=upward))
    settings = {**ENGINE, **patience, "interface": SECOND, "order_masters": True}
    above = make_master(scene.container, "3007.15", config=settings, pythonpath=scene.site)
    scene.up()
    syndic = scene.syndic()
    try:
        above.wait_minion(MINION, 90)
        gap = Gap(scene)
        gap.begins("--no-block", "restart", scene.unit)
        for number in range(5):
            jid = above.publish("cmd.run", say(f"ended {number}"), target=MINION, tgt_type="list")
            above.publish("saltutil.kill_job", jid, target=MINION, tgt_type="list")
        above.publish("cmd.run", say("from above"), target="kernel:Linux", tgt_type="grain")
        done(program(scene, "salt", "-t", "1", "-L", MINION, "cmd.run", say("over"), of=above))
        gap.ends()
        scene.answers()
        scene.wait_trace("from above")
        scene.master.runner("safeupdate.redeliver")
        scene.call("cmd.run", "true")
        assert scene.traces() == ["from above"]
    finally:
        end(syndic)
