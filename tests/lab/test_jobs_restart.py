"""Single restarts that wait, by every means, and what becomes of the jobs that are under way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MINION
from devtools.lab.container import Lab
from tests.lab.handover import other
from tests.lab.jobs import STATES, WAITING, WORK, JobScene, Timetable
from tests.lab.series import series

CROWD = range(20)
FLAG = "/var/tmp/go"
HELD = f"echo held >> {WORK}; echo held"

pytestmark = pytest.mark.parametrize("version", series("3007.15"))


@pytest.fixture
def make_scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Callable[..., JobScene]:
    def make(version: str, **kwargs: object) -> JobScene:
        return begin(JobScene(lab, site, version, **kwargs)).up()

    return make


@pytest.fixture(scope="module")
def scenes() -> Iterator[dict[str, JobScene]]:
    """The scenes that go from one test to the next, by version."""
    made: dict[str, JobScene] = {}
    yield made
    for scene in made.values():
        scene.down()


@pytest.fixture
def scene(
    lab: Lab,
    site: Path,
    scenes: dict[str, JobScene],
    version: str,
    request: pytest.FixtureRequest,
) -> Iterator[JobScene]:
    """A minion that is as a test which passed has left it: nothing is open, and nothing held."""
    if version not in scenes:
        offers = [f"salt-minion_{version}"]
        scenes[version] = JobScene(lab, site, version, offers=offers, config=WAITING).up()
    scene = scenes[version]
    scene.answers()
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the jobs of the test before")
    scene.container.run(["rm", "-f", WORK, FLAG])
    yield scene
    scene.tell_of(request.node)
    if scene.failed:
        scenes.pop(version).down()


def test_a_restart_waits_for_jobs_and_new_ones_wait_for_it(scene: JobScene) -> None:
    assert scene.call("safeupdate.check") == []
    before = scene.pid()
    wait = f"until test -e {FLAG}; do sleep 0.1; done"
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {wait}; echo end >> {WORK}; echo done")
    scene.wait_trace("start")
    restart = scene.container.popen(["systemctl", "restart", "salt-minion"])
    scene.master.wait(lambda: scene.locked("drain"), 30, "the drain of the stop")
    held = scene.publish("cmd.run", HELD)
    find = scene.call("saltutil.find_job", held, timeout=30)
    assert find["jid"] == held, "the command that waits for it goes on waiting"
    unwanted = scene.publish("cmd.run", f"echo unwanted >> {WORK}")
    # A master that redelivers may publish what is held already.
    publish_again(scene, held)
    # Who looks, or changes his mind, is not held.
    assert scene.call("safeupdate.status", timeout=30)["draining"]
    states = {job["jid"]: job["state"] for job in scene.call("safeupdate.jobs")["recorded"]}
    assert states == {jid: "running", held: "held", unwanted: "held"}
    assert scene.call("safeupdate.forget", unwanted, timeout=30) == [unwanted]
    looks = [scene.publish(fun) for fun in ("safeupdate.status", "test.ping", "test.version")]
    crowd = {scene.publish("cmd.run", f"echo c{n} >> {WORK}; echo c{n}"): f"c{n}" for n in CROWD}
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    publish_again(scene, held)
    assert restart.wait(60) == 0
    for _ in range(5):
        publish_again(scene, held)
    assert scene.returned(held)["return"] == "held"
    publish_again(scene, held)
    assert scene.call("test.echo", "last") == "last"
    assert scene.pid() not in ("0", before)
    assert {jid: scene.returned(jid)["return"] for jid in crowd} == crowd
    traces = scene.traces()
    assert traces[:2] == ["start", "end"]
    assert sorted(traces[2:]) == sorted(["held", *crowd.values()]), "once, and no forgotten one"
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")
    # None of these counts as missed, and comes again.
    assert scene.call("safeupdate.accepted", looks) == dict.fromkeys(looks, "delivered")


def test_what_is_scheduled_while_a_restart_waits_runs_once(scene: JobScene) -> None:
    """See ``Timetable``. Its limited job is what the restart waits for."""
    table = Timetable(scene, 45, FLAG)
    table.wait_until(4)
    restart = scene.container.popen(["systemctl", "restart", "salt-minion"])
    scene.master.wait(lambda: scene.locked("drain"), 30, "the drain of the stop")
    table.move()
    table.is_at_work()
    table.wait_until(22)
    scene.container.write(FLAG, "")
    assert restart.wait(60) == 0
    table.judge()


def publish_again(scene: JobScene, jid: str) -> None:
    scene.master.publish("cmd.run", HELD, target=MINION, tgt_type="list", jid=jid)


def test_a_restart_that_a_job_waits_for_comes_after_the_job(scene: JobScene) -> None:
    before = scene.pid()
    other = scene.publish("cmd.run", f"echo other >> {WORK}; sleep 15; echo other end >> {WORK}")
    scene.wait_trace("other")
    jid = scene.publish("cmd.run", "systemctl restart salt-minion && echo done; echo after")
    assert scene.returned(jid, 60)["return"] == "done\nafter"
    assert scene.pid() == before, "the other job still runs"
    scene.minion_started(before)
    scene.answers()
    assert scene.master.returns(other), "it was waited for"
    assert_usual(scene)


STOPS = "systemctl stop salt-minion && echo done; sleep 3; echo after"
DISABLES = "systemctl disable --now salt-minion && echo done; sleep 3; echo after"


@pytest.mark.parametrize(
    "command", [STOPS, pytest.param(DISABLES, marks=pytest.mark.soak)], ids=["stop", "disable"]
)
def test_a_stop_that_a_job_waits_for_comes_after_the_job(scene: JobScene, command: str) -> None:
    other = scene.publish("cmd.run", f"echo other >> {WORK}; sleep 15; echo other end")
    scene.wait_trace("other")
    jid = scene.publish("cmd.run", command)
    assert scene.returned(jid, 60)["return"].endswith("done\nafter")
    assert scene.returned(other, 60)["return"] == "other end"
    scene.master.wait(
        lambda: scene.container.service()["ActiveState"] == "inactive", 60, "the stop"
    )
    assert_usual(scene)
    scene.container.run(["systemctl", "enable", "--now", "salt-minion"])
    scene.answers()


def test_a_state_may_stop_and_disable_the_service_and_its_run_returns(scene: JobScene) -> None:
    """As it does on the way to another minion of the host; the stop comes after the run."""
    dead = "dead:\n  service.dead:\n    - name: salt-minion\n    - enable: False\n"
    scene.sls("dead", f"{dead}after:\n  cmd.run:\n    - name: echo after >> {WORK}\n")
    ret = scene.returned(scene.publish("state.apply", "dead"), 60)
    assert [value["result"] for value in ret["return"].values()] == [True, True], ret
    assert scene.traces() == ["after"]
    scene.master.wait(
        lambda: scene.container.service()["ActiveState"] == "inactive", 60, "the stop"
    )
    assert scene.container.service()["UnitFileState"] == "disabled"
    assert_usual(scene)
    scene.container.run(["systemctl", "enable", "--now", "salt-minion"])
    scene.answers()


# Whatever ends the minion from inside, with how it is called.
ENDS: dict[str, list[str]] = {
    "minion.kill": [],
    "minion.restart": [],
    "service.restart": ["salt-minion"],
}


@pytest.mark.parametrize(
    "function",
    [pytest.param(each, marks=() if each == "minion.kill" else pytest.mark.soak) for each in ENDS],
)
def test_what_ends_the_minion_from_inside_is_a_restart_after_the_jobs(
    scene: JobScene, function: str
) -> None:
    """
    | Called | Its return | A job beside it | The next states | The service |
    | --- | --- | --- | --- | --- |
    | in a state run | comes | ends and returns | run | active again |
    | by itself | comes | ends and returns |  | active again |
    """
    if function == "minion.restart":
        set_restart_command(scene, "[touch, /var/tmp/called]")
    args = ENDS[function]
    called = {function: [{"name": each} for each in args]}
    run = {"ends": {"module.run": [called]}, "after": {"cmd.run": [{"name": f"echo x >> {WORK}"}]}}
    scene.sls("ends", json.dumps(run))
    for asked, wanted in ((["state.apply", "ends"], 2), ([function, *args], 0)):
        scene.container.run(["rm", "-f", WORK, FLAG])
        before = scene.pid()
        wait = f"until test -e {FLAG}; do sleep 0.1; done"
        other = scene.publish("cmd.run", f"echo start >> {WORK}; {wait}; echo end")
        scene.wait_trace("start")
        ret = scene.returned(scene.publish(*asked), 60)
        assert ret["success"], ret
        if wanted:
            assert [each["result"] for each in ret["return"].values()] == [True] * wanted, ret
            assert scene.traces() == ["start", "x"]
        assert scene.pid() == before, "the other job still runs"
        scene.container.write(FLAG, "")
        assert scene.returned(other, 60)["return"] == "end"
        scene.minion_started(before)
        scene.wait_end()
        scene.answers()
        assert scene.container.service()["ActiveState"] == "active"
        assert_usual(scene)
    if function == "minion.restart":
        assert not scene.container.exists("/var/tmp/called")
        set_restart_command(scene, "[]")


def set_restart_command(scene: JobScene, command: str) -> None:
    place, before = "/etc/salt/minion.d/zz-command.conf", scene.pid()
    scene.container.write(place, f"minion_restart_command: {command}\n")
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.minion_started(before)
    scene.answers()


LATER, BEHIND = "stop, and later start", "stop and start in the background"
SEVERAL = {
    "restarts": "for i in 1 2 3 4 5 6; do systemctl restart salt-minion || echo no; done",
    "stop and start": "systemctl stop salt-minion; systemctl start salt-minion",
    LATER: "systemctl stop salt-minion; sleep 3; systemctl start salt-minion",
    BEHIND: "setsid sh -c 'systemctl stop salt-minion; sleep 3; systemctl start salt-minion; "
    f"echo behind >> {WORK}' > /dev/null 2>&1 < /dev/null &",
    "marked": "systemctl set-property --runtime salt-minion.service Markers=+needs-restart; "
    "systemctl reload-or-restart --marked",
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=() if what in ("restarts", BEHIND) else pytest.mark.soak)
        for what in SEVERAL
    ],
)
def test_what_a_job_asks_for_last_comes_after_the_jobs(scene: JobScene, what: str) -> None:
    before = scene.pid()
    other = scene.publish("cmd.run", f"echo other >> {WORK}; sleep 10; echo other end")
    scene.wait_trace("other")
    line = SEVERAL[what] if what == BEHIND else f"{SEVERAL[what]};"
    jid = scene.publish("cmd.run", f"{line} sleep 2; echo after")
    assert scene.returned(jid, 60)["return"] == "after"
    if what == BEHIND:
        scene.wait_trace("behind")
    assert scene.pid() == before
    assert scene.returned(other, 60)["return"] == "other end"
    scene.minion_started(before)
    scene.answers()
    assert_usual(scene)


def test_a_job_that_waits_for_the_package_manager_of_somebody_else(scene: JobScene) -> None:
    """Its scriptlet restarts the minion, which waits for the job."""
    before = scene.pid()
    apt = scene.container.popen(
        ["sh", "-c", "apt-get update && apt-get install -y --reinstall salt-minion"]
    )
    scene.sls(
        "tool",
        f"first:\n  cmd.run:\n    - name: echo first >> {WORK}; until [ -e {FLAG} ]; do "
        "sleep 0.1; done\ntool:\n  cmd.run:\n    - name: apt-get install -y --reinstall "
        "-o DPkg::Lock::Timeout=300 salt-minion\n",
    )
    jid = scene.publish("state.apply", "tool")
    scene.wait_trace("first")
    scene.master.wait(
        lambda: (
            scene.container.run(["fuser", "/var/lib/dpkg/lock-frontend"], check=False).ok
            or apt.poll() is not None
        ),
        60,
        "apt to work",
    )
    scene.container.write(FLAG, "")
    output, _ = apt.communicate(timeout=120)
    assert apt.returncode == 0, output
    ret = scene.returned(jid, 120)["return"]
    assert all(value["result"] for value in ret.values()), ret
    scene.minion_started(before)
    scene.answers()
    assert_usual(scene)


def test_what_makes_up_for_a_stop_is_killed(scene: JobScene) -> None:
    before = scene.pid()
    jid = scene.publish(
        "cmd.run",
        f"systemctl restart salt-minion; echo put >> {WORK}; until [ -e {FLAG} ]; do sleep 0.1; "
        "done; echo after",
    )
    scene.wait_trace("put")
    kill = ["systemctl", "kill", "--signal=KILL", "salt-minion-make-up.service"]
    scene.container.run(kill)
    scene.container.write(FLAG, "")
    assert scene.returned(jid, 60)["return"] == "after"
    scene.minion_started(before)
    scene.answers()
    assert_usual(scene)


def test_the_package_goes_in_a_job(make_scene: Callable[..., JobScene], version: str) -> None:
    """Jobs end and return before the minion does, whose unit is gone by then."""
    scene = make_scene(version, config=WAITING)
    other = scene.publish("cmd.run", f"echo other >> {WORK}; sleep 15; echo other end")
    scene.wait_trace("other")
    jid = scene.publish("cmd.run", "apt-get remove -y salt-minion && sleep 3; echo after")
    assert scene.returned(jid, 60)["return"].endswith("after")
    assert scene.returned(other, 60)["return"] == "other end"
    gone = ["pgrep", "-f", "bin/salt-minion"]
    scene.master.wait(lambda: not scene.container.run(gone, check=False).ok, 60, "its end")
    assert scene.container.run(["dpkg", "--audit"]).stdout == ""


def test_apt_inside_a_state_with_a_blocking_restart(scene: JobScene) -> None:
    """With plain Salt, dpkg and all jobs are killed after 90 s."""
    before = scene.pid()
    scene.sls(
        "apt",
        "apt:\n  cmd.run:\n    - name: apt-get update && apt-get install -y --reinstall "
        f"salt-minion\nafter:\n  cmd.run:\n    - name: echo after >> {WORK}\n",
    )
    ret = scene.returned(scene.publish("state.apply", "apt"), 200)
    assert [value["result"] for value in ret["return"].values()] == [True, True], ret
    scene.minion_started(before)
    scene.answers()
    assert scene.dpkg_status() == "install ok installed"
    assert scene.container.run(["dpkg", "--audit"]).stdout == ""
    assert scene.traces() == ["after"]
    assert_usual(scene)


def assert_usual(scene: JobScene) -> None:
    """Nothing is left of a stop that was put off."""
    ours = ["systemctl", "list-units", "--no-legend", "salt-minion-make-up*", "*safeupdate-tmp*"]
    scene.master.wait(lambda: not scene.container.run(ours).stdout, 30, "its unit to end")
    place = "/run/systemd/system/salt-minion.service.d"
    assert not scene.container.run(["ls", place], check=False).ok
    shown = scene.container.run(["systemctl", "show", "--property=KillMode", "salt-minion"])
    assert shown.stdout.strip() != "KillMode=none"


@pytest.mark.parametrize("means", ["kill", "power"])
def test_an_interrupted_state_run_is_resumed_and_another_job_reported(
    scene: JobScene, means: str
) -> None:
    run = scene.publish("state.apply", "thirty", pillar={"label": "x"})
    other = scene.publish("cmd.run", f"echo other >> {WORK}; sleep 60")
    scene.wait_trace("x s12")
    scene.wait_trace("other")
    if means == "power":
        scene.container.power_cut()
    else:
        scene.kill()
        scene.container.run(["systemctl", "start", "salt-minion"])
    ret = scene.returned(run, 120)
    assert len(ret["return"]) == STATES
    assert all(value["result"] for value in ret["return"].values())
    resumed = [value for value in ret["return"].values() if value.get("__resumed__")]
    print(f"{means}: {len(resumed)} of {STATES} states gave their recorded result")
    if means == "kill":
        assert len(resumed) >= 12
        again = len(scene.traces()) - len(set(scene.traces()))
        assert again in (0, 1), "at most the state that was under way ran again"
    reported = scene.returned(other, 60)
    assert not reported["success"]
    assert "was interrupted" in reported["return"]
    assert scene.traces().count("other") == 1
    assert scene.open_jobs() == []


def test_an_interrupted_job_may_be_resumed_or_forgotten_by_hand(scene: JobScene) -> None:
    wanted = scene.publish(
        "cmd.run", f"echo wanted >> {WORK}; test -e {FLAG} || sleep 300; echo resumed"
    )
    unwanted = scene.publish("cmd.run", f"echo unwanted >> {WORK}; sleep 300")
    scene.wait_trace("wanted")
    scene.wait_trace("unwanted")
    scene.kill()
    scene.container.write(FLAG, "")
    recorded = scene.salt_call("--local", "safeupdate.jobs")["recorded"]
    assert {job["jid"]: job["state"] for job in recorded} == {
        wanted: "running",
        unwanted: "running",
    }
    nobody = scene.container.run(
        ["salt-call", "--local", "safeupdate.resume", "20200101000000000000"], check=False
    )
    assert not nobody.ok
    assert "There is no open job 20200101000000000000" in nobody.stdout + nobody.stderr
    assert scene.salt_call("--local", "safeupdate.forget", unwanted) == [unwanted]
    done = scene.salt_call("--local", "safeupdate.resume", wanted)
    assert done == {wanted: "it is started again"}
    scene.container.run(["systemctl", "start", "salt-minion"])
    assert scene.returned(wanted, 90)["return"] == "resumed"
    scene.answers()
    assert scene.call("safeupdate.jobs")["recorded"] == []
    assert scene.master.returns(unwanted) == {}
    assert sorted(scene.traces()) == ["unwanted", "wanted", "wanted"]


def test_a_state_may_ask_not_to_be_run_again(scene: JobScene) -> None:
    scene.sls(
        "once",
        f"once:\n  cmd.run:\n    - name: echo once >> {WORK}; sleep 60\n"
        f"    - safeupdate_rerun: False\nmore:\n  cmd.run:\n    - name: echo more >> {WORK}\n",
    )
    jid = scene.publish("state.apply", "once")
    scene.wait_trace("once")
    scene.kill()
    scene.container.run(["systemctl", "start", "salt-minion"])
    ret = scene.returned(jid, 120)["return"]
    results = {value["__id__"]: value for value in ret.values()}
    assert results["once"]["result"] is False
    assert "not run again" in results["once"]["comment"]
    assert results["more"]["result"] is True
    assert scene.traces() == ["once", "more"]


def test_a_master_that_is_down_gets_everything_when_it_is_back(
    make_scene: Callable[..., JobScene], version: str
) -> None:
    scene = make_scene(
        version, config={**WAITING, "return_retry_tries": 1, "return_retry_timer": 1}
    )
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; sleep 3; echo end >> {WORK}; echo kept")
    scene.wait_trace("start")
    scene.master.stop()
    scene.wait_trace("end")
    finished = f"SELECT state FROM jobs WHERE jid = '{jid}'"
    scene.master.wait(lambda: scene.query(finished) == [["finished"]], 120, "the kept return")
    before = scene.pid()
    scene.container.run(["systemctl", "restart", "salt-minion"])
    scene.minion_started(before)
    scene.master.start()
    scene.master.wait(lambda: MINION in scene.master.returns(jid), 400, "the return")
    assert scene.master.returns(jid)[MINION]["return"] == "kept"
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")


def test_the_bypass_stops_at_once(scene: JobScene) -> None:
    before = scene.pid()
    scene.publish("cmd.run", f"echo start >> {WORK}; sleep 300")
    scene.wait_trace("start")
    restart = scene.container.popen(["systemctl", "restart", "salt-minion"])
    scene.master.wait(lambda: scene.locked("drain"), 30, "the drain of the stop")
    scene.container.write("/run/salt-safeupdate/bypass", "")
    began = time.monotonic()
    assert restart.wait(120) == 0
    print(f"stopped {time.monotonic() - began:.1f} s after the bypass")
    assert scene.pid() not in ("0", before)
    assert not scene.container.exists("/run/salt-safeupdate/bypass")


@pytest.mark.soak
def test_nothing_is_given_up_because_the_host_stood_still(
    make_scene: Callable[..., JobScene], version: str
) -> None:
    """
    Frozen for longer than whoever waits has patience: a stop, an update that waits, and its watch.

    systemd in the container counts that time, too, so its own limit is longer.
    """
    short = {"stop_timeout": 40, "jobs_timeout": 40, "watch_timeout": 30}
    scene = make_scene(
        version,
        config={"safeupdate": {**WAITING["safeupdate"], **short}},
        offers=[f"salt-minion_{each}" for each in (version, other(version))],
    )
    work = f"echo start >> {WORK}; until test -e {FLAG}; do sleep 0.1; done; echo done"
    before, jid = scene.pid(), scene.publish("cmd.run", work)
    scene.wait_trace("start")
    restart = scene.container.popen(["systemctl", "restart", "salt-minion"])
    scene.master.wait(lambda: scene.locked("drain"), 30, "the drain of the stop")
    freeze(scene, 70)
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert restart.wait(60) == 0
    scene.minion_started(before)
    scene.answers()
    scene.container.run(["rm", FLAG, WORK])
    jid = scene.publish("cmd.run", work)
    scene.wait_trace("start")
    scene.call("safeupdate.update", other(version))
    scene.wait_phase("waiting")
    freeze(scene, 70)
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    scene.wait_phase("watching")
    freeze(scene, 70)
    assert scene.wait_end()["phase"] == "committed"
    assert scene.answers() == other(version)


def freeze(scene: JobScene, seconds: float) -> None:
    """Have nothing of the host run for so long."""
    file = cgroup(scene.container.name) / "cgroup.freeze"
    file.write_text("1")
    time.sleep(seconds)
    file.write_text("0")


def cgroup(name: str) -> Path:
    """Return the group of all processes of a container."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(each[1]) / name for each in mounts if each[2] == "cgroup2")
