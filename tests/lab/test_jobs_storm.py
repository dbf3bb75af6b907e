"""
Restarts by seven means in random order, under a stream of jobs: none ends in silence.

A minion that was killed is brought back by its unit. Where somebody ends it, or the power fails,
what comes before the next start is lost, as with plain Salt, and does not come later.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from devtools import venvs
from devtools.lab.container import Lab
from tests.lab.jobs import WAYS, JobScene, Stream, thirty
from tests.lab.series import series

OFF = ("term", "power")
AGAIN = "[Service]\nRestart=on-failure\nRestartSec=100ms\n"
MEANS = ("administrator", "packages", "in-state", "term", "kill-main", "kill-all", "power")
SEED = 20261121


def strike(scene: JobScene, means: str) -> None:
    """Make the minion restart, and wait until the next one runs."""
    before = scene.pid()
    run = scene.container.run
    if means == "administrator":
        run(["systemctl", "restart", "salt-minion"], timeout=300)
    elif means == "packages":
        run(scene.reinstall, timeout=300)
    elif means == "in-state":
        scene.publish("state.apply", "reinstall", queue=True)
        scene.minion_started(before, 240)
    elif means == "power":
        scene.container.power_cut()
    elif means == "term":
        scene.kill("TERM", "main")
        run(["systemctl", "start", "salt-minion"])
    else:
        who = "all" if means == "kill-all" else "main"
        run(["systemctl", "kill", "-s", "KILL", f"--kill-who={who}", "salt-minion"])
    scene.minion_started(before if means != "power" else "-", 120)


def storm(scene: JobScene, title: str, restarts: int) -> None:
    """Let the scene begin, restart its minion that often under a stream of jobs, and end it."""
    chosen = random.Random(SEED)
    order = [*MEANS] if restarts >= len(MEANS) else list(MEANS[:restarts])
    order += [chosen.choice(MEANS) for _ in range(restarts - len(order))]
    chosen.shuffle(order)
    try:
        scene.up()
        scene.container.write("/etc/systemd/system/salt-minion.service.d/again.conf", AGAIN)
        scene.container.run(["systemctl", "daemon-reload"])
        scene.container.run(scene.refresh)
        # Short enough that the queue of state runs does not grow without end.
        scene.sls("thirty", thirty(0.02))
        name = " ".join(scene.reinstall)
        scene.sls("reinstall", f"reinstall:\n  cmd.run:\n    - name: {name}\n")
        with Stream(scene) as stream:
            for means in order:
                began = time.monotonic()
                strike(scene, means)
                scene.answers(120)
                if means in OFF:
                    stream.off.append((began, time.monotonic()))
        missing = stream.await_returns(300)
        found = stream.verdict()
        honest, lost = len(found["reported"]), stream.lost()
        returned = len(stream.sent) - honest - len(missing) - len(lost)
        print(
            f"{title}: {len(order)} restarts ({', '.join(order)}): published "
            f"{len(stream.sent)} = returned {returned} + reported {honest} + silent "
            f"{len(missing)} + lost while it was off {len(lost)}; run twice "
            f"{len(found['twice'])}; refused by Salt, another state run was under way: "
            f"{len(found['refused'])}"
        )
        assert missing == []
        assert found["twice"] == []
        assert found["wrong"] == []
        scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")
    except BaseException:
        print(scene.container.logs())
        raise
    finally:
        scene.down()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["handover", pytest.param("wait", marks=pytest.mark.soak)])
@pytest.mark.parametrize("version", series("3008.3"))
def test_one_restart_by_each_means(lab: Lab, site: Path, version: str, way: str) -> None:
    storm(_scene(lab, site, version, way), f"{version}, {way}", len(MEANS))


@pytest.mark.soak
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", venvs.SERIES)
def test_fifty_restarts(lab: Lab, site: Path, version: str, way: str) -> None:
    storm(_scene(lab, site, version, way), f"{version}, {way}", 50)


def _scene(lab: Lab, site: Path, version: str, way: str) -> JobScene:
    return JobScene(lab, site, version, offers=[f"salt-minion_{version}"], config=WAYS[way])
