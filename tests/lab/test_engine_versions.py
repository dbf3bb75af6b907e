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

# The first version of this extension, as it was built then.
FIRST = Path(__file__).with_name("data") / "first-saltext_safeupdate-0.1.0-py3-none-any.whl"
# Long enough for the minion to be restarted with another version before the commit.
SLOW = {"safeupdate": {"stable_interval": 25, "watch_timeout": 900}}


@pytest.mark.parametrize(
    "who", [pytest.param("its supervisor", marks=pytest.mark.soak), "a new supervisor"]
)
def test_an_update_is_watched_across_the_switch_of_the_extension(
    lab: Lab, site: Path, begin: Callable[[Any], Any], tmp_path: Path, who: str
) -> None:
    first = tmp_path / "first"
    with zipfile.ZipFile(FIRST) as wheel:
        wheel.extractall(first)
    scene = begin(EngineScene(lab, first, OLD, offers=[deb(OLD), deb(NEW)], config=SLOW)).up()
    asked = scene.ask()
    scene.wait_phase("watching")
    assert scene.answers() == NEW
    place = scene.container.path(SITE_PACKAGES)
    shutil.rmtree(place / "saltext_safeupdate")
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
        *("restarting", "watching", "committed"),
    ]
    # And what the first version has kept leads back.
    back = scene.call("safeupdate.rollback")
    assert scene.ended(back["update"])["phase"] == "committed"
    scene.assert_runs(OLD)
