"""A Salt that pip has installed goes from nothing to a committed update, as the README says it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools import venvs
from devtools.command import REPO
from devtools.lab.container import GUEST_ENV, Lab
from devtools.lab.recipes import PREFIX
from saltext_safeupdate import __version__
from tests.lab.engine import NEW, OLD, QUICK
from tests.lab.managed import served
from tests.lab.scene import FINAL
from tests.lab.test_slots import InVenv
from tests.lab.test_slots_hosts import ALL, FIRST
from tests.support import documents, wheels

HERE = "tests/lab/test_from_pip.py"
INDEX = "/srv/index"
PIP = "[global]\nindex-url = http://127.0.0.1:8000/\n"
# As if the virtual environment were activated.
ENV = {"PATH": f"{PREFIX}/bin:{GUEST_ENV['PATH']}", "VIRTUAL_ENV": PREFIX}


class Indexed(InVenv):
    """A minion whose Salt pip has installed, and an index that has other versions of it."""

    def index(self, site: Path, *versions: str) -> None:
        place = self.container.path(INDEX)
        for version in versions:
            for wheel in venvs.wheels(self.container.lab.cache.cache, version).glob("*.whl"):
                name = re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()
                (place / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(wheel, place / name)
        wheels.rebuild(site, place / "saltext-safeupdate", __version__)
        self.container.write("/etc/pip.conf", PIP)


class FromPip(Indexed):
    """One that does not have this extension yet."""

    def _extension(self, lab: Lab, site: Path) -> Path:
        empty: Path = lab.run_dir.path / "no-extension"
        empty.mkdir(exist_ok=True)
        return empty


def test_four_commands_bring_a_salt_from_pip_to_a_committed_update(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    scene: FromPip = begin(FromPip(lab, site, OLD, config=QUICK, set_up=False))
    scene.up()
    scene.index(site, NEW)
    found = [each for each in documents.blocks(REPO / "README.md") if each.said == HERE]
    commands = [command for block in found for command in block.commands]
    assert len(commands) == 4
    with served(scene.container, INDEX):
        for command in commands:
            said = scene.container.run(["sh", "-c", command], timeout=900, check=False, env=ENV)
            print(f"$ {command}\n{said.stdout}{said.stderr}")
            assert said.rc == 0, (command, said.stdout, said.stderr)
            if "safeupdate.enabled" in command:
                # A person waits, too, until the minion has restarted.
                scene.wait_phase(*FINAL, timeout=300)
                scene.answers()
    assert scene.call("safeupdate.status")["phase"] == "committed"
    assert scene.runs() == NEW
    (slot,) = scene.call("safeupdate.revisions")["slots"]
    assert slot["active"]


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_each_series_comes_from_an_index_up_and_down(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    scene: Indexed = begin(Indexed(lab, site, FIRST, config=QUICK))
    scene.up()
    scene.index(site, *sorted(set(ALL)))
    with served(scene.container, INDEX):
        for version in ALL:
            # The newest of its series is what the index has.
            job = scene.publish("test.sleep", 20)
            asked = scene.call(
                "safeupdate.update",
                version.partition(".")[0],
                source="index",
                allow_downgrade=True,
                timeout=400,
            )
            record = scene.ended(asked["update"], 900)
            assert record["phase"] == "committed", record
            assert scene.runs() == version
            assert scene.returned(job)["return"] is True
    back = scene.call("safeupdate.rollback", to="without_slot", timeout=300)
    assert scene.ended(back["update"], 900)["phase"] == "committed"
    assert scene.runs() == FIRST
    assert not scene.follows()
