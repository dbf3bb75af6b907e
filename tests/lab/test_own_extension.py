"""This extension is brought to another version, as a rollout asks for it, on a real host."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.command import REPO
from devtools.lab.container import SITE_PACKAGES, Container, Lab
from devtools.lab.rpm_recipes import BUNDLE
from saltext_safeupdate import __version__
from tests.lab.engine import NEW, OLD, QUICK, EngineScene, deb
from tests.support import documents, wheels

WHEELS = "/srv/wheels"
GOOD, BAD = f"{__version__}.post1", f"{__version__}.post2"
# It can be imported, and ends the minion that it comes up in.
KILLS = "\n\ndef start():\n    import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n"
SETTINGS = {"safeupdate": {**QUICK["safeupdate"], "extension_source": WHEELS}}


class Host(EngineScene):
    """A minion that is asked for versions of the extension, which the pip of its Salt fetches."""

    def bring(self, **goal: str) -> dict[str, Any]:
        """Have it begin what a rollout asks for, and return how it ended."""
        number = time.time_ns() // 1000
        told = self.call("safeupdate.request", number, **goal)
        assert told["refused"] == "", told
        record: dict[str, Any] = self.wait_end()
        return record

    def versions(self) -> tuple[str, str]:
        """Return the version of the extension that runs, and the installed one."""
        self.answers()
        told = self.call("safeupdate.status")["extension"]
        return told["running"], told["installed"]

    def files(self) -> dict[str, bytes]:
        """Return the files of the extension, without byte code."""
        top = self.container.path(SITE_PACKAGES)
        return {
            str(path.relative_to(top)): path.read_bytes()
            for path in top.glob("saltext_safeupdate*/**/*")
            if path.is_file() and "__pycache__" not in path.parts
        }


@pytest.fixture
def host(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Host:
    scene: Host = begin(Host(lab, site, OLD, offers=[deb(OLD), deb(NEW)], config=SETTINGS))
    folder = scene.container.dir / "up" / WHEELS.lstrip("/")
    wheels.rebuild(site, folder, GOOD)
    wheels.rebuild(site, folder, BAD, **{"engines/safeupdate.py": KILLS})
    scene.up()
    return scene


def test_it_is_committed_and_salt_stays(host: Host) -> None:
    record = host.bring(extension=GOOD)
    assert record["phase"] == "committed", record
    assert host.versions() == (GOOD, GOOD)
    assert host.leftovers() == []
    host.assert_runs(OLD)


@pytest.mark.soak
def test_one_that_does_not_come_up_is_put_back_and_salt_is_updated_with_the_old_one(
    host: Host,
) -> None:
    before = host.files()
    record = host.bring(extension=BAD)
    assert record["phase"] == "rolled_back", record
    assert host.versions() == (__version__, __version__)
    assert host.files() == before
    assert host.leftovers() == []
    # It is not taken again, and whatever else is asked for works.
    told = host.call("safeupdate.request", time.time_ns() // 1000, extension=BAD)
    assert "quarantine" in told["refused"]
    assert host.bring(extension=GOOD)["phase"] == "committed"
    assert host.bring(version=NEW)["phase"] == "committed"
    host.assert_runs(NEW)
    assert host.versions() == (GOOD, GOOD)


@pytest.mark.soak
def test_the_bundle_takes_it_where_it_says(
    lab: Lab, site: Path, make_container: Callable[..., Container]
) -> None:
    """What the page on the installation has for it; its environment is that of the real one."""
    layers = [lab.cache.rpm_host(OLD, BUNDLE), lab.cache.rpm_tools()]
    container = make_container(None, extra_layers=layers)
    wheels.rebuild(site, container.dir / "up/root", __version__)
    container.up()
    (command,) = (
        command
        for block in documents.blocks(REPO / "docs/topics/howto/install.md")
        if block.said == "tests/lab/test_own_extension.py"
        for command in block.commands
    )
    place = "/var/lib/venv-salt-minion/local"
    env = {"VENV_PIP_TARGET": place, "PYTHONPATH": place}
    container.run(["sh", "-c", command], env=env)
    argv = ["venv-salt-call", "--local", "--out", "json", "-l", "quiet", "safeupdate.status"]
    told = json.loads(container.run(argv, env=env).stdout)["local"]
    assert told["extension"] == {"running": __version__, "installed": __version__}
    assert container.exists(f"{place}/saltext_safeupdate/__init__.py")
