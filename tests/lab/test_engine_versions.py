"""This extension is replaced by a newer version while an update of the minion is watched."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import SITE_PACKAGES, Lab
from tests.lab.engine import NEW, OLD, EngineScene, deb
from tests.support import wheels

# The version of this extension that begins the update.
FORMER = "0.0.9"
# Long enough for the minion to be restarted with another version before the commit.
SLOW = {"safeupdate": {"stable_interval": 25, "watch_timeout": 900}}


@pytest.mark.parametrize(
    "who", [pytest.param("its supervisor", marks=pytest.mark.soak), "a new supervisor"]
)
def test_an_update_is_watched_across_the_switch_of_the_extension(
    lab: Lab, site: Path, begin: Callable[[Any], Any], tmp_path: Path, who: str
) -> None:
    former = tmp_path / "former"
    with zipfile.ZipFile(wheels.rebuild(site, tmp_path, FORMER)) as wheel:
        wheel.extractall(former)
    scene = begin(EngineScene(lab, former, OLD, offers=[deb(OLD), deb(NEW)], config=SLOW)).up()
    asked = scene.ask()
    scene.wait_phase("watching")
    assert scene.answers() == NEW
    place = scene.container.path(SITE_PACKAGES)
    for each in place.glob("saltext_safeupdate*"):
        shutil.rmtree(each)
    shutil.copytree(site, place, dirs_exist_ok=True)
    if who == "a new supervisor":
        scene.container.run(["systemctl", "stop", "salt-safeupdate.service"])
    assert scene.record()["phase"] == "watching", "it was not committed yet"
    scene.container.run(["systemctl", "restart", "salt-minion"])
    record = scene.ended(asked["update"])
    assert record["phase"] == "committed", record
    scene.assert_runs(NEW)
    assert [row["phase"] for row in scene.call("safeupdate.history", limit=1)[0]["phases"]] == [
        *("requested", "checking", "staging", "waiting", "installing"),
        *("delivering", "stepping", "restarting", "watching", "committed"),
    ]
    # And what the former version has kept leads back.
    back = scene.call("safeupdate.rollback")
    assert scene.ended(back["update"])["phase"] == "committed"
    scene.assert_runs(OLD)
