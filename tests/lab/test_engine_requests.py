"""What is asked of the engine, step by step, on one minion from the oldest series to the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MINION
from devtools.lab.container import Lab
from tests.lab.engine import EngineScene, changes, deb, own, skipped
from tests.lab.scene import state

OLD, NEW = "3006.28", "3007.15"
CHANGES = changes(OLD, NEW)
JOBS_TIMEOUT = 10
# Watched for a moment only, and looked at often: there are many updates here.
CONFIG: dict[str, Any] = {
    "safeupdate": {
        "stable_interval": 1,
        "tick_interval": 0.2,
        "watch_timeout": 60,
        "jobs_timeout": JOBS_TIMEOUT,
    }
}
CHECK = "/usr/local/bin/check-minion"
RAN, VERDICT = f"{CHECK}.ran", f"{CHECK}.verdict"
HEALTH_FILE = "/etc/salt/minion.d/zz-health.conf"
# Waits for the verdict, so that a test can look while the update is watched.
CHECK_SCRIPT = f"""\
#!/bin/sh
echo "$1" >> {RAN}
while [ ! -s {VERDICT} ]; do sleep 0.1; done
exit "$(cat {VERDICT})"
"""
STEPS = "/etc/salt/safeupdate/steps"
STEP = ("3007-note.before", "3007-note", "3007-note.revert")
RAN_STEPS = "/var/tmp/steps"
NOTE = f'#!/bin/sh\necho "${{0##*/}} $@" >> {RAN_STEPS}\n'
UPDATED = """
minion:
  safeupdate.updated:
    - version: '{version}'
    - allow_downgrade: {allow}
after:
  cmd.run:
    - name: echo after
"""


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path) -> Iterator[EngineScene]:
    made = EngineScene(lab, site, OLD, offers=[deb(OLD), deb(NEW)], config=CONFIG)
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(autouse=True)
def _tell_of_failures(scene: EngineScene, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    scene.tell_of(request.node)


@pytest.fixture
def sleeper(scene: EngineScene) -> Iterator[Callable[[], str]]:
    """Start a job that runs until it is told to end; return its JID."""
    scene.container.write("/var/tmp/go-on", "")
    begun: list[str] = []

    def begin() -> str:
        scene.container.path("/var/tmp/go-on").unlink(missing_ok=True)
        begun.append(scene.publish("cmd.run", "until [ -e /var/tmp/go-on ]; do sleep 0.1; done"))
        scene.master.wait(lambda: _runs(scene, begun[-1]), 30, "the job to run")
        return begun[-1]

    yield begin
    _let_end(scene, *begun)


def _runs(scene: EngineScene, jid: str) -> bool:
    return any(row.startswith(jid) for row in scene.call("safeupdate.jobs")["running"])


def _let_end(scene: EngineScene, *jids: str) -> None:
    scene.container.write("/var/tmp/go-on", "")
    for jid in jids:
        scene.returned(jid)


def test_planned_staged_superseded_and_called_off(
    scene: EngineScene, sleeper: Callable[[], str]
) -> None:
    _have(scene, OLD)
    pid, job = scene.pid(), sleeper()
    staged = scene.call("safeupdate.stage", NEW)
    assert staged["targets"] == own(NEW)
    assert scene.kept() != []
    offered = scene.call("safeupdate.avail")["versions"].values()
    found = {(each["version"], each["installed"]) for entries in offered for each in entries}
    assert found >= {(OLD, True), (NEW, False)}
    plan = scene.call("safeupdate.plan", NEW)
    assert (plan["changes"], plan["staged"]) == (CHANGES, True)
    assert f"{job} cmd.run" in plan["jobs"]
    assert [item["code"] for item in plan["findings"] if item["blocking"]] == []
    assert scene.locked("supervisor") is False, "nothing has been asked for yet"

    first = scene.ask(NEW)["update"]
    scene.wait_phase("waiting")
    assert scene.ask(NEW)["update"] == first, "the same request is the same update"
    early = scene.master.publish(
        "safeupdate.update",
        NEW,
        target=MINION,
        tgt_type="list",
        jid=str(int(job) - 1),
        when="now",
    )
    assert "is older than update" in scene.returned(early)["return"]
    second = scene.ask(NEW, when="now")["update"]
    superseded = scene.call("safeupdate.history", limit=2)[1]
    assert (superseded["update"], superseded["phase"]) == (first, "cancelled")
    assert superseded["reason"] == "A newer request takes its place."

    scene.master.wait(lambda: scene.locked("drain"), 30, "new jobs to be held")
    held = scene.publish("test.echo", "held")
    called_off = scene.call("safeupdate.cancel")
    assert (called_off["update"], called_off["phase"]) == (second, "cancelled")
    assert scene.returned(held)["return"] == "held"
    assert "nothing was changed" in scene.call("safeupdate.cancel")
    assert scene.wait_end()["id"] == second
    assert (scene.pid(), scene.version(), scene.leftovers()) == (pid, OLD, [])


def test_now_waits_for_jobs_and_not_for_ever(
    scene: EngineScene, sleeper: Callable[[], str]
) -> None:
    _have(scene, OLD)
    pid, job = scene.pid(), sleeper()
    asked = scene.ask(NEW, when="now")
    scene.master.wait(lambda: scene.locked("drain"), 30, "new jobs to be held")
    held = scene.publish("test.version")
    record = scene.ended(asked["update"])
    assert (record["phase"], scene.pid()) == ("postponed", pid)
    assert f"did not end within {JOBS_TIMEOUT} s" in record["reason"]
    assert scene.returned(held)["return"] == OLD
    assert scene.leftovers() == []

    _have_steps(scene)
    asked = scene.ask(NEW, when="now")
    scene.master.wait(lambda: scene.locked("drain"), 30, "new jobs to be held")
    held, waiter = scene.publish("test.version"), scene.publish("safeupdate.wait")
    _let_end(scene, job)
    assert scene.ended(asked["update"])["phase"] == "committed"
    assert scene.returned(held)["return"] == NEW, "it ran after the restart"
    returned = scene.returned(waiter)
    assert (returned["return"]["phase"], returned["retcode"]) == ("committed", 0)
    assert returned["return"]["steps"] == ["3007-note.before", "3007-note"]
    assert scene.container.read(RAN_STEPS) == (
        f"3007-note.before {OLD} {NEW}\n3007-note {OLD} {NEW}\n"
    )
    scene.assert_runs(NEW)


def test_the_state_asks_for_it_and_the_run_returns(scene: EngineScene) -> None:
    def apply(name: str, **kwargs: Any) -> dict[str, Any]:
        ran = scene.returned(scene.publish("state.apply", name, **kwargs))["return"]
        assert state(ran, "after")["result"] is (None if kwargs.get("test") else True), ran
        return state(ran, "minion")

    scene.sls("down", UPDATED.format(version=OLD, allow=False))
    scene.sls("down-meant", UPDATED.format(version=OLD, allow=True))
    scene.sls("stay", UPDATED.format(version=NEW, allow=False))
    _have_steps(scene)
    _have(scene, NEW)
    scene.container.write(RAN_STEPS, "")
    before = scene.record().get("id")
    assert apply("stay")["comment"] == "It is installed."
    refused = apply("down")
    assert (refused["result"], refused["changes"]) == (False, {})
    assert "allow_downgrade" in refused["comment"]
    tried = apply("down-meant", test=True)
    assert tried["result"] is None
    assert tried["changes"] == changes(NEW, OLD)
    assert scene.record().get("id") == before, "nothing has been asked for"

    asked = apply("down-meant")
    assert (asked["result"], asked["changes"]) == (True, tried["changes"])
    record = scene.wait_end()
    assert (record["phase"], record["id"] != before) == ("committed", True), record
    assert scene.container.read(RAN_STEPS) == f"3007-note.revert {NEW} {OLD}\n"
    scene.assert_runs(OLD)
    assert apply("down")["comment"] == "It is installed."


@pytest.mark.soak
def test_a_program_has_the_last_word(scene: EngineScene, sleeper: Callable[[], str]) -> None:
    _have(scene, OLD)
    scene.container.write(CHECK, CHECK_SCRIPT, 0o755)
    _check_with(scene, [CHECK, "--quick"])
    _have_steps(scene)
    scene.container.write(RAN_STEPS, "")
    scene.container.write(VERDICT, "3")
    job = sleeper()
    asked = scene.salt_call("safeupdate.update", NEW)["update"]
    # Both of them wait from before the update until the minion is back in the old version.
    waiter = scene.publish("safeupdate.wait")
    with scene.waiting() as program:
        _let_end(scene, job)
        record = scene.ended(asked)
        assert record["phase"] == "rolled_back", record
        assert record["reason"].startswith("The health check failed"), record
        assert scene.told(program) == (1, asked, "rolled_back")
    returned = scene.returned(waiter)
    assert (returned["return"]["update"], returned["return"]["phase"]) == (asked, "rolled_back")
    assert returned["retcode"] != 0
    scene.assert_runs(OLD)
    ran = [line.split()[0] for line in scene.container.read(RAN_STEPS).splitlines()]
    assert ran == [*STEP], "what ran before and in the update is taken back"
    assert scene.call("safeupdate.revisions")["skipped"][0]["version"] == NEW
    assert scene.call("safeupdate.unquarantine", NEW) == skipped(NEW)

    scene.container.write(VERDICT, "")
    scene.container.path(RAN).unlink()
    asked = scene.salt_call("safeupdate.update", NEW)["update"]
    scene.master.wait(lambda: scene.container.exists(RAN), 120, "the check to run")
    # Past the point of no return; jobs run again, and this is no time for another update.
    assert scene.call("safeupdate.status")["phase"] == "watching"
    assert "is under way" in scene.call("safeupdate.update", OLD, allow_downgrade=True)
    assert asked in scene.call("safeupdate.cancel")
    with scene.waiting() as program:
        scene.container.write(VERDICT, "0")
        assert scene.ended(asked)["phase"] == "committed"
        assert scene.told(program) == (0, asked, "committed")
    assert scene.container.read(RAN) == "--quick\n", "it is asked once"
    scene.assert_runs(NEW)


@pytest.mark.soak
def test_an_sls_has_the_last_word(scene: EngineScene) -> None:
    _have(scene, NEW)
    _check_with(scene, ["health"])
    scene.sls("health", "well:\n  test.fail_without_changes: []\n")
    record = _update(scene, OLD, "allow_downgrade=True")
    assert record["phase"] == "rolled_back", record
    assert "(state.apply) of the watch failed with code" in record["reason"]
    scene.assert_runs(NEW)
    assert scene.call("safeupdate.unquarantine", OLD) == skipped(OLD)

    scene.sls("health", "well:\n  test.succeed_without_changes: []\n")
    scene.sls("long", "long:\n  cmd.run:\n    - name: sleep 8\n")
    back = scene.salt_call("safeupdate.rollback", OLD)
    # A state run of somebody else's, held until then, is no reason to go back.
    scene.master.wait(lambda: scene.locked("drain"), 60, "new jobs to be held")
    held = scene.publish("state.apply", "long")
    assert scene.ended(back["update"])["phase"] == "committed"
    assert state(scene.returned(held)["return"], "long")["result"] is True
    scene.assert_runs(OLD)


def _have(scene: EngineScene, version: str) -> None:
    """Let the minion be in the version that a test begins with."""
    scene.container.path(HEALTH_FILE).unlink(missing_ok=True)
    if scene.version() != version:
        record = _update(scene, version, "allow_downgrade=True")
        assert record["phase"] == "committed", record
        scene.assert_runs(version)


def _have_steps(scene: EngineScene) -> None:
    """Have a step of three programs on the way to the new version, and one behind it."""
    for name in (*STEP, "3008-later"):
        scene.container.write(f"{STEPS}/{name}", NOTE, 0o755)


def _check_with(scene: EngineScene, words: list[str]) -> None:
    """Set the health check; salt-call reads it anew, so the minion need not restart for it."""
    settings = {**CONFIG["safeupdate"], "health_check": words}
    scene.container.write(HEALTH_FILE, json.dumps({"safeupdate": settings}))


def _update(scene: EngineScene, version: str, *words: str) -> dict[str, Any]:
    return scene.ended(scene.salt_call("safeupdate.update", version, *words)["update"])
