"""A real systemd starts a minion from its slot, and again from its package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools import venvs
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX
from tests.support.waiting import wait_for

VERSION = "3007.15"
SLOTS = "/var/lib/slots"
# Of the lab's Salt, a build that can be moved: its interpreter is in it, and its programs start
# the one beside them, as those of the Salt project do.
_BUILD = f"""\
set -e
mkdir -p /srv/extra/salt/bin /srv/builds
cp "$(readlink -f /usr/bin/python3)" /srv/extra/salt/bin/python3.11
ln -s python3.11 /srv/extra/salt/bin/python3
for each in minion call; do
    cat > /srv/extra/salt/salt-$each <<END
#!/bin/sh
"true" ''''
"exec" "\\$(dirname "\\$(readlink -f "\\$0")")/bin/python3" "\\$0" "\\$@"
' '''
import sys
from salt.scripts import salt_$each
sys.exit(salt_$each())
END
    chmod 755 /srv/extra/salt/salt-$each
done
cd "$(dirname {PREFIX})"
tar -czf /srv/builds/salt-{VERSION}.tar.gz $(ls -d salt/* | grep -v '^salt/bin$') \\
    -C /srv/extra salt/bin salt/salt-minion salt/salt-call
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
