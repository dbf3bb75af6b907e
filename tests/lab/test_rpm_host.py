"""Hosts whose Salt came from rpms, updated from the first request to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import ORDER_FILE, sls
from devtools.lab import Lab
from devtools.labrpms import VERSIONS
from devtools.outcome import state_names, update_name
from tests.lab.engine import QUICK
from tests.lab.rpm import NEW, RpmScene


@pytest.fixture
def make_scene(
    lab: Lab, site: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., RpmScene]]:
    made: list[RpmScene] = []

    def make(**kwargs: Any) -> RpmScene:
        made.append(
            RpmScene(lab, site, VERSIONS[0], offers=VERSIONS, **{"config": QUICK, **kwargs})
        )
        return made[-1].up()

    yield make
    for scene in made:
        if getattr(request.node, "failed_call", False):
            print(scene.container.logs(), scene.master.log())
        scene.down()


@pytest.mark.parametrize("front_end", ["dnf", "zypper"])
def test_a_highstate_that_updates_the_minion_loses_nothing(
    make_scene: Callable[..., RpmScene], front_end: str
) -> None:
    scene = make_scene(front_end=front_end)
    assert scene.call("grains.get", "os_family") == {"dnf": "RedHat", "zypper": "Suse"}[front_end]
    scene.sls("work", sls("pkg.installed", NEW))
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
    assert last["changes"]["salt-minion"]["new"].startswith(VERSIONS[1])
    assert scene.wait_end()["phase"] == "committed"
    assert scene.returned(late)["return"] == "late"
    assert scene.pid() not in ("0", before)
    scene.assert_runs(NEW)
