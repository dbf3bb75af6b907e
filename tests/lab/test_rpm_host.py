"""Hosts whose Salt came from rpms, updated from the first request to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import ORDER_FILE, sls
from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import FAULT_FILE, PREFIX
from devtools.lab.rpm_recipes import (
    BUNDLE,
    DISTRIBUTION,
    OFFERED,
    PACKAGES,
    REPOSITORY,
    UPSTREAM,
    Packaging,
)
from devtools.outcome import state_names, update_name
from tests.lab import engine
from tests.lab.engine import QUICK
from tests.lab.rpm import FRONT_ENDS, NEW, OLD, RpmScene, installed

# Waits until a file of the package is another one, or its scriptlet runs, and kills whoever
# installs: a front end or rpm, or the supervisor.
_AMBUSH = """
import os, signal, sys, time
victim, moment, path = sys.argv[1:]

def seen():
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime, file.read()
    except FileNotFoundError:
        return None

known = seen()

def begun():
    if moment == "scriptlet":
        return os.path.exists("/run/blocked")
    return seen() != known

def programs():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                yield int(name), file.read().decode(errors="replace").split(chr(0))
        except OSError:
            pass

def is_victim(words):
    if victim == "supervisor":
        return any(word.endswith("/core/launch.py") for word in words)
    return any(os.path.basename(word) in (victim, f"{victim}-3") for word in words[:2])

end = time.monotonic() + 120
while not begun():
    if time.monotonic() > end:
        sys.exit("it was never reached")
    time.sleep(0.001)
killed = [(pid, os.kill(pid, signal.SIGKILL)) for pid, words in programs() if is_victim(words)]
sys.exit(0 if killed else "nothing to kill")
"""
BROKEN = "sed -i '/^import re/i raise SystemExit(1)' {program}\n"


@pytest.fixture
def make_scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Callable[..., RpmScene]:
    def make(version: str, **kwargs: Any) -> RpmScene:
        offers = OFFERED[kwargs.get("packaging", UPSTREAM)]
        settings = {"offers": offers, "config": QUICK, **kwargs}
        made: RpmScene = begin(RpmScene(lab, site, version, **settings)).up()
        return made

    return make


PAIRS = [("3006.28", "3007.15"), ("3007.15", "3008.3"), ("3006.28", "3008.3")]


@pytest.mark.parametrize(
    ("front_end", "packaging", "old", "new"),
    [
        ("dnf", DISTRIBUTION, *PAIRS[0]),
        ("zypper", BUNDLE, *PAIRS[1]),
        *(
            pytest.param(front_end, packaging, *pair, marks=pytest.mark.soak)
            for front_end in FRONT_ENDS
            for packaging, pairs in {
                UPSTREAM: PAIRS,
                DISTRIBUTION: PAIRS[1:],
                BUNDLE: PAIRS[1:2],
            }.items()
            for pair in pairs
            if (front_end, packaging) != ("zypper", BUNDLE)
        ),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_highstate_that_updates_the_minion_loses_nothing(
    make_scene: Callable[..., RpmScene],
    front_end: str,
    packaging: Packaging,
    old: str,
    new: str,
) -> None:
    scene = make_scene(old, front_end=front_end, packaging=packaging)
    assert set(scene.call("safeupdate.revisions")["active"]) == set(packaging.packages)
    assert scene.call("grains.get", "os_family") == {"dnf": "RedHat", "zypper": "Suse"}[front_end]
    name = packaging.packages[-1]
    work = sls("pkg.installed", installed(new)).replace("name: salt-minion", f"name: {name}")
    scene.sls("work", work)
    scene.sls("top", "base:\n  '*':\n    - work\n")
    before = scene.pid()
    long = scene.publish("cmd.run", "until [ -e /var/tmp/go-on ]; do sleep 0.1; done; echo long")
    run = scene.publish("state.apply")
    scene.wait_phase("waiting")
    late = scene.publish("cmd.run", "echo late")
    scene.container.write("/var/tmp/go-on", "")

    assert scene.returned(long)["return"] == "long"
    ran = scene.returned(run)["return"]
    assert [item["__id__"] for item in ran.values() if not item["result"]] == [], ran
    names = state_names()
    assert scene.container.read(ORDER_FILE).split() == [n for n in names if n != update_name()]
    last = max(ran.values(), key=lambda item: item["__run_num__"])
    assert last["__id__"] == update_name(), "the minion's own package comes last"
    assert last["changes"][name]["new"].startswith(new)
    assert scene.wait_end()["phase"] == "committed"
    assert scene.returned(late)["return"] == "late"
    assert scene.pid() not in ("0", before)
    scene.assert_runs(installed(new))


@pytest.mark.soak
@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("packaging", [DISTRIBUTION, BUNDLE], ids=lambda value: value.name)
def test_a_minion_in_other_packages_that_does_not_start_is_rolled_back(
    make_scene: Callable[..., RpmScene], packaging: Packaging, front_end: str
) -> None:
    scene = make_scene(engine.OLD, front_end=front_end, packaging=packaging, faulty=True)
    scene.container.write(FAULT_FILE, BROKEN.format(program=f"/usr/bin/{scene.unit}"))
    record = scene.update(engine.NEW)
    assert record["phase"] == "rolled_back", record
    # The unit of these packages starts it again and again.
    assert "started 4 times in a row" in record["reason"], record
    scene.assert_runs(OLD)


@pytest.fixture(scope="module", params=["dnf", pytest.param("zypper", marks=pytest.mark.soak)])
def scene(lab: Lab, site: Path, request: pytest.FixtureRequest) -> Iterator[RpmScene]:
    # Nothing newer: an upgrade of everything is one to it.
    offers = [engine.OLD, engine.NEW]
    ours = {"safeupdate": {**QUICK["safeupdate"], "restart": "wait"}}
    settings = {"offers": offers, "config": ours, "front_end": request.param, "faulty": True}
    made = RpmScene(lab, site, engine.OLD, **settings)
    try:
        made.up().enable()
        yield made
    finally:
        made.down()


@pytest.fixture
def old(scene: RpmScene, request: pytest.FixtureRequest) -> Iterator[RpmScene]:
    """The older version is installed, and nothing keeps the newer one from being so."""
    scene.container.write(FAULT_FILE, "")
    if scene.version() != OLD:
        assert scene.update(engine.OLD, allow_downgrade=True)["phase"] == "committed"
    if scene.call("safeupdate.revisions")["skipped"]:
        scene.call("safeupdate.unquarantine", engine.NEW)
    yield scene
    scene.tell_of(request.node)


def test_a_minion_that_does_not_start_is_rolled_back(old: RpmScene) -> None:
    scene = old
    scene.container.write(FAULT_FILE, BROKEN.format(program=f"{PREFIX}/salt-minion"))
    record = scene.update(engine.NEW)
    assert record["phase"] == "rolled_back", record
    assert "has failed" in record["reason"]
    scene.assert_runs(OLD)
    status = scene.call("safeupdate.status")
    assert (status["phase"], status["reason"]) == ("rolled_back", record["reason"])
    assert "was rolled back on this minion" in scene.call("safeupdate.update", engine.NEW)


def test_a_mark_that_a_user_made_for_the_scriptlets_stops_an_update(old: RpmScene) -> None:
    """They would give all files of Salt to whom its text names."""
    scene, mark = old, "/tmp/.salt-minion-upgrade-ownership"
    as_a_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    scene.container.run([*as_a_user, "sh", "-c", f"echo nobody:nogroup > {mark}"])
    refused = scene.call("safeupdate.update", engine.NEW)
    assert f"{mark} belongs to the user with the UID 65534" in refused, refused
    assert scene.version() == OLD
    scene.container.run(["rm", mark])
    assert scene.update(engine.NEW)["phase"] == "committed"
    assert scene.container.run(["find", "/tmp", "-name", ".salt-minion-*"]).stdout == ""
    owner = scene.container.run(["stat", "--format=%U", PREFIX]).stdout.strip()
    assert owner == "salt"


@pytest.mark.parametrize(
    ("how", "victim", "moment"),
    [
        ("job", "front end", "unpacking"),
        pytest.param("job", "front end", "scriptlet", marks=pytest.mark.soak),
        pytest.param("asked", "supervisor", "unpacking", marks=pytest.mark.soak),
        pytest.param("asked", "supervisor", "scriptlet", marks=pytest.mark.soak),
        pytest.param("asked", "rpm", "scriptlet", marks=pytest.mark.soak),
        pytest.param("asked", "rpm", "unpacking", marks=pytest.mark.soak),
    ],
)
def test_what_installs_is_killed(old: RpmScene, how: str, victim: str, moment: str) -> None:
    """It ends committed or rolled back, and the database says what is so."""
    scene = old
    scene.container.write("/run/block", "")
    if moment == "scriptlet":
        scene.container.write(
            FAULT_FILE, "touch /run/blocked; while [ -e /run/block ]; do sleep 0.1; done"
        )
    # Among its files: before others, behind many.
    program = scene.front_end if victim == "front end" else victim
    argv = ["python3", "-c", _AMBUSH, program, moment, f"{SITE_PACKAGES}/salt/version.py"]
    ambush = scene.container.popen(argv)
    try:
        if how == "asked":
            scene.ask(engine.NEW)
        else:
            scene.publish("pkg.install", "salt-minion", version=NEW)
        output, _ = ambush.communicate(timeout=150)
    finally:
        ambush.kill()
        scene.container.run(["rm", "-f", "/run/block", "/run/blocked"])
    assert ambush.returncode == 0, output
    record = scene.wait_end(400)
    print(f"{how}, {program} killed {moment}: {record['phase']} ({record['reason']})")
    assert record["phase"] in ("committed", "rolled_back"), record
    scene.assert_runs(NEW if record["phase"] == "committed" else OLD)


def test_a_change_inside_a_job_returns(scene: RpmScene) -> None:
    """The scriptlets of either version may ask for a restart while the job waits for them."""
    scene.container.write(FAULT_FILE, "")
    before, other = scene.pid(), OLD if scene.version() == NEW else NEW
    if scene.front_end == "dnf":
        line = "dnf -y install " + " ".join(f"{name}-{other}" for name in PACKAGES)
    else:
        line = "zypper --non-interactive install --oldpackage "
        line += " ".join(f"{name}={other}" for name in PACKAGES)
    ran = scene.returned(scene.publish("cmd.run_all", line))["return"]
    assert ran["retcode"] == 0, ran
    scene.master.wait(lambda: scene.pid() not in ("0", before), 60, "the restart")
    scene.assert_runs(other)


def test_an_upgrade_by_the_administrator_waits_for_a_running_job(old: RpmScene) -> None:
    """These packages stop the minion before its files are replaced, and start it in the end."""
    scene = old
    before = scene.pid()
    long = scene.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.1; done; echo long")
    scene.master.wait(lambda: scene.call("saltutil.find_job", long), 30, "the job to run")
    everything = {"dnf": ["dnf", "-y", "upgrade"], "zypper": ["zypper", "-n", "update"]}
    upgrade = scene.container.popen(everything[scene.front_end])
    try:
        scene.master.wait(lambda: scene.locked("drain"), 60, "a scriptlet to stop the minion")
        late = scene.publish("cmd.run", "echo late")
        assert scene.pid() == before
        scene.container.write("/var/tmp/go", "")
        assert scene.returned(long)["return"] == "long"
        output, _ = upgrade.communicate(timeout=120)
    finally:
        upgrade.kill()
    assert upgrade.returncode == 0, output
    assert scene.returned(late)["return"] == "late"
    assert scene.pid() not in ("0", before)
    scene.assert_runs(NEW)


_LOCK = {
    "dnf": "echo salt-minion-0:{old}.* >> /etc/dnf/plugins/versionlock.list",
    "zypper": "zypper --non-interactive addlock salt-minion",
}
_BEHIND = """
minion:
  pkg.installed:
    - name: salt-minion
    - version: {new}
    - refresh: True
gone:
  cmd.run:
    - name: |
        {lock}
        rm -f /etc/yum.repos.d/* /etc/zypp/repos.d/*
        rm -rf /var/cache/dnf/* /var/cache/zypp/*
        mount -t tmpfs none {repository}
    - require:
      - pkg: minion
"""


@pytest.mark.soak
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_what_the_deferred_change_needs_is_taken_at_its_position(
    make_scene: Callable[..., RpmScene], front_end: str
) -> None:
    """As in test_update.py; a lock that is set behind the position names the new version."""
    scene = make_scene(engine.OLD, front_end=front_end)
    lock = _LOCK[front_end].format(old=OLD)
    scene.sls("behind", _BEHIND.format(lock=lock, repository=REPOSITORY, new=NEW))
    ran = {
        each["__id__"]: each
        for each in scene.returned(scene.publish("state.apply", "behind"))["return"].values()
    }
    assert ran["gone"]["result"] is True, ran
    assert ran["minion"]["result"] is True, ran
    assert ran["minion"]["changes"]["salt-minion"]["new"].startswith(engine.NEW)
    record = scene.wait_end()
    assert record["phase"] == "committed", record
    scene.assert_packages(NEW)
    assert "no way back" not in ran["minion"]["comment"].lower()
    assert scene.manager("version_locked", ["salt-minion"]) == ["salt-minion"]
    if front_end == "dnf":
        assert f"salt-minion-0:{NEW}.*" in scene.container.read("/etc/dnf/plugins/versionlock.list")
