"""A real systemd starts a minion from its slot, and again from its package or its environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools import venvs
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX
from tests.lab.engine import NEW, OLD, QUICK
from tests.lab.handover import FLAG, UNTIL_FLAG
from tests.lab.jobs import WORK, Stream, thirty
from tests.lab.slotted import BROKEN, MOST, SOURCE, Beside, InVenv, Slotted
from tests.support.waiting import wait_for

VERSION = "3007.15"
SLOTS = "/var/lib/slots"
# Of the lab's Salt, a build that can be moved: its interpreter is in it.
_BUILD = f"""\
set -e
mkdir -p /srv/extra/salt/bin /srv/builds
cp "$(readlink -f /usr/bin/python3)" /srv/extra/salt/bin/python3.11
ln -s python3.11 /srv/extra/salt/bin/python3
cd "$(dirname {PREFIX})"
tar -czf /srv/builds/salt-{VERSION}.tar.gz $(ls -d salt/* | grep -v '^salt/bin$') \\
    -C /srv/extra salt/bin
rm -rf /srv/extra
cd /srv/builds
python3 -m saltext_safeupdate.core.slots.describe --version {VERSION} salt-{VERSION}.tar.gz
"""
# Salt's own wheels, and those of all that it needs, for the Python of the host.
_WHEELS = f"""\
set -e
mkdir -p /srv/builds
cp /srv/wheels/*.whl /srv/builds
cd /srv/builds
python3 -m saltext_safeupdate.core.slots.describe --version {VERSION} --python 3.11 *.whl
"""
_CALL = """
import glob, json, sys
from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.slots import installer, offers
from saltext_safeupdate.core.slots.furnish import furnish
from saltext_safeupdate.core.slots.store import Slots
from saltext_safeupdate.core.slots.unit import SlotUnit

directory, site, version = sys.argv[1:4]
slots = Slots(directory)

def stage(version):
    source = offers.Directory("/srv/builds")
    (offer,) = offers.offers(source, keyring="", run=run)
    assert not offer.problem, offer.problem
    files = {name: source.path(name) for name in offer.manifest.files}
    home = site + "/saltext_safeupdate"
    return slots.stage(
        offer.manifest,
        files,
        python="/usr/bin/python3.11",
        furnish=lambda it: furnish(it, home, "/none", run),
    )

unit = SlotUnit("salt-minion", installer.program(directory, "salt-minion"), run=run)
it = installer.SlotInstaller(slots, "salt-minion", unit, before=version, stage=stage)
method, arguments = sys.argv[4], json.loads(sys.stdin.read())
if method in ("verify", "install"):
    arguments[0] = [File(*file) for file in arguments[0]]
print(json.dumps(getattr(it, method)(*arguments)))
"""
# What mounts a file system after the rest of the boot.
SLOW_DISK = """\
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sleep 5
"""
LATE = "bind,nofail,x-systemd.requires=slow-disk.service,x-systemd.after=slow-disk.service"


class Host:
    """A host whose minion runs from a package, and what installs slots on it."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.env = {"PYTHONPATH": "/srv/site", "PYTHONDONTWRITEBYTECODE": "1"}

    def __call__(self, method: str, *arguments: Any) -> Any:
        argv = ["python3", "-c", _CALL, SLOTS, "/srv/site", VERSION, method]
        result = self.container.run(argv, env=self.env, stdin=json.dumps(arguments))
        return json.loads(result.stdout)

    def build(self, script: str = _BUILD) -> None:
        self.container.run(["sh", "-c", script], env=self.env)

    def restart(self) -> None:
        self.container.run(["systemctl", "restart", "salt-minion"])

    def prefix(self) -> str:
        """Return the interpreter that the main process of the service runs."""

        def found() -> str:
            pid = self.container.service()["MainPID"]
            shown = self.container.run(["readlink", f"/proc/{pid}/exe"], check=False)
            # systemd tells the process before it runs the program.
            return shown.stdout.strip() if "python" in shown.stdout else ""

        return wait_for(found, "the minion to run")

    def words(self) -> list[str]:
        """Return how the main process of the service was started."""
        pid = self.container.service()["MainPID"]
        return self.container.run(["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")


@pytest.fixture
def host(lab: Lab, site: Path) -> Iterator[Host]:
    wheels = str(venvs.wheels(lab.cache.cache, VERSION))
    container = lab.container(VERSION, binds={"/srv/site": str(site), "/srv/wheels": wheels})
    container.write("/etc/salt/minion.d/here.conf", json.dumps({"master": "127.0.0.1"}))
    container.up()
    try:
        yield Host(container)
    finally:
        container.down()


def test_a_minion_runs_from_its_slot_also_after_a_boot_and_again_from_its_package(
    host: Host,
) -> None:
    host.restart()
    package = host.prefix()
    host.container.write("/etc/systemd/system/slow-disk.service", SLOW_DISK)
    units = sorted(path.name for path in host.container.path("/etc/systemd/system").iterdir())
    host.build()
    before = host("secure", ["salt"], "/none")
    assert before == [["salt", VERSION, "/usr/bin/salt-minion", ""]]
    slot = host("download", {"salt": VERSION}, "/none")
    host("verify", slot)
    assert host.container.run(["systemctl", "cat", "salt-minion"]).stdout.count("ExecStart=") == 1

    host("install", slot)
    assert host.prefix() == package, "what runs goes on until it is restarted"
    host.restart()
    ((_, _, directory, _),) = slot
    assert host.prefix() == f"{directory}/tree/bin/python3.11"
    assert host.words()[0] == f"{directory}/tree/bin/python3", "it is not the link, which moves"
    active = f"{SLOTS}/minions/salt-minion/active/bin"
    said = host.container.run([f"{active}/salt-call", "--version"]).stdout
    assert said.split()[1] == VERSION
    loads = "import saltext_safeupdate, salt; print(saltext_safeupdate.__file__, salt.__file__)"
    python = f"{directory}/tree/bin/python3"
    found = host.container.run([python, "-I", "-c", loads]).stdout.split()
    assert all(path.startswith(f"{directory}/tree/lib/") for path in found), found

    # Their file system is mounted some seconds after the boot.
    host.container.write("/etc/fstab", f"/srv/disk {SLOTS} none {LATE} 0 0\n")
    host.container.run(["mv", SLOTS, "/srv/disk"])
    host.container.run(["mkdir", SLOTS])
    host.container.reboot()
    host.container.run(["systemctl", "start", "salt-minion"])
    assert host.prefix() == f"{directory}/tree/bin/python3.11"
    # It has run, and has written byte code.
    host("verify", slot)

    host("install", before)
    host.restart()
    assert host.prefix() == package
    after = sorted(path.name for path in host.container.path("/etc/systemd/system").iterdir())
    assert after == units


def test_a_minion_runs_from_wheels(host: Host) -> None:
    host.restart()
    host.prefix()
    host.build(_WHEELS)
    slot = host("download", {"salt": VERSION}, "/none")
    host("verify", slot)
    host("install", slot)
    host.restart()
    host.prefix()
    active = f"{SLOTS}/minions/salt-minion/active/bin"
    assert host.words()[1] == f"{active}/salt-minion"
    asked = [f"{active}/salt-call", "--local", "--out=json", "grains.get", "saltpath"]
    ((_, _, directory, _),) = slot
    answer = json.loads(host.container.run(asked).stdout)
    assert answer == {"local": f"{directory}/tree/lib/salt"}
    host("verify", slot)


# -- with a master: all that a user does ------------------------------------------------------


@pytest.fixture
def from_package(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Slotted:
    scene: Slotted = begin(Slotted(lab, site, OLD, config=QUICK))
    scene.up()
    return scene


@pytest.fixture
def from_venv(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> InVenv:
    scene: InVenv = begin(InVenv(lab, site, OLD, config=QUICK))
    scene.up()
    return scene


def test_from_a_package_to_a_slot_and_back_and_no_job_is_lost(from_package: Slotted) -> None:
    scene = from_package
    scene.build(NEW)
    offered = scene.call("safeupdate.avail", source=SOURCE)["versions"]["3008"]
    assert [(each["version"], each["source"], each["problem"]) for each in offered] == [
        (NEW, SOURCE, "")
    ]
    plan = scene.call("safeupdate.plan", NEW, source=SOURCE)
    assert [each for each in plan["findings"] if each["blocking"]] == []
    job = scene.publish("test.sleep", 40)
    asked = scene.call("safeupdate.update", NEW, source=SOURCE, timeout=300)
    record = scene.ended(asked["update"], 600)
    assert record["phase"] == "committed", record
    assert scene.runs() == NEW
    assert scene.returned(job)["return"] is True
    assert scene.version() == OLD, "the package is as it was"
    told = scene.call("safeupdate.wait", asked["update"])
    assert told["to"]["salt"].startswith(f"{NEW}-")
    found = scene.call("safeupdate.revisions")
    (slot,) = found["slots"]
    print(f"a slot of wheels takes {slot['size'] / 1e6:.0f} MB")
    assert slot["size"] < MOST
    assert found["without_slot"]["version"] == OLD

    # As another user: Salt starts its own interpreter for that.
    assert scene.call("cmd.run", "id -un", runas="nobody") == "nobody"
    scene.container.reboot()
    assert scene.runs() == NEW
    back = scene.call("safeupdate.rollback")
    assert scene.ended(back["update"], 600)["phase"] == "committed"
    assert scene.runs() == OLD
    assert not scene.follows()
    refused = scene.call("safeupdate.update", NEW, source=SOURCE)
    assert "was rolled back on this minion" in refused
    scene.assert_runs(OLD)


@pytest.mark.soak
def test_a_salt_in_a_virtual_environment_goes_to_a_slot_and_from_a_broken_one_back(
    from_venv: InVenv,
) -> None:
    scene = from_venv
    scene.build(NEW, more=BROKEN)
    asked = scene.call("safeupdate.update", "3008", source=SOURCE, timeout=300)
    record = scene.ended(asked["update"], 900)
    assert record["phase"] == "rolled_back", record
    assert scene.runs() == OLD
    assert not scene.follows()

    # What was mended is another build.
    scene.build(NEW)
    asked = scene.call("safeupdate.update", "3008", source=SOURCE, timeout=300)
    assert scene.ended(asked["update"], 600)["phase"] == "committed"
    assert scene.runs() == NEW
    back = scene.call("safeupdate.rollback", to="without_slot")
    assert scene.ended(back["update"], 600)["phase"] == "committed"
    assert scene.runs() == OLD
    assert not scene.follows()


@pytest.mark.soak
def test_an_update_to_a_slot_and_on_to_another_waits_for_no_job(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    scene: Beside = begin(Beside(lab, site, OLD, watch_timeout=900))
    scene.up()
    scene.have_own_tree()
    command = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    job = scene.publish("cmd.run", command)
    scene.wait_trace("start")
    for version in (NEW, OLD):
        scene.build(version)
        asked = scene.call(
            "safeupdate.update", version, source=SOURCE, allow_downgrade=True, timeout=300
        )
        record = scene.ended(asked["update"], 600)
        assert record["phase"] == "committed", record
        assert json.loads(record["extra"])["progress"]["beside"], "it has waited for no job"
        scene.master.wait(lambda wanted=version: scene.answers() == wanted, 60, version)
        assert scene.traces() == ["start"]
    # Each generation has its tree; nobody removes a slot below one.
    copies = scene.trees()
    scene.container.write(FLAG, "")
    assert scene.returned(job)["return"] == "done"
    assert scene.traces() == ["start", "end"]
    scene.master.wait(lambda: scene.left() == [], 90, "the earlier generations to go")
    assert scene.runs() == OLD
    assert len(copies) == 1, "only the minion of the package has a copy"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_under_a_stream_of_jobs_no_update_to_a_slot_loses_one(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    """From a package to a slot, to another one, and back, beside one long job."""
    scene: Beside = begin(Beside(lab, site, OLD, watch_timeout=900))
    scene.up()
    scene.have_own_tree()
    scene.sls("thirty", thirty(0.02))
    for version in (NEW, OLD):
        scene.build(version, place=version)
    line = f"echo long start >> {WORK}; {UNTIL_FLAG}; echo long end >> {WORK}; echo done"
    long = scene.publish("cmd.run", line)
    scene.wait_trace("long start")
    with Stream(scene) as stream:
        for version in (NEW, OLD, ""):
            words = {"source": f"salt://{version}", "allow_downgrade": True}
            asked = (
                scene.call("safeupdate.update", version, timeout=400, **words)
                if version
                else scene.call("safeupdate.rollback", to="without_slot", timeout=400)
            )
            record = scene.ended(asked["update"], 900)
            assert record["phase"] == "committed", record
            assert json.loads(record["extra"])["progress"]["beside"], "it has waited for no job"
            scene.master.wait(
                lambda wanted=version or OLD: scene.answers() == wanted, 90, "the next minion"
            )
    scene.container.write(FLAG, "")
    missing = stream.await_returns(300)
    found = stream.verdict()
    print(
        f"3 updates: published {len(stream.sent)} = returned "
        f"{len(stream.sent) - len(missing) - len(found['reported'])} + reported "
        f"{len(found['reported'])} + silent {len(missing)}; run twice {len(found['twice'])}"
    )
    assert (missing, found["reported"], found["twice"], found["wrong"]) == ([], [], [], [])
    assert scene.returned(long)["return"] == "done"
    traces = scene.traces()
    assert (traces.count("long start"), traces.count("long end")) == (1, 1)
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the ledger to be empty")
    assert scene.runs() == OLD
    assert not scene.follows()
