"""An update beside running jobs: none of them waits for it, and none notices it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools import as_packaged
from devtools.command import ToolError
from devtools.lab.container import Lab
from devtools.lab.recipes import FAULT_FILE
from tests.lab.engine import EngineScene, skipped
from tests.lab.handover import FLAG, UNTIL_FLAG, HandoverScene
from tests.lab.jobs import WORK, Publishing
from tests.lab.scene import TELLS
from tests.lab.test_engine_rollback import FAULTS
from tests.lab.test_jobs_redelivery import done, program
from tests.support import documents

FAULTY = "3008.3+faulty"
OLD, NEW = "3006.28", "3008.3"
# What only the end of the watch tells.
WATCH = 60
SHORT = ("cannot run a job",)
# What startup states write when they begin and when they end: the version that runs them.
STARTS, BEHIND = "/var/tmp/starts", "/var/tmp/behind"
NOTE = f"{{{{ grains.saltversion }}}} >> {STARTS}"
STARTUP = f"starts:\n  cmd.run:\n    - name: echo begin {NOTE}; sleep 15; echo end {NOTE}\n"
# Both are named: apt takes the newest of a package that is only needed.
HIGHSTATE = (
    f"minion:\n  pkg.installed:\n    - pkgs:\n"
    f"      - salt-common: '{NEW}'\n      - salt-minion: '{NEW}'\n"
)


class UpdateScene(HandoverScene, EngineScene):
    """A minion that is updated while jobs run. Its master accepts only keys that it is told to."""

    def __init__(self, lab: Lab, site: Path, *versions: str, **settings: Any) -> None:
        signs = {**TELLS, "auto_accept": False}
        super().__init__(lab, site, *versions, master_config=signs, **settings)
        self.accept(self.name)

    def accept(self, name: str) -> None:
        """Have the master accept the key of that minion."""
        asked = self.master.dir / "pki" / "minions_autosign"
        as_packaged.give(asked)
        (asked / name).touch()


class Pings(Publishing):
    """A ping every so many seconds."""

    def __init__(self, scene: UpdateScene) -> None:
        super().__init__(scene, interval=0.3, most=5)
        self._sent: list[str] = []

    def publish(self) -> str:
        self._sent.append(self._scene.publish("test.ping"))
        return self._sent[-1]

    def unanswered(self, what: str) -> list[str]:
        """Return those that nobody has answered, or not with True."""
        bad = []
        for jid in self._sent:
            try:
                if self._scene.returned(jid, 60)["return"] is not True:
                    bad.append(jid)
            except ToolError:
                bad.append(jid)
        print(f"{what}: {len(self._sent)} pings, {len(bad)} without a good answer")
        return bad


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path) -> Iterator[UpdateScene]:
    made = UpdateScene(lab, site, OLD, FAULTY, watch_timeout=WATCH)
    try:
        made.up()
        made.sls("starts", STARTUP)
        startup = "{startup_states: sls, sls_list: [starts]}\n"
        made.container.write("/etc/salt/minion.d/startup.conf", startup)
        made.have_own_tree()
        wait_start(made, [], OLD)
        yield made
    finally:
        made.down()


@pytest.fixture
def long_job(scene: UpdateScene, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the JID of a job that runs until the flag is there."""
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the jobs of the test before")
    scene.master.wait(lambda: scene.left() == [], 90, "the generations of the test before")
    scene.container.run(["rm", "-f", WORK, FLAG])
    command = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    jid = scene.publish("cmd.run", command)
    scene.wait_trace("start")
    yield jid
    scene.tell_of(request.node)
    # Of a test that has failed, it ends now.
    scene.container.write(FLAG, "")


def end_well(scene: UpdateScene, jid: str) -> None:
    """The long job runs on, and ends as if nothing had been."""
    assert scene.traces() == ["start"]
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert scene.traces() == ["start", "end"]
    scene.master.wait(lambda: scene.left() == [], 90, f"nothing to be left ({scene.left()})")


def starts(scene: UpdateScene) -> list[str]:
    """Return what startup states have written."""
    return scene.container.read(STARTS, "").splitlines()


def wait_start(scene: UpdateScene, before: list[str], version: str) -> None:
    """Wait until the startup states have run to their end once more, by that version only."""
    more = [f"begin {version}", f"end {version}"]
    scene.master.wait(lambda: len(starts(scene)) >= len(before) + 2, 90, "the startup states")
    assert starts(scene) == [*before, *more]


def takes_over(scene: UpdateScene, version: str, since: float) -> None:
    """The new minion tells its master of its start, and takes the jobs from then on."""
    scene.master.wait_event(f"salt/minion/{scene.name}/start", 90, since=since)
    assert scene.call("test.version") == version


def beside(scene: UpdateScene) -> list[Any]:
    return list(json.loads(scene.record()["extra"])["progress"].get("beside", ()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if each in SHORT else pytest.mark.soak) for each in FAULTS],
)
def test_a_broken_new_minion_is_taken_back_and_no_job_notices(
    scene: UpdateScene, long_job: str, fault: str
) -> None:
    """What it has of its own, as its startup states, does not begin either."""
    faulty, told = FAULTS[fault]
    scene.container.write(FAULT_FILE, f"{faulty}\n")
    before = starts(scene)
    serving = list(scene.generations())[-1]
    with Pings(scene) as pings:
        record = scene.update(FAULTY)
    scene.container.run(["rm", FAULT_FILE])
    assert record["phase"] == "rolled_back", record
    assert told in record["reason"]
    assert beside(scene)
    assert pings.unanswered(fault) == []
    assert scene.generations()[serving] in ("overlapping", "leaving")
    end_well(scene, long_job)
    scene.assert_runs(OLD)
    wait_start(scene, before, OLD)
    assert scene.call("safeupdate.unquarantine", FAULTY) == skipped(FAULTY)


def other(scene: UpdateScene) -> str:
    """The version that the host does not run, whichever test ran before."""
    return NEW if scene.version() == OLD else OLD


def goes_unnoticed(
    scene: UpdateScene, long_job: str, version: str, update: Callable[[], dict[str, Any]]
) -> None:
    """
    The *update* to that version is committed, and no job has noticed.

    The startup states run once, by the version that serves from then on.
    """
    before, since = starts(scene), time.time()
    with Pings(scene) as pings:
        record = update()
    assert record["phase"] == "committed", record
    assert beside(scene)
    takes_over(scene, version, since)
    assert pings.unanswered(f"to {version}") == []
    end_well(scene, long_job)
    scene.assert_runs(version)
    wait_start(scene, before, version)


@pytest.mark.timeout(600)
def test_a_highstate_that_updates_the_minion_waits_for_no_job(
    scene: UpdateScene, long_job: str
) -> None:
    """In the orchestration of the page, the step behind ``safeupdate.wait`` has the new minion."""

    def update() -> dict[str, Any]:
        said = done(program(scene, "salt-run", "state.orchestrate", "steps"))
        assert scene.container.read(BEHIND, "") == f"{NEW}\n", said
        return scene.wait_end()

    page = documents.REPO / "docs" / "topics" / "explanation" / "ordering.md"
    steps = next(each.text for each in documents.blocks(page) if "safeupdate.wait" in each.text)
    scene.sls("steps", steps.replace("web*", scene.name))
    scene.sls("behind", f"behind:\n  cmd.run:\n    - name: echo {NOTE.replace(STARTS, BEHIND)}\n")
    scene.sls("update", HIGHSTATE)
    goes_unnoticed(scene, long_job, NEW, update)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_update_waits_for_no_job_and_ends_none(scene: UpdateScene, long_job: str) -> None:
    version = other(scene)
    goes_unnoticed(scene, long_job, version, lambda: scene.update(version, allow_downgrade=True))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["packages", "request"])
def test_an_update_comes_after_a_restart_that_the_same_run_makes(
    scene: UpdateScene, long_job: str, way: str
) -> None:
    """
    ==========================================  ===================================
    In a run that restarts the minion itself    It waits for the end of the restart
    ==========================================  ===================================
    ``pkg.installed``                           before it changes the packages
    ``safeupdate.updated``                      before it asks for the update
    ==========================================  ===================================
    """
    version = other(scene)
    packages = "".join(f"      - {each}: '{version}'\n" for each in ("salt-common", "salt-minion"))
    restart = "cmd.{}:\n    - name: salt-call --local service.restart salt-minion\n"
    ways = {
        "packages": f"minion:\n  pkg.installed:\n    - pkgs:\n{packages}"
        f"restart:\n  {restart.format('wait')}    - watch:\n      - pkg: minion\n",
        "request": f"restart:\n  {restart.format('run')}"
        f"minion:\n  safeupdate.updated:\n    - version: '{version}'\n"
        "    - allow_downgrade: True\n",
    }
    scene.sls("restarts", ways[way])
    before = list(scene.generations())[-1]
    ret = scene.returned(scene.publish("state.apply", "restarts", queue=True))
    assert ret["success"], ret
    record = scene.wait_end()
    assert record["phase"] == "committed", record
    assert record["kind"] == "update", record
    restarts = scene.query("SELECT phase FROM updates WHERE kind = 'restart' ORDER BY created")
    assert restarts[-1] == ["committed"], restarts
    assert scene.generations()[before] == "leaving"
    scene.master.wait(lambda: scene.call("test.version") == version, 30, version)
    end_well(scene, long_job)
    scene.assert_runs(version)
    ran = [f"begin {version}", f"end {version}"]
    scene.master.wait(lambda: starts(scene)[-2:] == ran, 90, "the startup states")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_after_a_new_name_the_minion_of_the_former_one_answers_until_its_key_is_accepted(
    scene: UpdateScene, long_job: str
) -> None:
    """
    ===================================  =============================================
    In the run                           Outcome
    ===================================  =============================================
    the minion gets another ID           committed at once: it waits for its key
    meanwhile                            the earlier minion takes jobs by the former ID
    its key is accepted                  the new one takes over
    ===================================  =============================================
    """
    version, conf = other(scene), f"{scene.config_dir}/minion.d/lab.conf"
    rename = f"sed -i 's/{{}}/{{}}/' {conf}"
    there, back = f'"id": "{scene.name}"', '"id": "renamed"'
    packages = "".join(f"      - {each}: '{version}'\n" for each in ("salt-common", "salt-minion"))
    scene.sls(
        "renamed",
        f"renamed:\n  cmd.run:\n    - name: {json.dumps(rename.format(there, back))}\n"
        f"minion:\n  pkg.installed:\n    - pkgs:\n{packages}",
    )
    assert scene.returned(scene.publish("state.apply", "renamed"))["success"]
    record = scene.wait_end()
    assert record["phase"] == "committed", record
    assert "'salt-key -a renamed'" in record["reason"], record
    assert scene.call("cmd.run", "echo works") == "works"
    scene.accept("renamed")
    scene.master.wait_minion("renamed", 60)
    assert scene.master.call("test.version", minion="renamed") == version
    end_well(scene, long_job)
    scene.container.run(["sh", "-c", rename.format(back, there)])
    scene.container.run(["systemctl", "restart", "salt-minion"], timeout=120)
    scene.assert_runs(version)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_stop_while_the_new_minion_is_watched_is_left(scene: UpdateScene, long_job: str) -> None:
    """It waits for the job of the minion before, and nobody starts the service again."""
    before = list(scene.generations())[-1]
    asked = scene.ask(other(scene), allow_downgrade=True)["update"]
    scene.wait_phase("watching")
    scene.wait_taken_over(90, "the new minion to report", before)
    stop = scene.container.popen(["systemctl", "stop", "salt-minion"])
    scene.master.wait(
        lambda: scene.container.service()["ActiveState"] == "deactivating", 30, "the stop to wait"
    )
    scene.container.write(FLAG, "")
    assert stop.wait(300) == 0
    record = scene.ended(asked)
    assert record["phase"] == "committed", record
    assert "Somebody has stopped" in record["reason"], record
    assert scene.container.service()["ActiveState"] == "inactive"
    scene.container.run(["systemctl", "start", "salt-minion"])
    scene.answers()
    assert scene.returned(long_job)["return"] == "done"
    assert scene.traces() == ["start", "end"]


@pytest.mark.timeout(300)
def test_a_removal_waits_for_jobs_and_leaves_nothing(scene: UpdateScene, long_job: str) -> None:
    """It is the last test: no other minion comes after this one."""
    scene.sls("gone", "gone:\n  pkg.purged:\n    - pkgs: [salt-minion, salt-common]\n")
    # The startup states of the minion, which has just been restarted, may still run.
    ret = scene.returned(scene.publish("state.apply", "gone", "queue=True"))
    assert ret["success"], ret
    scene.wait_phase("restarting")
    scene.master.wait(lambda: scene.locked("drain"), 60, "new jobs to be held")
    assert scene.traces() == ["start"]
    scene.container.write(FLAG, "")
    assert scene.returned(long_job)["return"] == "done"
    assert scene.wait_end()["phase"] == "committed"
    assert scene.traces() == ["start", "end"]
    gone = ["pgrep", "-f", "bin/salt-minion"]
    scene.master.wait(lambda: not scene.container.run(gone, check=False).ok, 60, "its end")
    assert scene.trees() == []
    assert not scene.container.exists("/etc/systemd/system/salt-minion.service.d")
