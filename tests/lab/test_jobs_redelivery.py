"""What is published while a minion is away is published again, and nothing runs twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import venvs
from devtools.experiment import MINION
from devtools.lab.container import Lab
from devtools.master import Master
from tests.lab.jobs import ENGINE, WAITING, WORK, JobScene
from tests.lab.scene import RUN_DIR, STATE_DIR
from tests.lab.series import series

TARGETS = {
    "glob": ("m*", "glob"),
    "list": ([MINION], "list"),
    "grain": ("kernel:Linux", "grain"),
    "compound": (f"G@kernel:Linux and {MINION}", "compound"),
}
SECRET = "correct-horse-battery-staple"
SECOND = "127.0.0.2"
STATES = Path(__file__).parents[2] / "states"


@pytest.fixture(params=series("3007.15"))
def make_scene(
    lab: Lab, site: Path, request: pytest.FixtureRequest, begin: Callable[[Any], Any]
) -> Callable[..., JobScene]:
    def make(**kwargs: Any) -> JobScene:
        return begin(JobScene(lab, site, request.param, **{"config": WAITING, **kwargs}))

    return make


def publish_to_all_kinds(scene: JobScene) -> dict[str, str]:
    return {
        name: scene.master.publish(
            "cmd.run", f"echo {name} >> {WORK}; echo {name}", target=target, tgt_type=tgt_type
        )
        for name, (target, tgt_type) in TARGETS.items()
    }


def set_up_by_the_sls(scene: JobScene) -> None:
    """Apply ``safeupdate.master`` to the host, and start the master with what it wrote."""
    (scene.master.files / "safeupdate").mkdir()
    sls = (STATES / "safeupdate" / "master.sls").read_text()
    (scene.master.files / "safeupdate" / "master.sls").write_text(sls)
    scene.container.write("/etc/salt/master", yaml.safe_dump({"engines": ["test"]}))
    pillar = {"safeupdate": {"redeliver_window": 600}}
    for changed in (True, False):
        (state,) = scene.call("state.apply", "safeupdate.master", pillar=pillar).values()
        assert state["result"] is True
        assert bool(state["changes"]) is changed
    written = scene.container.read("/etc/salt/master.d/safeupdate.conf")
    assert yaml.safe_load(written) == {
        "engines": ["test", {"safeupdate_redeliver": {"window": 600}}],
        "peer_run": {".+": ["safeupdate.master_version"]},
    }
    scene.master.stop()
    (scene.master.dir / "master.d").mkdir()
    (scene.master.dir / "master.d" / "safeupdate.conf").write_text(written)
    scene.master.start()
    scene.answers()


@pytest.mark.soak
def test_every_kind_of_target_and_the_job_cache_stays_as_it_was(
    make_scene: Callable[..., JobScene],
) -> None:
    scene = make_scene(master_config={"engines": None}).up()
    set_up_by_the_sls(scene)
    scene.container.run(["systemctl", "stop", "salt-minion"])
    jids = publish_to_all_kinds(scene)
    ping = scene.publish("test.ping")
    scene.container.run(["systemctl", "start", "salt-minion"])
    for name, jid in jids.items():
        assert scene.returned(jid, 90)["return"] == name
    assert scene.returned(ping, 90)["return"] is True
    assert sorted(scene.traces()) == sorted(TARGETS)
    jobs = scene.master.runner("jobs.list_jobs")
    for name, (target, tgt_type) in TARGETS.items():
        assert jobs[jids[name]]["Target"] == target
        assert jobs[jids[name]]["Target-type"] == tgt_type
    # By hand there is nothing left to do, and asking again changes nothing.
    report = scene.master.runner("safeupdate.redeliver")
    assert report["published"] == {}
    assert sorted(scene.traces()) == sorted(TARGETS)


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
    # Where the cut broke the subscription, Salt notices that after tcp_keepalive_idle, 300 s.
    assert scene.returned(missed, 600)["return"] == "missed"
    assert scene.traces() == ["start", "end", "missed"]
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
    scene.container.run(["systemctl", "stop", "salt-minion"])
    jids = [publish(master, f"echo x >> {WORK}; hostname") for master in (scene.master, second)]
    scene.container.run(["systemctl", "start", "salt-minion"])
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
    scene.kill()
    scene.container.run(["systemctl", "start", "salt-minion"])
    scene.minion_started(before)
    assert scene.call("test.echo", "first") == "first"
    assert [job[0] for job in scene.open_jobs()] == [late]
    second.start()
    second.wait(lambda: MINION in second.returns(late), 300, "the return")
    assert second.returns(late)[MINION]["return"] == "late"
    assert MINION not in scene.master.returns(late)
    assert scene.traces() == ["x", "x", "late", "ended"]
