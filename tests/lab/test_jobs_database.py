"""A database that does not work: jobs do, and it is said what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from tests.lab.jobs import DATABASE, WAITING, JobScene
from tests.lab.scene import STATE_DIR
from tests.lab.series import series


@pytest.fixture(params=series("3006.28"))
def scene(
    lab: Lab, site: Path, request: pytest.FixtureRequest, begin: Callable[[Any], Any]
) -> JobScene:
    return begin(JobScene(lab, site, request.param, config=WAITING)).up()


def restart(scene: JobScene) -> None:
    before = scene.pid()
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=200)
    scene.minion_started(before)
    scene.answers()


def codes(found: list[dict[str, Any]]) -> set[str]:
    return {problem["code"] for problem in found}


def works(scene: JobScene) -> None:
    assert scene.call("cmd.run", "echo works") == "works"


def test_a_database_that_is_unreadable_full_newer_or_not_writable(scene: JobScene) -> None:
    run = scene.container.run
    # Corrupt: set aside, told of, and a new one is begun.
    scene.kill()
    run(["sh", "-c", f"rm -f {DATABASE}-*; echo rubbish > {DATABASE}"])
    run(["systemctl", "start", "salt-minion"])
    scene.answers()
    works(scene)
    status = scene.call("safeupdate.status")
    assert "set aside" in status["reason"]
    assert "last-update" in codes(scene.call("safeupdate.check"))
    aside = run(["sh", "-c", f"cat {DATABASE}.unreadable-*"]).stdout
    assert aside == "rubbish\n"
    # Newer, and not to be understood: left alone.
    python = "/opt/saltstack/salt/bin/python3"
    newer = (
        f"import sqlite3; db = sqlite3.connect('{DATABASE}', timeout=30); "
        "db.execute('ALTER TABLE jobs RENAME TO old'); "
        "db.execute('PRAGMA user_version = 99'); db.commit()"
    )
    run([python, "-c", newer])
    works(scene)
    assert "database" in codes(scene.call("safeupdate.check"))
    assert scene.container.exists(DATABASE)
    # Not writable: something else is in its place.
    run(["sh", "-c", f"mv {STATE_DIR} {STATE_DIR}.old; echo > {STATE_DIR}"])
    restart(scene)
    works(scene)
    assert "database" in codes(scene.call("safeupdate.check"))
    # Full.
    run(["sh", "-c", f"rm {STATE_DIR}; mkdir -m 700 {STATE_DIR}"])
    scene.container.small_disk(STATE_DIR, "256k")
    run(["chmod", "700", STATE_DIR])
    restart(scene)
    run(["sh", "-c", f"cat /dev/zero > {STATE_DIR}/filler || true"])
    big = scene.call("cmd.run", "yes safeupdate | head -c 400000")
    assert len(big) > 390_000
    log = scene.container.read("/var/log/salt/minion")
    assert "without a record" in log
    assert "space" in codes(scene.call("safeupdate.check"))
    print("jobs ran and returned with each of: unreadable, newer, not writable, full")
