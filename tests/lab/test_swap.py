"""
Runs whose states remove the minion's own packages and install them, against real daemons.

What plain Salt 3007.15 does on apt in the same container: the removal stops the service, which
waits for the run. After 90 s systemd kills both. The package is removed and not installed again,
the run returns nothing, and no minion answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from devtools.lab.rpm_recipes import OFFERED, REPOSITORY, UPSTREAM
from tests.lab.engine import NEW, OLD, QUICK, EngineScene, deb
from tests.lab.rpm import RpmScene, installed
from tests.lab.scene import state

# dnf takes many times the processor time of apt.
DNF, ZYPPER = (pytest.param(name, marks=pytest.mark.soak) for name in ("dnf", "zypper"))
on_each = pytest.mark.parametrize("scene", ["apt", DNF, ZYPPER], indirect=True, scope="module")
LATER = [{"order": "last"}]


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path, request: pytest.FixtureRequest) -> Iterator[EngineScene]:
    """One minion for all of these runs: each leaves one that works."""
    if request.param == "apt":
        made = EngineScene(lab, site, OLD, offers=[deb(OLD), deb(NEW)], config=QUICK)
    else:
        made = RpmScene(
            lab, site, OLD, offers=OFFERED[UPSTREAM], config=QUICK, front_end=request.param
        )
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(autouse=True)
def _told(scene: EngineScene, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    scene.tell_of(request.node)


def _own(scene: EngineScene) -> list[str]:
    return sorted(scene.call("safeupdate.revisions")["active"])


def _exact(scene: EngineScene, version: str) -> str:
    """Return what the package manager calls the version."""
    return installed(version) if isinstance(scene, RpmScene) else version


def _files(scene: EngineScene, version: str) -> list[dict[str, str]]:
    """Return the package files of a version, as ``sources`` names them."""
    return [{name: _file(scene, name, _exact(scene, version))} for name in _own(scene)]


def _file(scene: EngineScene, name: str, exact: str) -> str:
    if isinstance(scene, RpmScene):
        pattern = f"{name}-{exact}.*.rpm"
        return scene.container.run(["find", "-L", REPOSITORY, "-name", pattern]).stdout.split()[0]
    scene.container.run(["apt-get", "update"])
    said = scene.container.run(["apt-cache", "show", f"{name}={exact}"]).stdout
    (path,) = {line.split()[1] for line in said.splitlines() if line.startswith("Filename:")}
    return f"/srv/repo/{path}"


def _gone(scene: EngineScene, function: str = "removed") -> dict[str, Any]:
    return {f"pkg.{function}": [{"pkgs": _own(scene)}]}


def _here(scene: EngineScene, version: str) -> dict[str, Any]:
    exact = _exact(scene, version)
    return {"pkg.installed": [{"pkgs": [{name: exact} for name in _own(scene)]}]}


def _apply(scene: EngineScene, **states: Any) -> dict[str, Any]:
    """Apply the states in this order; return the results by ID."""
    content = {**states, "after": {"cmd.run": [{"name": "echo after"}]}}
    scene.sls("swap", json.dumps(content))
    ran = scene.returned(scene.publish("state.apply", "swap"))["return"]
    found = {name: state(ran, name) for name in content}
    assert found["after"]["result"] is True
    return found


def _swapped(scene: EngineScene, version: str, **states: Any) -> None:
    """The run is complete, and the minion of that version answers; nothing is left over."""
    before, pid = scene.record().get("id"), scene.pid()
    ran = _apply(scene, **states)
    record = scene.wait_end()
    assert [name for name, each in ran.items() if each["result"] is not True] == [], ran
    assert record["id"] != before
    assert record["phase"] == "committed", record
    scene.assert_runs(_exact(scene, version))
    assert scene.pid() not in ("0", pid)


@on_each
def test_removed_and_installed(scene: EngineScene) -> None:
    _swapped(scene, OLD, gone=_gone(scene), here=_here(scene, OLD))


@on_each
def test_purged_and_the_latest_installed(scene: EngineScene) -> None:
    """Its configuration and its keys stay: else it would not answer."""
    here = {"pkg.latest": [{"pkgs": _own(scene)}, {"refresh": True}]}
    _swapped(scene, NEW, gone=_gone(scene, "purged"), here=here)


@on_each
def test_removed_and_installed_from_files_of_an_older_version(scene: EngineScene) -> None:
    # The lab's packages are not signed, and zypper looks at those of files.
    here = {"pkg.installed": [{"sources": _files(scene, OLD)}, {"skip_verify": True}]}
    _swapped(scene, OLD, gone=_gone(scene), here=here)


@on_each
def test_written_in_the_other_order(scene: EngineScene) -> None:
    (function, arguments), *_ = _here(scene, OLD).items()
    _swapped(scene, OLD, here={function: [*arguments, *LATER]}, gone=_gone(scene))


@on_each
def test_removed_by_a_function(scene: EngineScene) -> None:
    gone = {"module.run": [{"pkg.remove": [{"pkgs": _own(scene)}]}]}
    _swapped(scene, NEW, gone=gone, here=_here(scene, NEW))


@on_each
def test_what_is_not_on_offer_changes_nothing(scene: EngineScene) -> None:
    before, pid, version = scene.record().get("id"), scene.pid(), scene.version()
    ran = _apply(scene, gone=_gone(scene), here=_here(scene, "3009.9"))
    for name in ("gone", "here"):
        assert ran[name]["result"] is False
        assert "Nothing was changed" in ran[name]["comment"]
    assert (scene.record().get("id"), scene.pid(), scene.version()) == (before, pid, version)
    assert scene.leftovers() == []


@on_each
def test_an_installation_that_fails_brings_the_former_minion_back(scene: EngineScene) -> None:
    """Its files are cut off: the package manager notices when the old package is gone."""
    version, files = scene.version(), _files(scene, NEW)
    for entry in files:
        for name, path in entry.items():
            entry[name] = f"/var/tmp/{os.path.basename(path)}"
            scene.container.run(["cp", path, entry[name]])
            scene.container.run(["truncate", "--size=-20000", entry[name]])
    here = {"pkg.installed": [{"sources": files}, {"skip_verify": True}]}
    ran = _apply(scene, gone=_gone(scene), here=here)
    record = scene.wait_end()
    assert (ran["gone"]["result"], ran["here"]["result"]) == (True, False), ran
    assert record["phase"] == "rolled_back", record
    scene.assert_runs(version)


@on_each
def test_removed_as_the_last_word(scene: EngineScene) -> None:
    """The only one of them that leaves no minion: it was asked for."""
    ran = _apply(scene, here=_here(scene, OLD), gone=_gone(scene))
    assert ran["gone"]["result"] is True, ran
    assert scene.wait_end()["phase"] == "committed"
    assert scene.container.service(f"{scene.unit}.service")["MainPID"] == "0"
    assert not scene.container.exists(f"/usr/bin/{scene.call_program}")
