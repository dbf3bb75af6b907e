"""State runs with a reboot of the system or a restart of the minion in their midst."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MINION
from devtools.lab.container import Lab
from devtools.lab.recipes import MINION_PACKAGES
from tests.lab.handover import HandoverScene, other
from tests.lab.jobs import WAITING, WORK, JobScene
from tests.lab.series import series

# What a state leaves a trace of: its name, the boot, and the minion that it runs under.
BOOT = "$(cut -c1-8 /proc/sys/kernel/random/boot_id)"
MINION_PID = "$(systemctl show -P MainPID salt-minion)"
REBOOT = "safeupdate.rebooted: []"
RESTART = "safeupdate.restarted:\n    - now: True"

pytestmark = pytest.mark.parametrize("version", series("3007.15"))


def work(name: str, *more: str) -> str:
    lines = [f"{name}:", "  cmd.run:", f"    - name: echo {name} {BOOT} {MINION_PID} >> {WORK}"]
    return "\n".join([*lines, *(f"    - {each}" for each in more), ""])


def state(name: str, text: str) -> str:
    return f"{name}:\n  {text}\n"


@pytest.fixture
def scene(lab: Lab, site: Path, version: str, request: pytest.FixtureRequest) -> Iterator[JobScene]:
    scene = JobScene(lab, site, version, config=WAITING).up()
    yield scene
    scene.tell_of(request.node)
    scene.down()


def held(scene: JobScene, jid: str) -> bool:
    return [jid, "state.apply", "held"] in scene.open_jobs()


def judged(scene: JobScene, jid: str, names: str) -> list[list[str]]:
    """Return the traces of a run that has returned once, with the success of all its states."""
    ret = scene.returned(jid, 240)
    assert ret["success"], ret
    failed = [each for each in ret["return"].values() if not each["result"]]
    assert failed == [], failed
    order = names.split()
    traces = sorted(
        (line.split() for line in scene.traces()), key=lambda each: order.index(each[0])
    )
    assert [trace[0] for trace in traces] == order, "each state once"
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")
    told = [event for event in scene.master.events if event.tag == f"salt/job/{jid}/ret/{MINION}"]
    assert len(told) == 1, "once, under its JID"
    return traces


def test_a_run_goes_on_behind_a_reboot_and_a_restart(scene: JobScene) -> None:
    scene.sls(
        "chain",
        work("one")
        + state("boot", REBOOT)
        + work("two", "onchanges: [{safeupdate: boot}]")
        + state("restart", RESTART)
        + work("three"),
    )
    jid = scene.publish("state.apply", "chain")
    scene.container.come_back()
    one, two, three = judged(scene, jid, "one two three")
    assert one[1] != two[1], "behind the boot"
    assert two[1] == three[1]
    assert two[2] != three[2], "behind the restart"
    assert three[2] == scene.pid()
    results = {each["__id__"]: each for each in scene.returned(jid)["return"].values()}
    assert set(results["boot"]["changes"]) == {"boot"}
    minions = results["restart"]["changes"]["minion"]
    assert minions["old"] != minions["new"]
    scene.answers()


def test_a_suspended_run_that_somebody_ends_does_not_go_on(scene: JobScene) -> None:
    scene.sls("chain", work("one") + state("restart", RESTART) + work("two"))
    # The restart waits for it.
    scene.publish("cmd.run", f"touch {WORK}.other; sleep 30")
    scene.master.wait(lambda: scene.container.exists(f"{WORK}.other"), 60, "the other job")
    before, jid = scene.pid(), scene.publish("state.apply", "chain")
    scene.master.wait(lambda: held(scene, jid), 60, "the run to be suspended")
    assert "does not continue" in scene.returned(scene.publish("saltutil.kill_job", jid))["return"]
    scene.minion_started(before)
    ret = scene.returned(jid, 120)
    assert not ret["success"]
    assert "it was ended by 'saltutil.kill_job'" in str(ret["return"])
    assert [line.split()[0] for line in scene.traces()] == ["one"]
    scene.answers()


@pytest.mark.soak
def test_whatever_comes_in_between_each_state_runs_once(scene: JobScene) -> None:
    """Two reboots, one of them a power cut; states beside each other; a run that waits in line."""
    scene.sls(
        "chain",
        work("beside", "parallel: True")
        + work("one")
        + state("first", REBOOT)
        + work("two")
        + state("second", REBOOT)
        + work("three"),
    )
    scene.sls("waits", f"waits:\n  cmd.run:\n    - name: sleep 8; echo waits >> {WORK}.other\n")
    # The shutdown waits for it.
    other = scene.publish("cmd.run", f"echo other >> {WORK}.other; sleep 50")
    scene.master.wait(lambda: scene.container.exists(f"{WORK}.other"), 60, "the other job")
    jid = scene.publish("state.apply", "chain")
    # Of two that come together, Salt may take the second one first, and refuse the other.
    scene.master.wait(lambda: scene.container.exists(WORK), 60, "its first state")
    waits = scene.publish("state.apply", "waits", queue=True)
    scene.master.wait(lambda: held(scene, jid), 60, "the run to be suspended")
    assert scene.master.returns(jid) == {}
    scene.container.power_cut()
    scene.container.come_back(timeout=180)
    traces = judged(scene, jid, "beside one two three")
    assert len({trace[1] for trace in traces}) == 3, "each behind another boot"
    assert scene.returned(waits)["success"]
    assert scene.container.read(f"{WORK}.other").split() == ["other", "waits"]
    assert "was interrupted" in str(scene.returned(other)["return"])


@pytest.mark.soak
def test_nothing_of_a_run_continues_on_a_clone(scene: JobScene) -> None:
    """The copy of a container: another machine ID, and a key of its own."""
    wait = f"long:\n  cmd.run:\n    - name: test -e {WORK}.go || sleep 600\n"
    scene.sls("chain", work("one") + wait + work("two"))
    jid = scene.publish("state.apply", "chain")
    scene.master.wait(lambda: scene.traces() != [], 60, "its first state")
    container = scene.container
    container.write(f"{WORK}.go", "")
    container.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    container.run(["rm", "-r", f"{scene.config_dir}/pki/minion"])
    (scene.master.dir / "pki" / "minions" / scene.name).unlink()
    container.power_cut()
    scene.master.wait_minion(scene.name, 120)
    assert f"is a copy of another one: its jobs ({jid} state.apply)" in container.logs()
    assert scene.open_jobs() == []
    scene.answers()
    assert scene.call("safeupdate.check") == []
    assert [line.split()[0] for line in scene.traces()] == ["one"]
    assert scene.master.returns(jid) == {}


@pytest.mark.soak
def test_a_reboot_that_is_refused_fails_its_state_and_the_run_goes_on(scene: JobScene) -> None:
    scene.sls("chain", work("one") + state("boot", REBOOT) + work("two"))
    scene.container.run(["systemctl", "mask", "reboot.target"])
    ret = scene.returned(scene.publish("state.apply", "chain"))["return"]
    results = {each["__id__"]: each["result"] for each in ret.values()}
    assert results == {"one": True, "boot": False, "two": True}
    assert scene.container.is_up
    local = scene.salt_call("state.apply", "chain", check=False)
    comments = [each["comment"] for each in local.values() if each["__id__"] == "boot"]
    assert "only a job that a master published" in comments[0]


@pytest.mark.soak
def test_what_is_to_run_in_the_next_minion_does_so_also_after_a_handover(
    lab: Lab, site: Path, version: str, begin: Callable[[Any], Any]
) -> None:
    """A plain restart does not interrupt a run there; this one has it go on in the next minion."""
    scene = begin(HandoverScene(lab, site, version)).up()
    plain = "cmd.run:\n    - name: systemctl --no-block restart salt-minion; sleep 15"
    scene.sls("plain", work("one") + state("restart", plain) + work("two"))
    before = scene.pid()
    ret = scene.returned(scene.publish("state.apply", "plain"), 240)
    assert all(each["result"] for each in ret["return"].values())
    scene.minion_started(before)
    scene.container.run(["rm", "-f", WORK])
    scene.wait_taken_over(90, "the next minion to serve alone")
    scene.sls("chain", work("one") + state("restart", RESTART) + work("two"))
    one, two = judged(scene, scene.publish("state.apply", "chain"), "one two")
    assert one[2] != two[2]


def patch_day(command: str, version: str) -> str:
    latest = "pkg.latest:\n    - name: salt-minion\n    - refresh: True"
    if version == "3008.3":
        # Nothing newer is on offer.
        pkgs = "".join(f"\n      - {each}: '{other(version)}'" for each in MINION_PACKAGES)
        latest = f"pkg.installed:\n    - refresh: True\n    - pkgs:{pkgs}"
    boot = f"cmd.run:\n    - name: echo boot >> {WORK}.boots; {command}"
    return work("one") + state("minion", latest) + state("boot", boot) + work("two")


@pytest.mark.parametrize(
    "command", ["systemctl reboot", pytest.param("shutdown -r +1", marks=pytest.mark.soak)]
)
def test_a_run_that_reboots_by_itself_changes_the_own_packages(
    lab: Lab, site: Path, version: str, command: str, begin: Callable[[Any], Any]
) -> None:
    """
    The usual patch day: packages, then a reboot that the run does not wait for.

    systemd starts nothing new while the host goes down, so the own packages come after the boot.
    """
    scene = begin(HandoverScene(lab, site, version)).up()
    scene.sls("patch", patch_day(command, version))
    jid = scene.publish("state.apply", "patch")
    scene.container.come_back(timeout=240)
    judged(scene, jid, "one two")
    results = {each["__id__"]: each for each in scene.returned(jid)["return"].values()}
    assert results["minion"]["changes"]["salt-minion"]["new"] == other(version)
    assert scene.wait_end()["phase"] == "committed"
    assert scene.container.read(f"{WORK}.boots").split() == ["boot"], "it reboots once"
    assert scene.answers() == scene.version() == other(version)
    assert scene.leftovers() == []


CALLS = {
    "salt-call": ("salt-call", "--log-level", "quiet"),
    # As a timer does it: systemd ends it with the host.
    "masterless": ("systemd-run", "--unit=patch", "--collect", "salt-call", "--local"),
}


@pytest.mark.parametrize(
    "way", ["schedule", *(pytest.param(each, marks=pytest.mark.soak) for each in CALLS)]
)
def test_a_run_that_cannot_continue_leaves_the_own_packages_to_the_boot(
    lab: Lab, site: Path, version: str, way: str, begin: Callable[[Any], Any]
) -> None:
    """
    A run that cannot continue after the boot: what it had taken is installed then, without it.

    ========== ======================================= ==========================
    schedule   of the minion                           its engine begins after it
    salt-call  beside the minion                       the same
    masterless ``--local`` from a timer, no minion     the watchdog begins
    ========== ======================================= ==========================
    """
    scene = begin(HandoverScene(lab, site, version)).up()
    # Behind the position nothing is on offer any more.
    gone = "cmd.run:\n    - name: rm -rf /etc/apt/sources.list.d /var/lib/apt/lists"
    patch = patch_day("systemctl reboot", version) + state("gone", gone)
    scene.sls("patch", patch)
    process = None
    if way == "schedule":
        # By default, Salt runs such a job at each start of a minion: it would reboot without end.
        words = ("function=state.apply", "job_args=['patch']", "hours=99", "run_on_start=False")
        assert scene.call("schedule.add", "patch", *words)["result"]
        scene.publish("schedule.run_job", "patch", force=True)
    else:
        if way == "masterless":
            scene.container.write("/srv/salt/patch.sls", patch)
            scene.container.run(["systemctl", "disable", "--now", scene.unit])
        process = scene.container.popen([*CALLS[way], "state.apply", "patch"])
    boots = f"{WORK}.boots"
    scene.master.wait(lambda: not scene.container.is_up or scene.container.exists(boots), 90, boots)
    scene.container.come_back(timeout=240)
    if process is not None:
        print(process.communicate(timeout=60)[0])
    record = scene.wait_end()
    assert record["phase"] == "committed", record
    assert scene.version() == other(version)
    assert scene.container.read(boots).split() == ["boot"], "it reboots once"
    if way == "masterless":
        assert scene.container.service()["ActiveState"] == "inactive"
    else:
        scene.wait_alone()
        assert scene.answers() == other(version)
    assert scene.leftovers() == []
