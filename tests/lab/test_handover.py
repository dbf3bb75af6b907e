"""A restart for which no job waits, and which ends none."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.experiment import MINION
from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import MINION_PACKAGES
from devtools.master import Master
from tests.lab.handover import FLAG, UNTIL_FLAG, HandoverScene, other
from tests.lab.jobs import ENGINE, WORK, Stream, Timetable, thirty
from tests.lab.scene import SET_UP
from tests.lab.series import series

SECOND = "127.0.0.2"
LOG = "/var/log/salt/minion"

pytestmark = pytest.mark.parametrize("version", series("3008.3"))


@pytest.fixture(scope="module")
def scenes() -> Iterator[dict[str, HandoverScene]]:
    made: dict[str, HandoverScene] = {}
    yield made
    for scene in made.values():
        scene.down()


@pytest.fixture
def scene(
    lab: Lab,
    site: Path,
    scenes: dict[str, HandoverScene],
    version: str,
    request: pytest.FixtureRequest,
) -> Iterator[HandoverScene]:
    if version not in scenes:
        scenes[version] = HandoverScene(lab, site, version)
        scenes[version].up()
        scenes[version].have_own_tree()
    scene = scenes[version]
    scene.answers()
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the jobs of the test before")
    scene.container.run(["rm", "-f", WORK, FLAG])
    yield scene
    scene.tell_of(request.node)
    if scene.failed:
        scenes.pop(version).down()


def test_no_job_waits_for_a_restart_and_none_is_ended(scene: HandoverScene) -> None:
    before = scene.pid()
    jid = scene.publish(
        "cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    )
    scene.wait_trace("start")
    began = time.monotonic()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    print(f"the restart took {time.monotonic() - began:.1f} s")
    pings = [scene.publish("test.ping") for _ in range(10)]
    assert scene.pid() not in ("0", before)
    for ping in pings:
        assert scene.returned(ping, 60)["return"] is True
    found = scene.call("saltutil.find_job", jid, timeout=30)
    assert found["jid"] == jid
    print(scene.generations())
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert scene.traces() == ["start", "end"]
    scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")
    assert list(scene.generations().values())[-2:] == ["gone", "serving"]


def test_jobs_of_both_are_seen_and_ended_as_those_of_one(scene: HandoverScene) -> None:
    work = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}"
    jobs = [scene.publish("cmd.run", work) for _ in range(2)]
    scene.master.wait(lambda: scene.traces() == ["start"] * 2, 60, "the jobs of the earlier one")
    before = list(scene.generations())[-1]
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.wait_generations(lambda each: each[before] == "leaving", 90, "the next one to serve")
    jobs.append(scene.publish("cmd.run", work))
    scene.master.wait(lambda: scene.traces() == ["start"] * 3, 60, "the job of the next one")
    assert {each["jid"] for each in scene.call("saltutil.running")} >= set(jobs)
    assert {each["jid"] for each in scene.call("safeupdate.jobs")["recorded"]} >= set(jobs)
    assert [str(pid) for pid in scene.call("safeupdate.status")["earlier"]] == [before]
    for jid, function in zip(jobs, ("term_job", "kill_job", "term_job"), strict=True):
        assert scene.call("saltutil.find_job", jid, timeout=30)["jid"] == jid
        scene.call(f"saltutil.{function}", jid)
        assert not scene.returned(jid, 60)["success"]
    # What the jobs have started in a shell goes on, as with plain Salt.
    scene.container.write(FLAG, "")
    scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")
    assert scene.generations()[before] == "gone"
    assert scene.open_jobs() == []


def test_a_job_may_ask_for_the_restart_itself(scene: HandoverScene) -> None:
    before = scene.pid()
    script = f"set -e; systemctl restart salt-minion; echo after >> {WORK}; echo after"
    jid = scene.publish(["cmd.run", "safeupdate.check"], [script], [])
    found = scene.returned(jid, 60)["return"]
    assert found["cmd.run"] == "after"
    assert [each["code"] for each in found["safeupdate.check"]] == ["leaving"]
    scene.minion_started(before)
    scene.master.wait(lambda: scene.call("safeupdate.check") == [], 60, "the next one to answer")
    jid = scene.publish("safeupdate.restart", "for a test")
    assert scene.returned(jid, 60)["success"]
    assert scene.wait_end()["phase"] == "committed"
    scene.answers()
    assert scene.traces() == ["after"]


def test_state_runs_wait_for_those_of_the_earlier_minion_for_as_long_as_a_restart_would(
    scene: HandoverScene,
) -> None:
    """
    A state run goes on over a restart, and Salt would refuse any other one.

    | The run before the restart | Startup states, a published run, one of the schedule |
    | --- | --- |
    | ends | begin then |
    | hangs | begin after ``stop_timeout`` |
    """
    until = f"echo start >> {WORK}; {UNTIL_FLAG}"
    for name, command in (
        ("long", until),
        *((each, f"echo {each} >> {WORK}") for each in ("startup", "published", "scheduled")),
    ):
        scene.sls(name, f"{name}:\n  cmd.run:\n    - name: {json.dumps(command)}\n")
    ours = {**SET_UP["safeupdate"], "stop_timeout": 20}
    due = {"function": "state.apply", "args": ["scheduled"], "seconds": 3600, "run_on_start": True}
    config = {
        "startup_states": "sls",
        "sls_list": ["startup"],
        "schedule": {"runs": due},
    }
    place = "/etc/salt/minion.d/zz-runs.conf"
    for more in ({}, {"safeupdate": ours}):
        scene.container.run(["rm", "-f", WORK, FLAG])
        scene.container.write(place, json.dumps({**config, **more}) + "\n")
        first = scene.publish("state.apply", "long")
        scene.wait_trace("start")
        before = scene.pid()
        scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
        scene.minion_started(before)
        second = scene.publish("state.apply", "published")
        if not more:
            scene.wait_held(second)
            scene.master.wait(
                lambda: "the scheduled job runs waits" in scene.container.read(LOG, ""),
                90,
                "the next one to look at its schedule",
            )
            assert scene.traces() == ["start"]
            scene.container.write(FLAG, "")
        assert scene.returned(second)["success"]
        for each in ("startup", "scheduled"):
            scene.wait_trace(each, 90)
        if more:
            assert scene.call("saltutil.find_job", first, timeout=30)["jid"] == first
            scene.container.write(FLAG, "")
        assert scene.returned(first)["success"]
        assert Counter(scene.traces()) == Counter(["start", "startup", "published", "scheduled"])
        scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")
    scene.container.run(["rm", place])


@pytest.mark.soak
def test_what_is_scheduled_during_a_handover_runs_once(scene: HandoverScene) -> None:
    """See ``Timetable``. Both generations have the schedule."""
    table = Timetable(scene, 45, FLAG)
    table.wait_until(4)
    before = scene.pid()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.minion_started(before)
    table.move()
    table.is_at_work()
    table.wait_until(32)
    scene.container.write(FLAG, "")
    table.judge()
    scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")


def test_a_deferred_restart_does_not_wait_for_a_job(scene: HandoverScene) -> None:
    before = scene.pid()
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    scene.call("safeupdate.restart", "for a test")
    assert scene.wait_end()["phase"] == "committed"
    assert scene.pid() not in ("0", before)
    assert scene.call("safeupdate.status")["earlier"]
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")
    assert "earlier" not in scene.call("safeupdate.status")


def test_a_stop_waits_for_the_jobs_of_both_and_ends_both(scene: HandoverScene) -> None:
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    # Salt's unit has failed if it is stopped before the minion has a handler for that.
    scene.wait_taken_over(60, "the next minion to serve")
    stop = scene.container.popen(["systemctl", "stop", "salt-minion"])
    scene.master.wait(lambda: scene.locked("drain"), 30, "the drain of the stop")
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert stop.wait(120) == 0
    scene.master.wait(lambda: scene.left() == [], 60, f"nothing to be left ({scene.left()})")
    assert scene.container.service()["ActiveState"] == "inactive"
    scene.container.run(["systemctl", "start", "salt-minion"])


# In every run, test_watch.py and test_systemd.py have it.
@pytest.mark.soak
def test_a_stop_in_the_place_of_our_own_restart_is_left(scene: HandoverScene) -> None:
    """systemd replaces a restart that has not come yet by the stop, and nobody undoes that."""
    run = scene.container.run
    # It comes before the stop guard.
    drop_in = "/etc/systemd/system/salt-minion.service.d/40-slow.conf"
    scene.container.write(drop_in, "[Service]\nExecStop=/bin/sleep 10\n")
    run(["systemctl", "daemon-reload"])
    scene.call("safeupdate.restart", "for a test")
    scene.master.wait(
        lambda: scene.container.service()["ActiveState"] == "deactivating", 60, "the restart"
    )
    run(["systemctl", "stop", "salt-minion"], timeout=120)
    ended = scene.wait_end()
    assert ended["kind"] == "restart"
    assert "Somebody has stopped salt-minion" in ended["reason"], ended
    assert scene.container.service()["ActiveState"] in ("inactive", "failed")
    assert scene.left() == []
    run(["rm", drop_in])
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "start", "salt-minion"])
    scene.answers()


LEFT = "sleep 4321"


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["process", "mixed"])
def test_what_a_job_left_in_the_background_fares_at_a_stop_as_the_unit_says(
    scene: HandoverScene, mode: str
) -> None:
    run = scene.container.run
    drop_in = "/etc/systemd/system/salt-minion.service.d/70-kill.conf"
    scene.container.write(drop_in, f"[Service]\nKillMode={mode}\n")
    run(["systemctl", "daemon-reload"])
    left = scene.call("cmd.run", f"setsid {LEFT} >/dev/null 2>&1 </dev/null & echo $!")
    run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.wait_taken_over(60, "the next minion to serve")
    lives = ["test", "-d", f"/proc/{left}"]
    assert run(lives, check=False).ok
    assert run(["systemctl", "stop", "salt-minion"], timeout=120).ok
    assert run(lives, check=False).ok is (mode == "process")
    assert scene.left() == []
    run(["kill", "-KILL", str(left)], check=False)
    run(["rm", drop_in])
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "start", "salt-minion"])


def test_the_minion_before_serves_if_the_next_one_does_not_come_up(scene: HandoverScene) -> None:
    drop_in = "/etc/systemd/system/salt-minion.service.d/70-broken.conf"
    scene.container.write(drop_in, "[Service]\nExecStartPre=/bin/false\n")
    scene.container.run(["systemctl", "daemon-reload"])
    before = list(scene.generations())[-1]
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60, check=False)
    for number in range(5):
        assert scene.call("test.echo", number) == number
    assert scene.generations()[before] == "overlapping"
    scene.container.run(["rm", drop_in])
    scene.container.run(["systemctl", "daemon-reload"])
    scene.container.run(["systemctl", "reset-failed", "salt-minion"])
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.wait_generations(lambda each: each[before] == "gone", 90, "the one before to go")
    scene.answers()
    assert scene.left() == []


@pytest.mark.soak
def test_a_minion_that_is_the_main_process_says_why_its_restarts_wait(scene: HandoverScene) -> None:
    """Salt's own program starts no process above it, so systemd ends the unit with it."""
    drop_in = "/etc/systemd/system/salt-minion.service.d/70-alone.conf"
    alone = "[Service]\nExecStart=\nExecStart=/usr/bin/salt-minion --disable-keepalive\n"
    try:
        scene.container.write(drop_in, alone)
        scene.container.run(["systemctl", "daemon-reload"])
        before = list(scene.generations())[-1]
        scene.container.run(["systemctl", "restart", "salt-minion"], timeout=90)
        scene.wait_generations(lambda each: each[before] == "gone", 90, "the one before to go")
        scene.answers()
        scene.master.wait(
            lambda: "as with '--disable-keepalive'" in json.dumps(scene.call("safeupdate.status")),
            30,
            "the status to say why",
        )
        jid = scene.publish("cmd.run", f"{UNTIL_FLAG}; echo done")
        scene.container.run(["systemctl", "restart", "--no-block", "salt-minion"])
        scene.master.wait(
            lambda: (
                "as with '--disable-keepalive'"
                in scene.container.run(["journalctl", "--unit=salt-minion"]).stdout
            ),
            30,
            "the guard to say why",
        )
        scene.container.write(FLAG, "")
        assert scene.returned(jid)["success"]
    finally:
        scene.container.run(["rm", "-f", drop_in])
        scene.container.run(["systemctl", "daemon-reload"])
        scene.container.run(["systemctl", "restart", "salt-minion"], timeout=90)
    scene.answers()


# What administrators and programs do: needrestart and the scriptlets of packages call systemctl,
# or what Debian has for that.
MEANS = {
    "systemctl": ["systemctl", "restart", "salt-minion"],
    "only if it runs": ["systemctl", "try-restart", "salt-minion.service"],
    "without waiting": ["systemctl", "--no-block", "restart", "salt-minion"],
    "service": ["service", "salt-minion", "restart"],
    "scriptlets": ["deb-systemd-invoke", "restart", "salt-minion.service"],
    "salt-call": ["salt-call", "--local", "service.restart", "salt-minion"],
}
FROM_JOBS: dict[str, tuple[str, ...]] = {
    "job": ("cmd.run", "systemctl restart salt-minion && echo after"),
    "script": ("cmd.run", "set -e; systemctl restart salt-minion; echo after"),
    "function": ("service.restart", "salt-minion"),
}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_by_whichever_means_it_comes(scene: HandoverScene) -> None:
    """One job runs through all of them: none of them waits for it, and none ends it."""
    work = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    jid = scene.publish("cmd.run", work)
    scene.wait_trace("start")
    for name, argv in MEANS.items():
        before = scene.pid()
        result = scene.container.run(argv, timeout=120, check=False)
        assert result.ok, (name, result.stdout, result.stderr)
        comes_next(scene, name, before)
    for name, (function, *words) in FROM_JOBS.items():
        before = scene.pid()
        ret = scene.returned(scene.publish(function, *words), 120)
        assert ret["success"], (name, ret)
        assert ret["return"] in ("after", True), (name, ret)
        comes_next(scene, name, before)
    assert scene.traces() == ["start"]
    assert scene.call("saltutil.find_job", jid, timeout=30)["jid"] == jid
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert scene.traces() == ["start", "end"]
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")


def comes_next(scene: HandoverScene, name: str, before: str) -> None:
    """Another minion serves, and no restart has waited for a job."""
    scene.minion_started(before)
    scene.wait_taken_over(90, f"the next minion to serve after {name}")
    scene.answers()
    assert "waited" not in scene.call("safeupdate.status"), name

    def earlier() -> int:
        return len(scene.call("safeupdate.status")["earlier"])

    # As many as may stay at the same time would have the next restart wait.
    scene.master.wait(lambda: earlier() == 1, 90, "only the one with the job to be left")
    assert scene.call("safeupdate.status")["restart"] == "handover", name


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", ["zeromq", "tcp", "ws"])
def test_by_whichever_transport_one_that_leaves_keeps_no_master_waiting(
    lab: Lab, site: Path, version: str, transport: str, begin: Callable[[Any], Any]
) -> None:
    """A master may wait for each that has subscribed: more is published than buffers hold."""
    if transport == "ws" and version.startswith("3006"):
        transport = "tcp"
    config = {"transport": transport}
    scene = begin(HandoverScene(lab, site, version, master_config=config))
    scene.container.write("/etc/salt/minion.d/transport.conf", f"transport: {transport}\n")
    scene.up()
    before = scene.pid()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=120)
    scene.minion_started(before)
    scene.answers()
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    earlier = list(scene.generations())[-1]
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.wait_generations(lambda each: each[earlier] == "leaving", 90, "the next to serve")
    for number in range(200):
        scene.publish("cmd.run", f"true {'x' * 100_000}")
        if number % 10 == 9:
            # As many at once as the minion can run.
            assert scene.call("test.echo", number, timeout=60) == number
    assert scene.generations()[earlier] == "leaving"
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")


UNITS = {
    "simple": "Type=simple\nRestart=always\nRestartSec=1\nKillMode=control-group\n",
    "notify": "Type=notify\nNotifyAccess=main\nRestart=on-failure\nKillMode=mixed\n",
}


@pytest.mark.soak
@pytest.mark.parametrize("unit", UNITS)
def test_what_the_unit_says_of_its_start_and_its_end_is_honoured(
    scene: HandoverScene, unit: str
) -> None:
    """No process that is handed over counts for it: neither as its main one nor as its failure."""
    run, shown = scene.container.run, "Result,NRestarts,ActiveState"
    drop_in = "/etc/systemd/system/salt-minion.service.d/70-unit.conf"
    scene.container.write(drop_in, f"[Service]\n{UNITS[unit]}")
    run(["systemctl", "daemon-reload"])
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    for _ in range(2):
        before = scene.pid()
        run(["systemctl", "restart", "salt-minion"], timeout=60)
        comes_next(scene, unit, before)
        said = run(["systemctl", "show", f"--property={shown}", "salt-minion"]).stdout.split()
        assert sorted(said) == ["ActiveState=active", "NRestarts=0", "Result=success"]
    # One that dies is started again, and the job of the earlier one goes on.
    before = scene.pid()
    run(["kill", "-KILL", before])
    scene.minion_started(before)
    scene.answers()
    assert scene.call("saltutil.find_job", jid, timeout=30)["jid"] == jid
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    run(["rm", drop_in])
    run(["systemctl", "daemon-reload"])
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")


@pytest.mark.soak
def test_a_minion_that_a_watchdog_ends_is_started_again_and_no_job_is_lost(
    scene: HandoverScene,
) -> None:
    """Salt sends no ``WATCHDOG=1``, so it ends each minion; an earlier one is none of its own."""
    run = scene.container.run
    drop_in = "/etc/systemd/system/salt-minion.service.d/70-watchdog.conf"
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    scene.container.write(drop_in, "[Service]\nRestart=always\nRestartSec=1\nWatchdogSec=20\n")
    run(["systemctl", "daemon-reload"])
    before = scene.pid()
    run(["systemctl", "restart", "salt-minion"], timeout=60)
    comes_next(scene, "another minion", before)
    before = scene.pid()
    own = scene.publish("cmd.run", f"echo own >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("own")
    scene.minion_started(before)
    shown = run(["journalctl", "--unit=salt-minion", "--grep=[Ww]atchdog timeout", "--quiet"])
    assert "atchdog timeout" in shown.stdout
    run(["rm", drop_in])
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "restart", "salt-minion"], timeout=60)
    scene.answers()
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    # Whether it dies with its minion is up to ``KillMode=``.
    found = scene.returned(own)["return"]
    assert found == "done" or "was interrupted" in found
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")


@pytest.mark.soak
@pytest.mark.parametrize("what", ["a module", "the program"])
def test_code_that_somebody_replaces_has_the_next_one_serve_and_no_job_waits(
    lab: Lab, site: Path, version: str, begin: Callable[[Any], Any], what: str
) -> None:
    scene = begin(HandoverScene(lab, site, version, on_change="restart")).up()
    scene.have_own_tree()
    before = scene.pid()
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    path = f"{SITE_PACKAGES}/yaml/__init__.py"
    if what == "the program":
        path = scene.container.run(["readlink", "-f", f"/proc/{before}/exe"]).stdout.strip()
    scene.container.run(["cp", "-a", path, f"{path}.new"])
    scene.container.run(["mv", f"{path}.new", path])
    scene.minion_started(before, timeout=240)
    scene.wait_taken_over(90, "the next minion to serve")
    ended = scene.wait_end()
    assert (ended["kind"], ended["phase"]) == ("restart", "committed")
    assert path in ended["reason"]
    assert scene.traces() == ["start"], "the job goes on"
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")


def with_two_masters(
    scene: HandoverScene, make_master: Callable[..., Master], **config: Any
) -> Master:
    """Have the minion know two masters, and be one that can be handed over; return the second."""
    told = {"master": ["127.0.0.1", SECOND], **config}
    scene.container.write("/etc/salt/minion.d/masters.conf", yaml.safe_dump(told))
    settings = {**ENGINE, "interface": SECOND}
    second = make_master(scene.container, config=settings, pythonpath=scene.site)
    # The masters of one minion have one key.
    shutil.copytree(second.dir / "pki", scene.master.dir / "pki")
    scene.up()
    before = scene.pid()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=120)
    scene.minion_started(before)
    scene.answers()
    scene.master.wait(lambda: scene.left() == [], 90, "the next generation to serve alone")
    return second


def publish(master: Master, line: str) -> str:
    return master.publish("cmd.run", line, target=MINION, tgt_type="list")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_jobs_of_several_masters_run_once_and_a_master_may_be_away(
    lab: Lab,
    site: Path,
    version: str,
    begin: Callable[[Any], Any],
    make_master: Callable[..., Master],
) -> None:
    """Each generation is connected to both, and each job of either is run by one of them."""
    scene = begin(HandoverScene(lab, site, version))
    masters = (scene.master, with_two_masters(scene, make_master))
    _, second = masters
    second.wait_minion(MINION, 90)
    work = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    long = [publish(master, work) for master in masters]
    scene.master.wait(lambda: scene.traces() == ["start"] * 2, 60, "a job of each master")
    earlier = list(scene.generations())[-1]
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    sent = [
        (master, publish(master, f"echo {number} >> {WORK}"))
        for number in range(30)
        for master in masters
    ]
    for master, jid in sent:
        assert master.wait_return(jid, MINION, 90)["success"]
    assert Counter(scene.traces()) == {"start": 2, **{str(number): 2 for number in range(30)}}
    scene.wait_generations(lambda each: each[earlier] == "leaving", 90, "the next to serve")
    second.stop()
    scene.container.write(FLAG, "")
    assert scene.returned(long[0])["return"] == "done"
    scene.master.wait(lambda: scene.traces().count("end") == 2, 60, "the other job to end")
    second.start()
    second.wait(lambda: MINION in second.returns(long[1]), 300, "the return that it has missed")
    assert second.returns(long[1])[MINION]["return"] == "done"
    scene.master.wait(lambda: scene.left() == [], 120, f"nothing to be left ({scene.left()})")
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_next_one_may_come_to_another_master_than_the_earlier_one(
    lab: Lab,
    site: Path,
    version: str,
    begin: Callable[[Any], Any],
    make_master: Callable[..., Master],
) -> None:
    """The master of the earlier one is away: nobody waits for it, and the next one has another."""
    scene = begin(HandoverScene(lab, site, version))
    second = with_two_masters(scene, make_master, master_type="failover")
    jid = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo done")
    scene.wait_trace("start")
    earlier = list(scene.generations())[-1]
    scene.master.stop()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    second.wait_minion(MINION, 120)
    second.wait(lambda: scene.generations()[earlier] == "leaving", 120, "the next one to serve")
    scene.container.write(FLAG, "")
    second.wait(lambda: MINION in second.returns(jid), 120, "the return of the job")
    assert second.returns(jid)[MINION]["return"] == "done"
    second.wait(lambda: scene.left() == [], 120, f"nothing to be left ({scene.left()})")


@pytest.mark.timeout(600)
def test_four_restarts_in_a_row(scene: HandoverScene) -> None:
    restarts_in_a_row(scene, 4)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_two_hundred_restarts_in_a_row(scene: HandoverScene) -> None:
    restarts_in_a_row(scene, 200)


def restarts_in_a_row(scene: HandoverScene, count: int) -> None:
    """Restart the minion again and again under a stream of jobs: none is lost."""
    scene.sls("thirty", thirty(0.02))
    took = []
    with Stream(scene, interval=0.4) as stream:
        for number in range(count):
            began = time.monotonic()
            scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
            took.append(time.monotonic() - began)
            if number % 4:
                # Every fourth one comes while the last one is under way.
                scene.answers()
    missing = stream.await_returns(120)
    found = stream.verdict()
    print(
        f"{count} restarts of {min(took):.1f} to {max(took):.1f} s: {len(stream.sent)} jobs, "
        f"{len(missing)} silent, {len(found['twice'])} twice, {len(found['reported'])} reported"
    )
    assert missing == []
    assert (found["twice"], found["wrong"], found["reported"]) == ([], [], [])
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")
    assert scene.open_jobs() == []


CHANGES = f"""
wait:
  cmd.run:
    - name: echo start >> {WORK}; {UNTIL_FLAG}
last:
  schedule.present:
    - function: test.ping
    - seconds: 3600
    - require: [cmd: wait]
  grains.present:
    - value: here
    - require: [cmd: wait]
saltutil.refresh_pillar:
  module.run:
    - require: [cmd: wait]
"""


@pytest.mark.soak
def test_the_next_minion_has_what_jobs_of_the_earlier_one_change(scene: HandoverScene) -> None:
    scene.sls("changes", CHANGES)
    scene.pillar("kept: old\n")
    jid = scene.publish("state.apply", "changes")
    scene.wait_trace("start")
    earlier = list(scene.generations())[-1]
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
    first = [
        scene.publish("schedule.add", "first", "function=test.ping", "seconds=3600"),
        scene.publish("grains.setval", "first", "here"),
        scene.publish("saltutil.refresh_pillar"),
    ]
    found = [scene.returned(each, 60)["return"] for each in first]
    assert found[0]["result"], found
    assert found[1:] == [{"first": "here"}, True]
    scene.wait_generations(lambda each: each[earlier] == "leaving", 90, "the next to serve")
    # It has read all of it by now, and only an event makes it read it again.
    scene.pillar("kept: new\n")
    assert scene.call("pillar.raw", "kept") == "old"
    scene.container.write(FLAG, "")
    states = scene.returned(jid)["return"]
    assert [each["result"] for each in states.values()] == [True] * 4, states
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")
    scene.master.wait(lambda: scene.call("pillar.raw", "kept") == "new", 30, "the new pillar")
    schedule = scene.call("schedule.list", return_yaml=False)
    for name in ("first", "last"):
        assert scene.call("grains.get", name) == "here"
        assert name in schedule
        assert name in scene.container.read("/etc/salt/minion.d/_schedule.conf")


FIRST_USED = {
    "hashutil.sha256_digest": ["x"],
    "disk.usage": [],
    "user.list_users": [],
    "sysctl.get": ["kernel.ostype"],
    "random.get_str": [],
    "status.uptime": [],
    "sys.list_renderers": [],
    "mount.active": [],
}
LONG = f"""
wait:
  cmd.run:
    - name: echo start >> {WORK}; {UNTIL_FLAG}
/tmp/x.ini:
  ini.options_present:
    - sections: {{a: {{b: c}}}}
    - require: [cmd: wait]
/tmp/y.json:
  file.serialize:
    - dataset: {{a: 1}}
    - serializer: json
    - require: [cmd: wait]
later:
  group.present:
    - require: [cmd: wait]
"""


@pytest.mark.soak
def test_a_generation_goes_on_with_its_version_whoever_installs_another_one(
    scene: HandoverScene, version: str
) -> None:
    scene.sls("long", LONG)
    jid = scene.publish("state.apply", "long")
    scene.wait_trace("start")
    wanted = " ".join(f"{package}={other(version)}" for package in MINION_PACKAGES)
    unpack = f"cd /tmp; apt-get update; apt-get download {wanted}; dpkg --unpack salt-*.deb"
    scene.container.run(["sh", "-c", unpack], timeout=300)
    for function, arguments in FIRST_USED.items():
        found = scene.call(function, *arguments)
        assert found, function
        assert "not available" not in str(found), (function, found)
    assert scene.call("test.version") == version
    scene.container.run(["dpkg", "--configure", "-a"], timeout=120)
    scene.master.wait(
        lambda: scene.call("test.version") == other(version), 90, "the next one to serve"
    )
    scene.container.write(FLAG, "")
    states = scene.returned(jid)["return"]
    assert [each["result"] for each in states.values()] == [True] * 4, states
    scene.master.wait(lambda: scene.left() == [], 90, "nothing to be left")
    scene.master.wait(lambda: len(scene.trees()) == 1, 120, "the old tree to be gone")
    reports = scene.query("SELECT report FROM generations ORDER BY rowid")
    assert [json.loads(text)["own_tree"] for (text,) in reports][-2:] == [True, True]
