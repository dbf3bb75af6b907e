"""
An update beside a running job, and what dies in which phase of it.

The supervisor is stopped the moment its record is in the phase; then the fault happens, and it goes
on. Each row ends with a minion that works. The job is none of the business of whatever dies, unless
that has the job: then its master is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.lab.container import Lab
from tests.lab import engine, faults
from tests.lab.engine import QUICK, EngineScene
from tests.lab.handover import FLAG, UNTIL_FLAG, HandoverScene
from tests.lab.jobs import WORK
from tests.lab.rpm import PAIRS, RpmHost
from tests.lab.test_engine_faults import FAULTY
from tests.lab.test_engine_faults import PAIR as APT

HOSTS = ("apt", "dnf", "zypper")
# From the moment in which packages change: before that it is an update as any other.
PHASES = ("installing", "restarting", "watching", "rolling_back")
# The supervisor; the minion that has the job, with it; the next minion; the stop guard, which hands
# over; the power.
FAULTS = ("supervisor", "minion", "next", "guard", "power")
# Where they are there; what is rolled back here has not started.
PRESENT = {"next": ("watching",), "guard": ("restarting",)}
ROWS = [
    (phase, fault) for phase in PHASES for fault in FAULTS if phase in PRESENT.get(fault, PHASES)
]
SHORT = {("apt", "watching", "next")}
# What never has the job: it runs on to its end.
SPARING = ("supervisor", "next")
SCOPES = "salt-minion-before-*.scope"
# Kills the program of the stop guard as soon as it runs.
AMBUSH_OF_GUARD = """
import os, signal, sys, time
print(flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(bytes(1))
            if any(word.endswith(b"/stop_guard.sh") for word in words[:2]):
                os.kill(int(name), signal.SIGKILL)
                sys.exit()
        except OSError:
            pass
    time.sleep(0.002)
sys.exit("it did not run")
"""


# The same as soon as the guard and the minion have come to a step, whose directory is named.
AMBUSH_AT_STEP = """
import glob, os, signal, sys, time
print(flush=True)
end = time.monotonic() + 300
while time.monotonic() < end and not glob.glob(sys.argv[1]):
    time.sleep(0.001)
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/cmdline", "rb") as file:
            words = file.read().split(bytes(1))
        if any(word.endswith(b"/stop_guard.sh") for word in words[:2]):
            os.kill(int(name), signal.SIGKILL)
    except OSError:
        pass
sys.exit(time.monotonic() >= end)
"""
STEPS = ("asked", "taken", "moved")


class AptScene(HandoverScene, EngineScene):
    """A host with apt whose minion is updated beside jobs."""


class RpmScene(RpmHost, AptScene):
    """One of rpm's."""

    offer_name = "{}"


@pytest.fixture(scope="module")
def scene(
    lab: Lab, site: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[HandoverScene, faults.Pair]]:
    settings = QUICK["safeupdate"]
    if request.param == "apt":
        made, pair = AptScene(lab, site, engine.OLD, FAULTY, **settings), APT
    else:
        # What it is packed with is no setting.
        made = RpmScene(lab, site, engine.OLD, front_end=request.param, faulty=True, **settings)
        pair = PAIRS[request.param]
    try:
        made.up()
        made.have_own_tree()
        yield made, pair
    finally:
        made.down()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("scene", "phase", "fault"),
    [
        pytest.param(name, *row, marks=() if (name, *row) in SHORT else pytest.mark.soak)
        for name in HOSTS
        for row in ROWS
    ],
    indirect=["scene"],
)
def test_whatever_dies_beside_a_running_job(
    scene: tuple[HandoverScene, faults.Pair],
    table: list[str],
    phase: str,
    fault: str,
    request: pytest.FixtureRequest,
) -> None:
    host, pair = scene
    assert isinstance(host, EngineScene)
    faults.get_ready(host, pair)
    host.master.wait(lambda: host.open_jobs() == [], 60, "the jobs of the test before")
    host.master.wait(lambda: host.left() == [], 90, "the generations of the test before")
    host.container.run(["rm", "-f", WORK, FLAG])
    command = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    jid = host.publish("cmd.run", command)
    host.wait_trace("start")
    try:
        row = faults.survive(host, pair, phase, fault, happen)
        assert json.loads(host.record()["extra"])["progress"].get("beside"), "beside the job"
        ends_or_is_reported(host, jid, fault)
        host.master.wait(lambda: host.left() == [], 90, f"nothing to be left ({host.left()})")
        host.master.wait(lambda: host.open_jobs() == [], 60, "the ledger to be empty")
        # The one of the code as it is on disk is for the next generation, too.
        host.master.wait(lambda: len(host.trees()) <= 1, 120, f"no other copy ({host.trees()})")
    finally:
        host.container.write(FLAG, "")
        host.tell_of(request.node)
    name = request.node.callspec.params["scene"]
    table.append(f"{name:<8}{row}")


def at_work(host: HandoverScene) -> str:
    """Return a job that has begun, beside nothing of the tests before."""
    host.master.wait(lambda: host.open_jobs() == [], 60, "the jobs of the test before")
    host.master.wait(lambda: host.left() == [], 90, "the generations of the test before")
    host.container.run(["rm", "-f", WORK, FLAG])
    jid = host.publish(
        "cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    )
    host.wait_trace("start")
    return jid


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scene", ["apt"], indirect=True)
def test_the_guard_dies_at_a_step_of_a_plain_restart(
    scene: tuple[HandoverScene, faults.Pair], step: str, request: pytest.FixtureRequest
) -> None:
    host, _ = scene
    jid, before = at_work(host), host.pid()
    place = f"{host.run_dir}/handover.*.{step}"
    ambush = host.container.popen(["python3", "-c", AMBUSH_AT_STEP, place])
    assert ambush.stdout is not None
    ambush.stdout.readline()
    try:
        restart = host.container.popen(["systemctl", "restart", "salt-minion"])
        assert ambush.wait(330) == 0
        # If the minion is not handed over, it waits for its job: it was told to stop.
        host.container.write(FLAG, "")
        restart.wait(330)
        if host.container.service()["ActiveState"] == "failed":
            host.container.run(["systemctl", "start", "salt-minion"])
        host.minion_started(before)
        host.answers()
        ends_or_is_reported(host, jid, "guard")
        host.master.wait(lambda: host.left() == [], 90, f"nothing to be left ({host.left()})")
        host.master.wait(lambda: host.open_jobs() == [], 60, "the ledger to be empty")
    finally:
        host.container.write(FLAG, "")
        host.tell_of(request.node)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", ["apt"], indirect=True)
def test_a_restart_needs_no_bus_of_the_host(
    scene: tuple[HandoverScene, faults.Pair], request: pytest.FixtureRequest
) -> None:
    host, _ = scene
    jid, before = at_work(host), host.pid()
    host.container.run(["systemctl", "stop", "dbus.socket", "dbus.service"])
    try:
        host.container.run(["systemctl", "restart", "salt-minion"], timeout=60)
        host.minion_started(before)
        host.answers()
        assert host.traces() == ["start"], "the job goes on in the earlier one"
        host.container.write(FLAG, "")
        assert host.returned(jid)["return"] == "done"
        host.master.wait(lambda: host.left() == [], 90, f"nothing to be left ({host.left()})")
    finally:
        host.container.run(["systemctl", "start", "dbus.socket"])
        host.container.write(FLAG, "")
        host.tell_of(request.node)


def ends_or_is_reported(scene: HandoverScene, jid: str, fault: str) -> None:
    """The job ends as if nothing had been, or its master is told; it never runs twice."""
    scene.container.write(FLAG, "")
    returned = scene.returned(jid, 300)
    if fault in SPARING:
        assert returned["return"] == "done", returned
    if returned["return"] == "done":
        assert scene.traces() == ["start", "end"]
    else:
        assert "was interrupted" in str(returned["return"]), returned
        assert scene.traces().count("start") == 1


def happen(scene: EngineScene, fault: str, pid: str) -> None:
    """Have something die while the supervisor *pid* is stopped, and have that go on."""
    if fault in ("power", "supervisor"):
        faults.strike(scene, fault, pid)
        return
    run = scene.container.run
    ambush = None
    if fault == "guard":
        ambush = scene.container.popen(["python3", "-c", AMBUSH_OF_GUARD])
        assert ambush.stdout is not None
        # It looks from here on.
        ambush.stdout.readline()
    else:
        if scene.record()["phase"] == "watching":
            # It is just being handed over.
            scene.master.wait(
                lambda: scopes(scene) and scene.container.service()["ActiveState"] == "active",
                60,
                "the next minion",
            )
        victim = SCOPES if fault == "minion" and scopes(scene) else "salt-minion"
        run(["systemctl", "kill", "-s", "KILL", "--kill-who=all", victim], check=False)
    run(["kill", "-CONT", pid], check=False)
    if ambush is not None:
        assert ambush.wait(330) == 0
    elif fault == "minion" and scene.container.service()["ActiveState"] == "failed":
        # Nobody but an administrator starts it where no update restarts it.
        run(["systemctl", "start", "salt-minion"], check=False)


def scopes(scene: EngineScene) -> str:
    """Return what systemd has of earlier minions."""
    argv = ["systemctl", "list-units", "--no-legend", "--plain", SCOPES]
    return scene.container.run(argv).stdout.strip()


def test_the_table_is_complete() -> None:
    assert {(name, *row) for name in HOSTS for row in ROWS} >= SHORT
    assert len(PHASES) * len(FAULTS) == 20
    assert len(ROWS) == 14
