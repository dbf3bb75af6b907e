"""Slots on every kind of host: from what the host has to slots of each series, down, and back."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from devtools.experiment import MINION
from devtools.lab.container import Lab
from saltext_safeupdate.core.settings import of_minion
from tests.lab.engine import QUICK
from tests.lab.handover import FLAG, UNTIL_FLAG, HandoverScene
from tests.lab.jobs import WORK
from tests.lab.pings import Pings
from tests.lab.rpm import FRONT_ENDS, RpmHost
from tests.lab.scene import FINAL
from tests.lab.slotted import ALLOWED, Beside, InVenv, Slotted
from tests.lab.test_update_two_minions import SECOND, Two

FIRST = "3006.28"
# From slot to slot: each series up and down.
ALL = ("3007.15", "3008.3", "3007.15", FIRST)
WAYS = [(host, ALL) for host in ("apt", *FRONT_ENDS, "venv")]
# Hosts with apt, and those whose Salt no package owns, are in test_slots.py in every run.
SHORT = ("dnf", ("3008.3",))


class RpmSlotted(RpmHost, Slotted):
    """A minion from rpms whose master has builds."""


def made(lab: Lab, site: Path, host: str) -> Slotted:
    if host in FRONT_ENDS:
        return RpmSlotted(lab, site, FIRST, config=QUICK, front_end=host)
    return (InVenv if host == "venv" else Slotted)(lab, site, FIRST, config=QUICK)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("host", "versions"),
    [SHORT, *(pytest.param(*way, marks=pytest.mark.soak) for way in WAYS)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_from_what_the_host_has_to_slots_and_back(
    lab: Lab,
    site: Path,
    begin: Callable[[Any], Any],
    host: str,
    versions: tuple[str, ...],
) -> None:
    scene: Slotted = begin(made(lab, site, host))
    scene.up()
    for version in sorted(set(versions)):
        scene.build(version, place=version)
    packages = "" if host == "venv" else scene.version()
    for version in versions:
        job = scene.publish("test.sleep", 20)
        asked = scene.call(
            "safeupdate.update",
            version,
            source=f"salt://{version}",
            allow_downgrade=True,
            timeout=400,
        )
        record = scene.ended(asked["update"], 900)
        assert record["phase"] == "committed", record
        assert scene.runs() == version
        assert scene.returned(job)["return"] is True
        assert scene.follows()
    job = scene.publish("test.sleep", 20)
    back = scene.call("safeupdate.rollback", to="without_slot", timeout=300)
    assert scene.ended(back["update"], 900)["phase"] == "committed"
    assert scene.runs() == FIRST
    assert scene.returned(job)["return"] is True
    assert not scene.follows()
    if packages:
        assert scene.version() == packages, "the package is as it was"
        scene.assert_packages(packages)


class RpmBeside(RpmHost, Beside):
    """One from rpms."""

    offer_name = "{}"


class VenvBeside(HandoverScene, InVenv):
    """One whose Salt no package owns."""


# Pings before an update, and after it.
BEFORE, AFTER = 50, 15


def beside(lab: Lab, site: Path, host: str) -> Beside | VenvBeside:
    words: dict[str, Any] = {"stable_interval": 5, "watch_timeout": 900}
    if host in FRONT_ENDS:
        return RpmBeside(lab, site, "3007.15", front_end=host, **words)
    return (VenvBeside if host == "venv" else Beside)(lab, site, "3007.15", **words)


def phases(scene: Slotted, began: float) -> str:
    """Return the phases of the newest update, and how many seconds since then each began."""
    (newest,) = scene.call("safeupdate.history", limit=1)
    return ", ".join(f"{row['phase']} {row['at'] - began:.1f}" for row in newest["phases"])


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("host", ["apt", *FRONT_ENDS, "venv"])
def test_pings_beside_an_update_to_a_slot_are_all_answered_once(
    lab: Lab, site: Path, begin: Callable[[Any], Any], host: str
) -> None:
    """To a slot, and on to another one, while one job runs; it prints how long pings took."""
    scene: Beside = begin(beside(lab, site, host))
    scene.up()
    scene.have_own_tree()
    versions = ("3008.3", "3007.15")
    for version in versions:
        scene.build(version, place=version)
    long = scene.publish("cmd.run", f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}")
    scene.wait_trace("start")
    for version in versions:
        words = {"source": f"salt://{version}", "allow_downgrade": True}
        with Pings(scene, rate=4, most=10) as pings:
            scene.master.wait(lambda: len(pings.sent) >= BEFORE, 120, "pings before the update")
            began = time.time()
            asked = scene.call("safeupdate.update", version, timeout=400, **words)
            record = scene.ended(asked["update"], 900)
            scene.master.wait(lambda wanted=version: scene.answers() == wanted, 90, version)
            ended, most = time.time(), len(pings.sent) + AFTER
            scene.master.wait(lambda most=most: len(pings.sent) >= most, 120, "pings after it")
        assert record["phase"] == "committed", record
        assert json.loads(record["extra"])["progress"]["beside"], "it has waited for no job"
        before, during = pings.took(0, began), pings.took(began, math.inf)
        print(
            f"{host}, to {version}: {len(pings.sent)} pings, lost {pings.lost()}, twice "
            f"{pings.twice()}; the longest one {max(during):.2f} s, before the update "
            f"{max(before):.2f} s; asked until answered {ended - began:.0f} s. The longest ones, "
            f"since it was asked: {pings.longest(began)}. Phases: {phases(scene, began)}"
        )
        assert (pings.lost(), pings.twice()) == (0, 0)
    scene.container.write(FLAG, "")
    assert scene.returned(long)["retcode"] == 0
    assert scene.traces() == ["start", "end"]
    assert scene.runs() == versions[-1]


class TwoSlotted(Two, Slotted):
    """Two minions of one host, whose master has builds."""

    more = MappingProxyType({"safeupdate": ALLOWED})


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_two_minions_share_slots_and_each_has_its_own(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    scene: TwoSlotted = begin(TwoSlotted(lab, site, FIRST, config=QUICK))
    scene.up()
    for version in ("3007.15", "3008.3"):
        scene.build(version, place=version)

    first = partial(scene.master.call, minion=MINION, timeout=400)
    second = partial(scene.master.call, minion=SECOND, timeout=400)
    state_dir = of_minion({"conf_file": "/etc/salt2/minion"})[0].state_dir

    def runs() -> tuple[str, str]:
        scene.master.wait_minion(MINION, 90)
        scene.master.wait_minion(SECOND, 90)
        return first("test.version"), second("test.version")

    def ended(call: Callable[..., Any], asked: Any) -> None:
        place = scene.state_dir if call == first else state_dir

        def is_over() -> Any:
            found = scene.record(place)
            assert found["id"] == asked["update"], found
            return found if found["phase"] in FINAL else None

        found = scene.master.wait(is_over, 600, "the end of the update")
        assert found["phase"] == "committed", found
        locked = scene.locked if call == first else scene.second_locked
        scene.master.wait(lambda: not locked("supervisor"), 60, "the supervisor to end")

    def update(call: Callable[..., Any], version: str) -> None:
        ended(call, call("safeupdate.update", version, source=f"salt://{version}"))

    def slots(call: Callable[..., Any]) -> dict[str, dict[str, Any]]:
        return {each["version"]: each for each in call("safeupdate.revisions")["slots"]}

    pid = scene.second_pid()
    update(first, "3007.15")
    assert runs() == ("3007.15", FIRST)
    assert scene.second_pid() == pid, "nothing has changed below the other one"
    pid = scene.pid()
    update(second, "3007.15")
    assert runs() == ("3007.15", "3007.15")
    assert scene.pid() == pid
    (shared,) = slots(first).values()
    assert slots(second) == {"3007.15": shared}, "both run from one slot"

    update(second, "3008.3")
    assert runs() == ("3007.15", "3008.3")
    assert slots(first)["3007.15"]["active"]
    assert not slots(first)["3008.3"]["active"]
    assert slots(second)["3008.3"]["active"]
    # What the other one needs, nobody removes.
    for call, version in ((first, "3008.3"), (second, "3007.15")):
        told = call("safeupdate.forget_slot", slots(call)[version]["slot"])
        assert "Nothing was changed" in told
    ended(first, first("safeupdate.rollback"))
    assert runs() == (FIRST, "3008.3")
    assert slots(second)["3008.3"]["active"]
    ended(second, second("safeupdate.rollback"))
    assert runs() == (FIRST, "3007.15")
    ended(second, second("safeupdate.rollback", to="without_slot"))
    assert runs() == (FIRST, FIRST)
