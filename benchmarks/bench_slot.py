"""
The switch to a staged slot: how long nobody answers, and what a slot takes.

Runs in the lab, as root. One minion runs from slots of one Salt, in two builds. In turns it is
restarted by ``systemctl`` while it is idle, and updated to the other slot, which is staged: from
the command, or from the decision to install, until the new minion has answered. Nothing is
asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import salt.version
from bench_restart import answering
from table import row

from devtools import venvs
from devtools.lab.container import Container, Lab
from tests.lab.test_slots import SOURCE, Slotted

ROUNDS = 5
VERSION = "3008.3"
TIMEOUT = 300
DECISION = "installing"


def restart(scene: Slotted) -> float:
    began = time.time()
    scene.container.run(["systemctl", "restart", "--no-block", "salt-minion"])
    return answering(scene.master, began) - began


def switch(scene: Slotted) -> float:
    """Go to the slot that is staged; return how long it took from the decision."""
    began = time.time()
    asked = scene.call("safeupdate.update", VERSION, source=SOURCE, timeout=TIMEOUT)
    answered = answering(scene.master, began)
    record = scene.ended(asked["update"], TIMEOUT)
    if record["phase"] != "committed":
        raise SystemExit(f"the update ended as {record['phase']}: {record['reason']}")
    (newest,) = scene.call("safeupdate.history", limit=1)
    phases: list[dict[str, Any]] = newest["phases"]
    (decided,) = [each["at"] for each in phases if each["phase"] == DECISION]
    return answered - decided


def stage(scene: Slotted, number: int) -> None:
    """Have another build of the same Salt staged."""
    scene.build(VERSION, more=f"\n# {number}\n")
    scene.call("safeupdate.stage", VERSION, source=SOURCE, timeout=TIMEOUT)


def memory(container: Container) -> int:
    """Return the bytes of the main process and of the minion below it, shared pages in part."""
    pid = container.service()["MainPID"]
    script = (
        f"cat /proc/{pid}/smaps_rollup "
        f"$(for each in $(cat /proc/{pid}/task/{pid}/children); do "
        "echo /proc/$each/smaps_rollup; done)"
    )
    found = container.run(["sh", "-c", script]).stdout.splitlines()
    return sum(int(line.split()[1]) << 10 for line in found if line.startswith("Pss:"))


def measured(scene: Slotted) -> None:
    package = memory(scene.container)
    stage(scene, 0)
    switch(scene)
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    sides: dict[str, Callable[[Slotted], float]] = {"plain": restart, "ours": switch}
    for number in range(1, ROUNDS + 1):
        stage(scene, number)
        for name, side in sides.items():
            times[name].append(side(scene))
    sizes = [slot["size"] for slot in scene.call("safeupdate.revisions")["slots"]]
    ratio = statistics.median(
        ours / plain for ours, plain in zip(times["ours"], times["plain"], strict=True)
    )
    row(
        "the switch to a slot that is staged, from the decision to install until the new minion "
        "has answered (plain: `systemctl restart` of the same minion, idle), "
        f"{ROUNDS} of each in turns",
        *(
            f"{statistics.median(each):.2f} s ({min(each):.1f} to {max(each):.1f})"
            for each in times.values()
        ),
        f"{ratio:.3f}",
        "≤ 1.1",
    )
    row("a slot of wheels on the disk", ours=f"{max(sizes) / 1e6:.0f} MB")
    row(
        "memory of the minion (PSS of its two processes), from the package and from a slot",
        f"{package / 1e6:.1f} MB",
        f"{memory(scene.container) / 1e6:.1f} MB",
        f"{memory(scene.container) / package:.3f}",
    )


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        scene = Slotted(lab, site, VERSION, config={"safeupdate": {"stable_interval": 3}})
        try:
            scene.up()
            measured(scene)
        finally:
            scene.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
