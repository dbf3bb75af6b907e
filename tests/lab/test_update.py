"""The main job, and everything around it that can go wrong, on real packages and systemd."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MINION, Experiment
from devtools.lab.container import Lab
from devtools.lab.recipes import MINION_PACKAGES
from devtools.master import Master
from devtools.outcome import Outcome
from tests.lab.scene import STATE_DIR, Scene, state

OLD, NEW = "salt-minion_3007.15", "salt-minion_3008.3"
SECOND = "127.0.0.2"
OURS = "pkg.latest:\n    - name: salt-minion\n    - refresh: True\n"
UPDATE = f"""
before:
  cmd.run:
    - name: echo before >> /var/tmp/order
minion:
  {OURS}
after:
  cmd.run:
    - name: echo after >> /var/tmp/order
    - require:
      - pkg: minion
"""


@pytest.fixture
def make_scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Callable[..., Scene]:
    def make(version: str = "3007.15", **kwargs: Any) -> Scene:
        scene = begin(Scene(lab, site, version, **kwargs))
        scene.sls("update", UPDATE)
        return scene.up()

    return make


def updated(scene: Scene, version: str = "3008.3") -> None:
    """The update has been committed, nothing of it is left, and the minion answers in it."""
    record = scene.wait_end()
    assert record["phase"] == "committed", record
    assert scene.answers() == version.partition("+")[0]
    scene.settled()
    assert scene.version() == version
    assert scene.leftovers() == []
    assert scene.container.service()["UnitFileState"] == "enabled"


def assert_nothing_lost(out: Outcome) -> None:
    # Shown if it fails: neither container nor master are there any more.
    print(*out.timeline, out.logs, sep="\n")
    assert out.verdict() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # In every run, test_rpm_host.py has this pair.
        pytest.param("3006.28", "3007.15", marks=pytest.mark.soak),
        ("3007.15", "3008.3"),
    ],
)
def test_a_highstate_that_updates_the_minion_loses_nothing(
    lab: Lab, site: Path, old: str, new: str
) -> None:
    assert_nothing_lost(Experiment(lab, old, new, site=site, ping_interval=5).run())


def test_a_package_that_removes_the_tree_it_was_running_from(lab: Lab, site: Path) -> None:
    """As when the Python minor version inside the package changes (salt #69807)."""
    out = Experiment(lab, "3007.15", "3008.3+moved", site=site, long_jobs=1, ping_interval=5).run()
    assert_nothing_lost(out)


def test_a_package_that_stops_the_service_and_only_tries_to_restart_it(
    make_scene: Callable[..., Scene],
) -> None:
    """As in salt #69605."""
    scene = make_scene(offers=[OLD, "salt-minion_3008.3+stops"])
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    assert state(ran, "minion")["changes"]["salt-minion"]["new"] == "3008.3+stops"
    updated(scene, "3008.3+stops")


def test_a_package_whose_scriptlet_fails(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, "salt-minion_3008.3+broken"])
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    minion = state(ran, "minion")
    assert minion["result"] is False
    assert state(ran, "after")["result"] is True
    record = scene.wait_end(timeout=400)
    assert record["phase"] == "rolled_back", record
    assert "half done: salt-minion" in record["reason"], record
    assert scene.answers() == "3007.15"
    scene.settled()
    assert (scene.version(), scene.leftovers()) == ("3007.15", [])


def test_a_repository_that_is_gone(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW])
    scene.container.run(["apt-get", "update"])
    pid = scene.pid()
    scene.container.run(["mount", "-t", "tmpfs", "none", "/srv/repo"])
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    assert state(ran, "minion")["result"] is False
    assert state(ran, "minion")["changes"] == {}
    assert scene.record() == {}, "nothing was begun"
    assert scene.answers() == "3007.15"
    assert (scene.pid(), scene.version(), scene.leftovers()) == (pid, "3007.15", [])


BEHIND = """
way:
  file.managed:
    - name: /etc/apt/sources.list.d/lab.list
    - contents: 'deb [trusted=yes] file:/srv/repo ./'
minion:
  pkg.{function}
    - require:
      - file: way
reacts:
  cmd.run:
    - name: echo reacted
    - onchanges:
      - pkg: minion
gone:
  cmd.run:
    - name: |
        rm -f /etc/apt/sources.list.d/* /var/tmp/local/* /var/cache/apt/archives/*.deb
        rm -rf /var/lib/apt/lists/* /etc/apt/trusted.gpg.d
        printf 'Package: *\\nPin: version 3007.15\\nPin-Priority: 1001\\n' > /etc/apt/preferences
        echo 'Acquire::http::Proxy "http://127.0.0.1:9";' > /etc/apt/apt.conf.d/99proxy
        umount /mnt || true
        apt-mark hold salt-minion
    - require:
      - pkg: minion
"""
FROM_FILES = "installed:\n    - sources:\n      - salt-common: {0}/salt-common.deb\n" + (
    "      - salt-minion: {0}/salt-minion.deb\n"
)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param("latest:\n    - name: salt-minion\n    - refresh: True", id="latest"),
        pytest.param(FROM_FILES.format("/var/tmp/local"), id="sources", marks=pytest.mark.soak),
        pytest.param(FROM_FILES.format("/mnt"), id="medium", marks=pytest.mark.soak),
        pytest.param(FROM_FILES.format("salt:/"), id="salt", marks=pytest.mark.soak),
        pytest.param("uptodate:\n    - refresh: True", id="uptodate", marks=pytest.mark.soak),
        pytest.param(
            "installed:\n    - name: salt-minion\n    - version: '3008*'\n    - refresh: True",
            id="pattern",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_what_the_deferred_change_needs_is_taken_at_its_position(
    make_scene: Callable[..., Scene], function: str
) -> None:
    """
    Whatever becomes of it later in the run:

    =========== ====================================
    repository  its file and its index are removed
    package     removed from the cache of apt
    ``sources`` the files are removed
    medium      unmounted
    ``salt://`` removed on the master
    key         removed
    proxy       one that nobody answers at
    pin         to the old version
    lock        set; it names the new version then
    =========== ====================================
    """
    scene = make_scene(offers=[OLD, NEW])
    fetch = (
        "mkdir -m 755 /var/tmp/local && cd /var/tmp/local && apt-get update && apt-get download "
        "salt-common=3008.3 salt-minion=3008.3 && for name in common minion; do "
        "mv salt-$name_*.deb salt-$name.deb; done"
    )
    scene.container.run(["sh", "-ec", fetch.replace("$name_", "${name}_")])
    for each in scene.container.path("/var/tmp/local").iterdir():
        shutil.copy(each, scene.master.files)
    scene.container.run(["mount", "-t", "tmpfs", "none", "/mnt"])
    scene.container.run(["cp", "-r", "/var/tmp/local/.", "/mnt"])
    scene.sls("behind", BEHIND.replace("{function}", function))
    ran = scene.returned(scene.publish("state.apply", "behind"))["return"]
    assert state(ran, "gone")["result"] is True
    minion = state(ran, "minion")
    assert minion["result"] is True, minion
    assert minion["changes"]["salt-minion"] == {"old": "3007.15", "new": "3008.3"}
    updated(scene)
    assert scene.dpkg_status().startswith("hold")
    assert not scene.container.run(["ls", f"{STATE_DIR}/deferred"], check=False).stdout


def test_a_full_disk(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW])
    # The tree on a file system of its own that has room for little more than itself.
    scene.container.run(["cp", "-a", "/opt/saltstack", "/var/tmp/saltstack"])
    used = int(scene.container.run(["du", "-sm", "/var/tmp/saltstack"]).stdout.split()[0])
    scene.container.run(
        ["mount", "-t", "tmpfs", "-o", f"size={used + 8}m", "small", "/opt/saltstack"]
    )
    scene.container.run(["cp", "-a", "/var/tmp/saltstack/.", "/opt/saltstack/"])
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    minion = state(ran, "minion")
    assert minion["result"] is False
    assert minion["changes"] == {}
    # There was room for the package without the tree, and none for the other one.
    record = scene.wait_end()
    assert record["phase"] == "rolled_back", record
    assert scene.answers() == "3007.15"
    assert (scene.version(), scene.leftovers()) == ("3007.15", [])
    # With room, the same run works: no version is to blame for a full disk.
    scene.container.run(["mount", "-o", "remount,size=2g", "/opt/saltstack"])
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    assert state(ran, "minion")["result"] is True
    updated(scene)


def test_a_second_update_while_one_runs_is_refused(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW])
    long_job = scene.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.1; done")
    first = scene.publish("state.apply", "update")
    scene.wait_phase("waiting")
    second = scene.container.run(
        ["salt-call", "--local", "pkg.install", "salt-minion"], check=False
    )
    assert second.rc != 0
    assert "under way" in second.stdout + second.stderr
    scene.container.write("/var/tmp/go", "")
    scene.returned(long_job)
    assert state(scene.returned(first)["return"], "minion")["result"] is True
    updated(scene)


def test_other_jobs_that_do_not_end_postpone_the_update(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW], config={"safeupdate": {"jobs_timeout": 3}})
    pid = scene.pid()
    long_job = scene.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.1; done")
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    minion = state(ran, "minion")
    assert minion["result"] is False
    assert f"{long_job} cmd.run" in minion["comment"]
    assert state(ran, "before")["result"] is True
    assert state(ran, "after")["result"] is True
    assert scene.wait_end()["phase"] == "postponed"
    scene.container.write("/var/tmp/go", "")
    assert scene.returned(long_job)["success"]
    assert scene.call("safeupdate.status")["phase"] == "postponed"
    assert (scene.pid(), scene.version(), scene.leftovers()) == (pid, "3007.15", [])


@pytest.mark.parametrize(
    ("how", "phase"),
    [
        ("power cut", "waiting"),
        # In every run, test_engine_faults.py kills what installs.
        pytest.param("kill", "installing", marks=pytest.mark.soak),
        pytest.param("kill", "waiting", marks=pytest.mark.soak),
        pytest.param("power cut", "installing", marks=pytest.mark.soak),
    ],
)
def test_a_run_that_is_cut_short(make_scene: Callable[..., Scene], phase: str, how: str) -> None:
    scene = make_scene(offers=[OLD, NEW])
    if phase == "waiting":
        scene.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.1; done")
    cut = scene.publish("state.apply", "update")
    record = scene.wait_phase(phase)
    if how == "kill":
        scene.container.run(["kill", "-KILL", str(record["pid"])])
        scene.container.write("/var/tmp/go", "")
    else:
        scene.container.power_cut()
    scene.wait_end(timeout=400)
    # The run is resumed or reported, and a resumed one may update.
    scene.returned(cut, 300)
    scene.wait_end(timeout=400)
    version = scene.answers()
    scene.settled()
    assert version == scene.version()
    assert scene.dpkg_status() == "install ok installed"
    assert scene.leftovers() == []
    assert scene.container.service()["UnitFileState"] == "enabled"
    # And the way is free for the next one.
    ran = scene.returned(scene.publish("state.apply", "update"))["return"]
    assert state(ran, "minion")["result"] is True
    if version != "3008.3":
        updated(scene)


def test_salt_call_without_a_master(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW])
    scene.container.write("/srv/salt/update.sls", UPDATE)
    pid = scene.pid()
    ran = scene.salt_call("--local", "state.apply", "update")
    assert state(ran, "minion")["result"] is True
    assert "Deferred to the end of the run" in state(ran, "minion")["comment"]
    assert max(item["__run_num__"] for item in ran.values()) == state(ran, "minion")["__run_num__"]
    updated(scene)
    assert scene.pid() != pid


def test_a_function_that_installs_the_minion(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(offers=[OLD, NEW])
    changes = scene.call("pkg.install", "salt-minion", refresh=True)
    assert changes["salt-minion"] == {"old": "3007.15", "new": "3008.3"}
    updated(scene)


def test_an_upgrade_of_everything_leaves_the_minion_for_the_end(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(offers=[OLD, NEW, "lab-tool_1.0"])
    scene.container.run(["apt-get", "update"])
    scene.container.run(["apt-get", "install", "-y", "lab-tool"])
    scene.container.offer(OLD, NEW, "lab-tool_1.0", "lab-tool_2.0")
    scene.sls(
        "everything",
        "everything:\n  pkg.uptodate:\n    - refresh: True\nseen:\n  cmd.run:\n"
        "    - name: dpkg-query -W lab-tool salt-minion\n",
    )
    ran = scene.returned(scene.publish("state.apply", "everything"))["return"]
    assert state(ran, "seen")["changes"]["stdout"].split() == [
        "lab-tool", "2.0", "salt-minion", "3007.15"
    ]  # fmt: skip
    changes = state(ran, "everything")["changes"]
    assert changes["lab-tool"] == {"old": "1.0", "new": "2.0"}
    assert changes["salt-minion"] == {"old": "3007.15", "new": "3008.3"}
    updated(scene)


@pytest.mark.soak
def test_a_package_that_pulls_the_minion_along(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(
        "3006.28", offers=["salt-minion_3006.28", OLD, "lab-tool_1.0", "lab-wants-minion_1.0"]
    )
    scene.sls(
        "pull",
        "pull:\n  pkg.installed:\n    - refresh: True\n    - pkgs: [lab-tool, lab-wants-minion]\n"
        "seen:\n  cmd.run:\n    - name: dpkg-query -W lab-tool salt-minion\n",
    )
    ran = scene.returned(scene.publish("state.apply", "pull"))["return"]
    assert state(ran, "seen")["changes"]["stdout"].split() == [
        "lab-tool", "1.0", "salt-minion", "3006.28"
    ]  # fmt: skip
    assert state(ran, "pull")["result"] is True
    others = {"lab-tool", "lab-wants-minion"}
    assert set(state(ran, "pull")["changes"]) == {*others, *MINION_PACKAGES}
    updated(scene, "3007.15")


def test_a_restart_that_a_state_asks_for_is_deferred(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    scene.sls(
        "restart",
        "conf:\n  file.managed:\n    - name: /etc/salt/minion.d/x.conf\n    - contents: 'x: 1'\n"
        "salt-minion:\n  service.running:\n    - watch:\n      - file: conf\n"
        "after:\n  cmd.run:\n    - name: echo after >> /var/tmp/order\n"
        "    - require:\n      - service: salt-minion\n",
    )
    pid = scene.pid()
    ran = scene.returned(scene.publish("state.apply", "restart"))["return"]
    assert "if it can be handed over" in state(ran, "salt-minion")["comment"]
    assert "as soon as every job has ended" in state(ran, "salt-minion")["comment"]
    assert state(ran, "after")["result"] is True
    assert scene.wait_end()["phase"] == "committed"
    assert scene.answers() == "3007.15"
    assert scene.pid() != pid
    assert scene.call("config.get", "x") == 1
    scene.settled()
    assert scene.leftovers() == []


def test_the_extension_sets_itself_up_and_says_so(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(set_up=False)
    scene.sls("own", "safeupdate:\n  safeupdate.enabled: []\n")
    codes = {item["code"] for item in scene.call("safeupdate.check")}
    assert {"executor", "engine"} <= codes
    pid = scene.pid()
    assert state(scene.call("state.apply", "own"), "safeupdate")["result"] is True
    assert scene.wait_end()["phase"] == "committed"
    assert scene.answers() == "3007.15"
    assert scene.pid() != pid
    assert scene.call("safeupdate.check") == []
    told = {"version": "3007.15", "phase": "committed", "pending": False}
    scene.master.wait(
        lambda: told.items() <= scene.call("grains.get", "safeupdate").items(),
        60,
        "the grains to be made again",
    )


@pytest.mark.parametrize(
    "config",
    [
        # In every run, tests/integration/test_ordering.py has runs of a simulated host.
        pytest.param({"multiprocessing": False}, id="threads", marks=pytest.mark.soak),
        pytest.param({"process_count_max": 1}, id="one process", marks=pytest.mark.soak),
        pytest.param({"sudo_user": "root"}, id="sudo", marks=pytest.mark.soak),
    ],
)
def test_other_ways_to_run_jobs(make_scene: Callable[..., Scene], config: dict[str, Any]) -> None:
    scene = make_scene(offers=[OLD, NEW], config=config)
    pings = [scene.publish("test.ping") for _ in range(3)]
    run = scene.publish("state.apply", "update")
    scene.master.wait(lambda: scene.container.read("/var/tmp/order", ""), 60, "the run to begin")
    # Plain Salt never runs a queued one behind sudo: it takes its own outer job for another run.
    kind = {"concurrent": True} if "sudo_user" in config else {"queue": True}
    queued = scene.publish("state.single", "test.nop", "queued", **kind)
    scene.master.wait(lambda: scene.locked("drain"), 120, "the update to hold new jobs")
    held = scene.publish("cmd.run", "echo held >> /var/tmp/held")
    assert state(scene.returned(run)["return"], "minion")["result"] is True
    updated(scene)
    for jid in (*pings, queued, held):
        assert scene.returned(jid)["success"], jid
    assert MINION in scene.master.returns(queued)
    assert scene.container.read("/var/tmp/held") == "held\n"


# In every run, tests/integration/test_masters.py has two masters and a simulated host.
@pytest.mark.soak
def test_a_minion_with_two_masters(lab: Lab, site: Path) -> None:
    scene = Scene(lab, site, offers=[OLD, NEW], config={"master": ["127.0.0.1", SECOND]})
    second = Master(scene.container.network, config={"interface": SECOND}, pythonpath=site)
    try:
        # The masters of one minion have one key.
        shutil.copytree(scene.master.start().dir / "pki", second.dir / "pki")
        second.start()
        scene.up().sls("update", UPDATE)
        second.wait_minion(MINION, 90)

        def publish(master: Master, line: str) -> tuple[Master, str]:
            return master, master.publish("cmd.run", line, target=MINION, tgt_type="list")

        jobs = [publish(second, "sleep 8; echo long")]
        run = scene.publish("state.apply", "update")
        scene.master.wait(lambda: scene.locked("drain"), 60, "the update to hold new jobs")
        jobs += [publish(master, "echo held") for master in (scene.master, second)]
        assert state(scene.returned(run)["return"], "minion")["result"] is True
        updated(scene)
        for master, jid in jobs:
            assert master.wait_return(jid, MINION, 90)["success"]
    except BaseException:
        print(scene.container.logs(), scene.master.log(), second.log())
        raise
    finally:
        second.stop()
        scene.down()
