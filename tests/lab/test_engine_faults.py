"""
Every phase of an update, and what dies in it: the table of issue 5.

The supervisor is stopped the moment its record is in the phase; then the fault happens, and
it goes on. Every row has to end committed or rolled back, with a minion that works.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.lab.container import Lab
from tests.lab import faults
from tests.lab.engine import OLD, QUICK, EngineScene, deb

FAULTY = "3008.3+faulty"
PAIR = faults.Pair(
    OLD,
    FAULTY,
    {
        "staging": ["apt-get", "dpkg-query", "dpkg-deb"],
        "installing": ["dpkg"],
        "rolling_back": ["dpkg"],
    },
)
# One of each kind where it hurts most; the others belong to the soak, and the power to rpm's.
SHORT = {
    ("installing", "supervisor"),
    ("installing", "package manager"),
    ("watching", "minion"),
}


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path) -> Iterator[EngineScene]:
    made = EngineScene(lab, site, OLD, offers=[deb(OLD), deb(FAULTY)], config=QUICK)
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    print("\n" + "\n".join([f"{'phase':<14}{'what died':<18}{'end':<14}seconds", *rows]))


@pytest.mark.parametrize(("phase", "fault"), faults.rows(SHORT))
def test_whatever_dies_in_whichever_phase(
    scene: EngineScene, table: list[str], phase: str, fault: str
) -> None:
    table.append(faults.survive(scene, PAIR, phase, fault))


def test_the_table_is_complete() -> None:
    assert set(faults.ROWS) >= SHORT
    assert len(faults.PHASES) * len(faults.FAULTS) == 40
    assert len(faults.ROWS) == 33
