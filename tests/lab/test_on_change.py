"""Somebody else replaces the code of a minion, on a real host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import SITE_PACKAGES, Lab
from tests.lab.engine import OLD, EngineScene, deb

FLAG = "/var/tmp/go"
SETTINGS = {"safeupdate": {"on_change": "restart", "restart_jitter": 0.1}}


@pytest.mark.soak
@pytest.mark.parametrize("what", ["a library", "the program"])
def test_the_minion_restarts_when_its_jobs_have_ended(
    lab: Lab, site: Path, begin: Callable[[Any], Any], what: str
) -> None:
    scene: EngineScene = begin(EngineScene(lab, site, OLD, offers=[deb(OLD)], config=SETTINGS))
    container = scene.up().container
    scene.answers()
    before = scene.pid()
    job = scene.publish("cmd.run", f"until test -e {FLAG}; do sleep 0.1; done; echo done")
    path = f"{SITE_PACKAGES}/yaml/__init__.py"
    if what == "the program":
        path = container.run(["readlink", "-f", f"/proc/{before}/exe"]).stdout.strip()
    container.run(["cp", "-a", path, f"{path}.new"])
    container.run(["mv", f"{path}.new", path])
    asked = scene.wait_phase("waiting")
    assert asked["kind"] == "restart"
    assert path in asked["reason"]
    assert "code-replaced" in _codes(scene)
    assert scene.pid() == before
    container.run(["touch", FLAG])
    assert scene.returned(job)["return"] == "done"
    assert scene.wait_end()["phase"] == "committed"
    assert scene.pid() not in ("0", before)
    scene.answers()
    assert "code-replaced" not in _codes(scene)


def _codes(scene: EngineScene) -> list[str]:
    return [problem["code"] for problem in scene.call("safeupdate.check")]
