"""Every phase and every death, every kind of broken minion, and the storm, on hosts of rpm's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.lab.container import Lab
from devtools.lab.rpm_recipes import VERSIONS
from tests.lab import engine, faults
from tests.lab.engine import QUICK
from tests.lab.jobs import WAYS
from tests.lab.rpm import FRONT_ENDS, OLD, PAIRS, RpmJobScene, RpmScene
from tests.lab.test_engine_rollback import FAULTS, SILENCE, SILENT, rolled_back
from tests.lab.test_jobs_storm import MEANS, storm

SHORT = {("installing", "package manager"), ("installing", "power")}
PATIENT = QUICK["safeupdate"]["watch_timeout"]


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path, request: pytest.FixtureRequest) -> Iterator[RpmScene]:
    front_end, _, timeout = request.param.partition(" ")
    config = {"safeupdate": {**QUICK["safeupdate"], "watch_timeout": float(timeout)}}
    settings = {"offers": VERSIONS, "config": config, "front_end": front_end, "faulty": True}
    made = RpmScene(lab, site, engine.OLD, **settings)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.mark.parametrize(
    ("scene", "phase", "fault"),
    [
        pytest.param(
            f"{front_end} {PATIENT}",
            *row,
            marks=() if front_end == "zypper" and row in SHORT else pytest.mark.soak,
        )
        for front_end in FRONT_ENDS
        for row in faults.ROWS
    ],
    indirect=["scene"],
)
def test_whatever_dies_in_whichever_phase(
    scene: RpmScene, table: list[str], phase: str, fault: str
) -> None:
    row = faults.survive(scene, PAIRS[scene.front_end], phase, fault)
    table.append(f"{scene.front_end:<8}{row}")


@pytest.mark.parametrize(
    ("scene", "fault"),
    [
        pytest.param(
            f"{front_end} {SILENCE if fault in SILENT else PATIENT}",
            fault,
            marks=pytest.mark.soak,
        )
        for front_end in FRONT_ENDS
        for fault in FAULTS
    ],
    indirect=["scene"],
)
def test_what_does_not_prove_healthy_is_rolled_back(scene: RpmScene, fault: str) -> None:
    faults.get_ready(scene, PAIRS[scene.front_end])
    rolled_back(scene, fault, engine.NEW, OLD)


@pytest.mark.soak
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("restarts", [len(MEANS), 50])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_storm_of_restarts(lab: Lab, site: Path, front_end: str, way: str, restarts: int) -> None:
    """What installs the packages again runs their scriptlets."""
    ours = {"offers": [engine.OLD], "config": WAYS[way]}
    made = RpmJobScene(lab, site, engine.OLD, front_end=front_end, **ours)
    storm(made, f"{engine.OLD} with {front_end}, {way}", restarts)
