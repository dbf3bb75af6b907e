"""What was installed beside Salt is there in the next Salt, without a network."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from devtools.command import run
from devtools.experiment import extension_layer, minion_config
from devtools.lab.artefacts import GUEST_PYTHON
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import MOVED_PREFIX, PREFIX
from devtools.venvs import pip_env

OLD, NEW = f"{PREFIX}/bin/python3", f"{MOVED_PREFIX}/bin/python3"
STAGED = "/var/lib/salt-safeupdate/extensions"
# A Salt extension, and something compiled.
PURE, COMPILED = "saltext.zfs==1.0.0", "ujson==5.10.0"
# What the supervisor does: it runs from a copy of the core, with a Python of the host.
_CORE = f"""
import json, sys
from saltext_safeupdate.core import wiring
from saltext_safeupdate.core.extensions import distributions, beside_salt, supervisor_copy
from saltext_safeupdate.core.extensions.carry import carry_extensions
from saltext_safeupdate.core.host import command
def stage():
    found = distributions.inventory({OLD!r}, command.run, wiring.package_manager().unowned)
    problems = beside_salt.stage(
        found, {STAGED!r}, program={OLD!r}, python=None, run=command.run
    )
    return {{"found": [each.name for each in found], "modules": [each.modules for each in found],
            "problems": problems, "kept": supervisor_copy.make("/var/lib/salt-safeupdate")}}
def carry():
    return carry_extensions({NEW!r}, command.run, {STAGED!r})
print(json.dumps(globals()[sys.argv[1]]()))
"""


def _wheels(lab: Lab) -> Path:
    def build(out: Path, log: Path) -> None:
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        argv += ["--python-version", ".".join(map(str, GUEST_PYTHON)), "-d", str(out)]
        run([*argv, PURE, COMPILED], timeout=300, log=log, env=pip_env())

    return lab.cache.cache.get("beside", "extensions", [PURE, COMPILED, repr(GUEST_PYTHON)], build)


def test_extensions_come_along_into_another_place_without_a_network(
    lab: Lab, site: Path, make_container: Callable[..., Container]
) -> None:
    container = make_container(
        "3007.15",
        offers=["salt-minion_3007.15", "salt-minion_3008.3+moved"],
        extra_layers=[extension_layer(lab, site)],
        binds={"/srv/wheels": str(_wheels(lab))},
    )
    container.write("/etc/salt/minion.d/lab.conf", minion_config({"file_client": "local"}))
    container.write("/var/tmp/core.py", _CORE)
    container.up()
    wheels = container.run(["find", "/srv/wheels", "-name", "*.whl"]).stdout.split()
    assert len(wheels) == 2
    container.run([OLD, "-m", "pip", "install", "--no-index", "--no-deps", *wheels])
    place = container.run([OLD, "-c", "import ujson; print(ujson.__file__)"]).stdout

    told = json.loads(container.run([OLD, "/var/tmp/core.py", "stage"]).stdout)
    assert told["found"] == ["saltext-safeupdate", "saltext.zfs", "ujson"]
    assert all(told["modules"])
    assert told["problems"] == []

    # From here on there is nothing to fetch anything from: the containers have no network.
    container.run(["apt-get", "update"])
    container.run(["apt-get", "install", "-y", "salt-minion=3008.3+moved"], timeout=300)
    assert not container.exists(place.strip())

    core = str(Path(told["kept"]).parents[2])
    argv = ["/usr/bin/python3", "/var/tmp/core.py", "carry"]
    carried = container.run(argv, env={"PYTHONPATH": core}).stdout
    assert json.loads(carried) == ["saltext-safeupdate", "saltext.zfs", "ujson"]
    look = "import saltext.zfs, ujson; print(ujson.loads('1'), ujson.__file__)"
    loaded, place = container.run([NEW, "-I", "-c", look]).stdout.split()
    assert (loaded, place.startswith(MOVED_PREFIX)) == ("1", True)
    assert json.loads(container.run(argv, env={"PYTHONPATH": core}).stdout) == []
    listed = json.loads(
        container.run(
            ["salt-call", "--local", "--out", "json", "-l", "quiet", "safeupdate.status"]
        ).stdout
    )
    assert listed["local"]["running"] == "3008.3"
