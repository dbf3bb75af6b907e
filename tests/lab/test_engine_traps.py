"""Traps that other agents fell into when they updated themselves, each with who fell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import FAULT_FILE
from tests.lab.engine import NEW, OLD, QUICK, EngineScene, deb
from tests.lab.scene import STATE_DIR

FLAG = "/var/tmp/go"
ON_CHANGE = {"safeupdate": {"on_change": "restart", "restart_jitter": 0.1}}
FAULTY, STOPS, MOVED = (f"{NEW}+{what}" for what in ("faulty", "stops", "moved"))
# The database of a newer schema, with columns that this one does not know.
_NEWER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
for table in ("updates", "jobs", "facts"):
    db.execute(f"ALTER TABLE {table} ADD COLUMN newer TEXT NOT NULL DEFAULT 'x'")
db.execute("PRAGMA user_version = 99")
db.commit()
"""


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path) -> Iterator[EngineScene]:
    offers = [deb(each) for each in (OLD, FAULTY, STOPS, MOVED)]
    made = EngineScene(lab, site, OLD, offers=offers, config=QUICK)
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(autouse=True)
def logs(scene: EngineScene, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    scene.tell_of(request.node)


def update(scene: EngineScene, version: str, fault: str = "") -> str:
    """Update to that version, which commits; return the ID of the update."""
    scene.container.write(FAULT_FILE, fault)
    record = scene.update(version, allow_downgrade=True)
    assert record["phase"] == "committed", record
    scene.assert_runs(version)
    return str(record["id"])


def test_uyuni_8841_a_scriptlet_disables_the_service(scene: EngineScene) -> None:
    update(scene, FAULTY, "systemctl disable salt-minion\n")


def test_elastic_3947_a_newer_version_has_written_the_records(scene: EngineScene) -> None:
    scene.container.run(["python3", "-c", _NEWER, f"{STATE_DIR}/safeupdate.db"])
    update(scene, OLD)


def test_salt_69605_the_package_stops_the_service_and_tries_to_restart_it(
    scene: EngineScene,
) -> None:
    update(scene, STOPS)


# In every run, test_update.py has it in a run of states.
@pytest.mark.soak
def test_salt_69807_the_tree_that_it_runs_from_is_removed(scene: EngineScene) -> None:
    # So is what a program that waits for the end would still load to tell of it.
    job = scene.publish("cmd.run", "until [ -e /var/tmp/go-on ]; do sleep 0.1; done")
    asked = scene.ask(MOVED, allow_downgrade=True)["update"]
    with scene.waiting() as program:
        scene.container.write("/var/tmp/go-on", "")
        scene.returned(job)
        assert scene.ended(asked)["phase"] == "committed"
        assert scene.told(program) == (0, asked, "committed")
    scene.assert_runs(MOVED)


def test_elastic_2264_and_4228_two_supervisors_of_a_rollback(scene: EngineScene) -> None:
    before = scene.call("safeupdate.revisions")["previous"]["salt-minion"]
    asked = scene.call("safeupdate.rollback")["update"]
    scene.wait_phase("watching")
    scene.container.run(["systemctl", "--no-block", "start", "salt-safeupdate-recover"])
    assert scene.ended(asked)["phase"] == "committed"
    phases = scene.phases()
    assert sorted(set(phases)) == sorted(phases), "one of them acted for both"
    scene.assert_runs(before)
    for command in ("salt-call", "salt-minion"):
        told = scene.container.run([command, "--version"]).stdout.split()
        assert told[1] == scene.answers(), "the commands are those of this version"


# In every run, test_watch.py and test_systemd.py have it.
@pytest.mark.soak
def test_a_minion_that_is_stopped_while_it_is_watched_stays_so(scene: EngineScene) -> None:
    """And a program of its unit that needs Salt runs before each start."""
    drop_in = "/etc/systemd/system/salt-minion.service.d/before.conf"
    scene.container.path(drop_in).parent.mkdir(exist_ok=True)
    before = "/usr/bin/salt-call --local state.single test.nop before"
    scene.container.write(drop_in, f"[Service]\nExecStartPre={before}\n")
    scene.container.run(["systemctl", "daemon-reload"])
    scene.container.write(FAULT_FILE, "")
    old = scene.pid()
    to = FAULTY if scene.version() != FAULTY else OLD
    asked = scene.ask(to, allow_downgrade=True)["update"]
    scene.wait_phase("watching")
    scene.master.wait(
        lambda: scene.container.service()["ActiveState"] == "active" and scene.pid() != old,
        120,
        "the new minion",
    )
    scene.container.run(["systemctl", "stop", "salt-minion"], timeout=120)
    record = scene.ended(asked)
    assert record["phase"] == "committed", record
    assert "Somebody has stopped salt-minion" in record["reason"]
    assert scene.container.service()["ActiveState"] == "inactive"
    scene.container.path(drop_in).unlink()
    scene.container.run(["systemctl", "daemon-reload"])
    scene.container.run(["systemctl", "start", "salt-minion"], timeout=120)
    scene.assert_runs(to)


def test_uyuni_2716_installed_already_is_a_normal_end(scene: EngineScene) -> None:
    pid, version = scene.pid(), scene.version()
    told = scene.call("safeupdate.update", version)["comment"]
    assert told == "It is installed; nothing to do."
    assert scene.pid() == pid


def test_elastic_4443_and_12910_a_stopped_service_is_rolled_back(scene: EngineScene) -> None:
    version = scene.version()
    assert version != FAULTY
    scene.container.run(["systemctl", "disable", "--now", "salt-minion"], timeout=120)
    scene.container.write(FAULT_FILE, "exit 1\n")
    asked = scene.salt_call("--local", "safeupdate.update", FAULTY, "allow_downgrade=True")
    assert scene.ended(asked["update"])["phase"] == "rolled_back"
    service = scene.container.service()
    assert (service["ActiveState"], service["UnitFileState"]) == ("inactive", "disabled")
    assert (scene.version(), scene.dpkg_status()) == (version, "install ok installed")
    assert scene.leftovers() == []
    status = scene.salt_call("--local", "safeupdate.status")
    assert (status["phase"], status["draining"]) == ("rolled_back", False)


@pytest.mark.soak
@pytest.mark.parametrize("what", ["a library", "the program"])
def test_code_that_somebody_replaces_has_the_minion_restart_when_its_jobs_have_ended(
    lab: Lab, site: Path, begin: Callable[[Any], Any], what: str
) -> None:
    scene: EngineScene = begin(EngineScene(lab, site, OLD, offers=[deb(OLD)], config=ON_CHANGE))
    container = scene.up().container
    scene.answers()
    before = scene.pid()
    job = scene.publish("cmd.run", f"until test -e {FLAG}; do sleep 0.1; done; echo done")
    path = f"{SITE_PACKAGES}/yaml/__init__.py"
    if what == "the program":
        path = container.run(["readlink", "-f", f"/proc/{before}/exe"]).stdout.strip()
    container.run(["cp", "-a", path, f"{path}.new"])
    container.run(["mv", f"{path}.new", path])
    asked = scene.wait_phase("waiting")
    assert asked["kind"] == "restart"
    assert path in asked["reason"]
    assert "code-replaced" in _codes(scene)
    assert scene.pid() == before
    container.run(["touch", FLAG])
    assert scene.returned(job)["return"] == "done"
    assert scene.wait_end()["phase"] == "committed"
    assert scene.pid() not in ("0", before)
    scene.answers()
    assert "code-replaced" not in _codes(scene)


def _codes(scene: EngineScene) -> list[str]:
    return [problem["code"] for problem in scene.call("safeupdate.check")]
