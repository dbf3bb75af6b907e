"""
An update while a long job runs: how long it takes, and how much longer other jobs take meanwhile.

Runs in the lab, as root: three minions are updated to and fro between two versions of Salt, in
turns. One has plain Salt and is updated by ``apt-get`` in a shell, as an administrator does it. The
others have the extension and are updated by request, one that waits for jobs and one that hands
over. Each time a job of 45 s runs, and a ping is published every 0.3 s. Pings from a while before
the update show how long one takes without an update. A ping begins when the master has published
it: the time for publishing is a figure of its own, because the minion does not cause it. Nothing is
asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import salt.version
from table import row

from devtools import venvs
from devtools.experiment import MINION
from devtools.lab.container import Lab
from tests.lab.engine import EngineScene, deb
from tests.lab.handover import HandoverScene
from tests.lab.jobs import WAITING, Publishing

ROUNDS = 3
WORK = 45
INTERVAL = 0.3
BEFORE = 15
# Seconds before an update in which pings are not counted: they may end while it runs.
BETWEEN = 5
VERSION = "3008.3"
PACKAGES = ("3007.15", "3008.3")
SIDES = ("plain", "wait", "handover")
TIMEOUT = 240


class Scene(HandoverScene, EngineScene):
    """A minion that hands over and is updated by request."""


class Found(NamedTuple):
    """The result of one update: times in seconds, and losses."""

    update: float
    before: float
    longest: float
    pings: int
    lost_pings: int
    long_job: bool
    publishing: float


class Pings(Publishing):
    """Publishes a ping at each interval, and measures how long each takes."""

    def __init__(self, scene: EngineScene) -> None:
        # No limit: pings that wait are the subject.
        super().__init__(scene, INTERVAL, most=sys.maxsize)
        # When the master was asked to publish each, and when it had done so.
        self.sent: dict[str, tuple[float, float]] = {}

    def publish(self) -> str:
        began = time.time()
        jid = self._scene.publish("test.ping")
        self.sent[jid] = (began, time.time())
        return jid

    def took(self, since: float, until: float) -> list[float | None]:
        """Return how long each ping of a period took; None for one without an answer."""
        found: list[float | None] = []
        for jid, (began, at) in self.sent.items():
            if since <= began < until:
                returned = self._scene.master.returned(jid, MINION)
                # The answer may come before the client knows that the ping is published.
                found.append(None if returned is None else max(0.0, returned.time - at))
        return found

    def publishing(self, since: float, until: float) -> float:
        """Return how long the master took to publish the slowest ping of a period."""
        return max(at - began for began, at in self.sent.values() if since <= began < until)


def one(scene: EngineScene, side: str, version: str) -> Found:
    """Update the minion under load."""
    with Pings(scene) as pings:
        quiet = time.time()
        time.sleep(BEFORE)
        job = scene.publish("cmd.run", f"sleep {WORK}; echo done")
        time.sleep(3)
        began = time.time()
        if side == "plain":
            # An update by request refreshes the lists as well.
            scene.container.run(["apt-get", "update"], timeout=TIMEOUT)
            install = ["apt-get", "install", "-y", "--allow-downgrades", f"salt-minion={version}"]
            scene.container.run(install, timeout=TIMEOUT)
        else:
            asked = scene.ask(version, allow_downgrade=True)
            record = scene.ended(asked["update"], TIMEOUT)
            if record["phase"] != "committed":
                raise SystemExit(f"the update ended as {record['phase']}: {record['reason']}")
        took = time.time() - began
        time.sleep(5)
    ended = time.time()
    deadline = time.monotonic() + WORK
    while time.monotonic() < deadline and None in pings.took(quiet, ended):
        time.sleep(0.5)
    late = scene.master.returned(job, MINION)
    while late is None and time.monotonic() < deadline:
        time.sleep(0.5)
        late = scene.master.returned(job, MINION)
    during = pings.took(began, ended)
    answered = [each for each in during if each is not None]
    return Found(
        took,
        max(each for each in pings.took(quiet + 2, began - BETWEEN) if each is not None),
        max(answered),
        len(during),
        len(during) - len(answered),
        late is not None and late.data["return"] == "done",
        pings.publishing(began, ended),
    )


def told(found: list[Found]) -> str:
    pings, lost = sum(each.pings for each in found), sum(each.lost_pings for each in found)
    jobs = sum(each.long_job for each in found)
    return (
        f"{statistics.median(each.update for each in found):.1f} s; longest ping "
        f"{max(each.longest for each in found):.1f} s, without an update "
        f"{max(each.before for each in found):.1f} s; lost: {lost} of {pings} pings, "
        f"{len(found) - jobs} of {len(found)} long jobs; published in "
        f"{max(each.publishing for each in found):.1f} s at most"
    )


def measure(lab: Lab, site: Path) -> dict[str, list[Found]]:
    offers = [deb(version) for version in PACKAGES]
    scenes: dict[str, EngineScene] = {
        "plain": EngineScene(lab, site, VERSION, offers=offers, set_up=False),
        "wait": EngineScene(lab, site, VERSION, offers=offers, config=WAITING),
        "handover": Scene(lab, site, VERSION, *PACKAGES, stable_interval=10),
    }
    found: dict[str, list[Found]] = {side: [] for side in SIDES}
    try:
        for scene in scenes.values():
            scene.up()
        handover = scenes["handover"]
        assert isinstance(handover, Scene)
        handover.have_own_tree()
        for number in range(ROUNDS):
            for side in SIDES:
                found[side].append(one(scenes[side], side, PACKAGES[number % 2]))
    finally:
        for scene in scenes.values():
            scene.down()
    return found


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab:
        found = measure(lab, venvs.extension(lab.cache.cache, lab.run_dir.path / "build"))
    for side in SIDES[1:]:
        row(
            f"an update with a job of {WORK} s running, `restart: {side}` (plain: by `apt-get`), "
            f"{ROUNDS} of each",
            told(found["plain"]),
            told(found[side]),
            "",
            "longest ping ≤ 1 s more, 0 lost" if side == "handover" else "",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
