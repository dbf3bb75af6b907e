"""
An update under load, while a job of ten minutes runs.

Runs in the lab, as root, with one front end of each kind of package manager. A minion with plain
Salt is updated by the front end in a shell, as an administrator does it. One with the extension is
updated by request, in turns and to and fro. Pings are published meanwhile, with a limited number
on the way at a time: 50 a second, which is more than the machine can carry, alone and with ten
other processes that keep it busy, and with these as many as it can carry. They begin 45 seconds
before each update. The output has the rate and the longest ping before it, over as long a time as
the update took and under the same load: in a longer time, the longest ping is longer by chance
alone. A ping begins when the master has published it. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import salt.version
from table import row

from devtools import venvs
from devtools.experiment import MINION
from devtools.lab.container import Lab
from tests.lab.engine import EngineScene, deb
from tests.lab.handover import HandoverScene
from tests.lab.pings import Pings
from tests.lab.rpm import RpmHost
from tests.lab.rpm import RpmScene as PlainRpm
from tests.lab.scene import FINAL

VERSION = "3008.3"
# The versions of Salt that it is updated to in turns.
PACKAGES = ("3007.15", "3008.3")
# Pings on their way at a time: enough to keep two processors busy. More would only wait for each
# other, and any slower moment of the machine would count as often as there are pings in that queue.
MOST = 5
# Seconds; all updates are over before.
LONG = 600
# Seconds before an update, which takes about as long, and after it.
BEFORE, AFTER = 45, 10
TIMEOUT = 600
FRONT_ENDS = ("apt", "dnf", "zypper")
LONG_JOB = f"sleep {LONG}; echo done"


class Load(NamedTuple):
    """Pings a second, and other processes that each use a processor."""

    rate: float
    burners: int

    def __str__(self) -> str:
        others = f", {self.burners} processes of others" if self.burners else ""
        return f"{self.rate:g} pings a second{others}"


# The first two are more than the machine can carry, and the last one is not.
LOADS = (Load(50, 0), Load(50, 10), Load(2, 10))


class AptScene(HandoverScene, EngineScene):
    """A minion that hands over and is updated by request."""


class RpmScene(RpmHost, AptScene):
    """One of rpm's."""

    offer_name = "{}"


class Found(NamedTuple):
    """The result of one update: times in seconds, and losses."""

    update: float
    rate: float
    before: float
    longest: float
    pings: int
    lost: int
    twice: int


@contextlib.contextmanager
def burning(processes: int) -> Iterator[None]:
    """Run so many other processes that each use a processor."""
    argv = [sys.executable, "-c", "while True: pass"]
    found = [subprocess.Popen(argv) for _ in range(processes)]
    try:
        yield
    finally:
        for each in found:
            each.kill()
            each.wait()


def by_hand(front_end: str, version: str, scene: EngineScene) -> None:
    """Update a minion with plain Salt as an administrator does it in a shell."""
    if front_end == "apt":
        commands = [
            ["apt-get", "update"],
            ["apt-get", "install", "-y", "--allow-downgrades", f"salt-minion={version}"],
        ]
    elif front_end == "dnf":
        verb = "upgrade" if version == PACKAGES[1] else "downgrade"
        commands = [["dnf", "-y", verb, f"salt-{version}", f"salt-minion-{version}"]]
    else:
        zypper = ["zypper", "--non-interactive"]
        commands = [[*zypper, "install", "--oldpackage", "--force-resolution"]]
        commands[0] += [f"salt={version}", f"salt-minion={version}"]
    for command in commands:
        scene.container.run(command, timeout=TIMEOUT)


def one(scene: EngineScene, front_end: str, version: str, rate: float, *, plain: bool) -> Found:
    """Update the minion under a load of pings."""
    with Pings(scene, rate=rate, most=MOST) as pings:
        time.sleep(BEFORE)
        began = time.time()
        if plain:
            by_hand(front_end, version, scene)
        else:
            asked = scene.ask(version, allow_downgrade=True)
            if "update" not in asked:
                raise SystemExit(f"the update was not begun: {asked}")
            record = await_end(scene, asked["update"], began)
            if record["phase"] != "committed":
                raise SystemExit(f"the update ended as {record['phase']}: {record['reason']}")
        took = time.time() - began
        time.sleep(AFTER)
        ended = time.time()
    # As long as the update, if it took less than that.
    length = min(ended - began, BEFORE - 6)
    before = pings.took(began - 3 - length, began - 3)
    during = pings.took(began, ended)
    return Found(
        took,
        len(before) / length,
        max(before),
        max(during),
        len(pings.sent),
        pings.lost(),
        pings.twice(),
    )


def await_end(scene: EngineScene, update: str, since: float) -> dict[str, Any]:
    """Return the record of an update that has ended, without any work on the host until then."""
    tags = {f"salt/minion/{MINION}/safeupdate/{phase}" for phase in FINAL}
    events = scene.master.events
    scene.master.wait(
        lambda: any(each.tag in tags and each.time >= since for each in list(events)),
        TIMEOUT,
        f"the end of the update {update}",
    )
    return scene.ended(update, TIMEOUT)


def told(found: Found, *, long_job: bool) -> str:
    return (
        f"{found.update:.1f} s; {found.rate:.0f} pings a second; longest {found.longest:.2f} s, "
        f"before it {found.before:.2f} s, extra {found.longest - found.before:+.2f} s; lost "
        f"{found.lost} of {found.pings} pings, twice {found.twice}; the long job "
        f"{'ended as its own' if long_job else 'was lost'}"
    )


def scenes(lab: Lab, site: Path, front_end: str) -> tuple[EngineScene, HandoverScene]:
    """Return the plain minion and ours."""
    settings = {"stable_interval": 10}
    if front_end == "apt":
        offers = [deb(version) for version in PACKAGES]
        plain = EngineScene(lab, site, VERSION, offers=offers, set_up=False)
        return plain, AptScene(lab, site, VERSION, *PACKAGES, **settings)
    args = {"front_end": front_end}
    rpms = PlainRpm(lab, site, VERSION, offers=list(PACKAGES), set_up=False, **args)
    return rpms, RpmScene(lab, site, VERSION, *PACKAGES, **args, **settings)


def measure(lab: Lab, site: Path, front_end: str) -> None:
    plain, ours = scenes(lab, site, front_end)
    try:
        plain.up()
        ours.up()
        ours.have_own_tree()
        assert isinstance(ours, EngineScene)
        both: dict[str, EngineScene] = {"plain": plain, "ours": ours}
        found: dict[tuple[str, Load], Found] = {}
        jobs = {who: scene.publish("cmd.run", LONG_JOB) for who, scene in both.items()}
        until = time.monotonic() + LONG
        time.sleep(3)
        for number, load in enumerate(LOADS):
            version = PACKAGES[number % 2]
            for who, scene in both.items():
                with burning(load.burners):
                    made = one(scene, front_end, version, load.rate, plain=who == "plain")
                found[who, load] = made
        ended = {who: _has_ended(both[who], jid, until) for who, jid in jobs.items()}
    finally:
        plain.down()
        ours.down()
    for load in LOADS:
        row(
            f"{front_end}: an update during a job of {LONG} s, {load}",
            told(found["plain", load], long_job=ended["plain"]),
            told(found["ours", load], long_job=ended["ours"]),
            "",
            "0 lost, 0 twice, extra ≤ 1 s",
        )


def _has_ended(scene: EngineScene, jid: str, until: float) -> bool:
    """Return whether the long job has returned its expected result."""
    while (found := scene.master.returned(jid, MINION)) is None:
        if time.monotonic() > until + 20:
            return False
        time.sleep(0.5)
    return bool(found.data["return"] == "done")


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        for front_end in FRONT_ENDS:
            measure(lab, site, front_end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
