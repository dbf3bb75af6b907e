"""
The switch to a staged slot: how long nobody answers, and what a slot takes.

Runs in the lab, as root. Two minions run from slots of one Salt, in two builds: one without the
stop guard, which is restarted, and one that is handed over. In turns, the first is restarted by
``systemctl`` while it is idle, and each is updated to its other slot, which is staged: from the
command, or from the decision to install, until the new minion has answered. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
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
from tests.lab.slotted import SOURCE, Beside, Slotted

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
    before, began = process(scene), time.time()
    asked = scene.call("safeupdate.update", VERSION, source=SOURCE, timeout=TIMEOUT)
    if isinstance(scene, Beside):
        # Until the earlier minion takes no more jobs, either of them may answer.
        scene.master.wait(lambda: process(scene) != before, TIMEOUT, "the next minion")
        answered = time.time()
    else:
        answered = answering(scene.master, began)
    record = scene.ended(asked["update"], TIMEOUT)
    if record["phase"] != "committed":
        raise SystemExit(f"the update ended as {record['phase']}: {record['reason']}")
    (newest,) = scene.call("safeupdate.history", limit=1)
    phases: list[dict[str, Any]] = newest["phases"]
    (decided,) = [each["at"] for each in phases if each["phase"] == DECISION]
    scene.master.wait(scene.serves_alone, TIMEOUT, "the earlier minion to take no more jobs")
    return answered - decided


def process(scene: Slotted) -> int:
    """Return the main process of the minion that answers."""
    pid: int = scene.call("grains.get", "pid", timeout=TIMEOUT)
    return pid


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


def measured(restarted: Slotted, handed_over: Beside) -> None:
    package = memory(restarted.container)
    sides: dict[str, tuple[Slotted, Callable[[Slotted], float]]] = {
        "plain": (restarted, restart),
        "a restart": (restarted, switch),
        "a handover": (handed_over, switch),
    }
    for scene in (restarted, handed_over):
        stage(scene, 0)
        switch(scene)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(1, ROUNDS + 1):
        for scene in (restarted, handed_over):
            stage(scene, number)
        for name, (scene, side) in sides.items():
            times[name].append(side(scene))
    plain = times.pop("plain")
    for name, ours in times.items():
        ratio = statistics.median(one / other for one, other in zip(ours, plain, strict=True))
        row(
            f"the switch to a slot that is staged by {name}, from the decision to install until "
            "the new minion has answered (plain: `systemctl restart` of a minion that is idle), "
            f"{ROUNDS} of each in turns",
            *(
                f"{statistics.median(each):.2f} s ({min(each):.1f} to {max(each):.1f})"
                for each in (plain, ours)
            ),
            f"{ratio:.3f}",
            "≤ 1.1",
        )
    sizes = [slot["size"] for slot in restarted.call("safeupdate.revisions")["slots"]]
    row("a slot of wheels on the disk", ours=f"{max(sizes) / 1e6:.0f} MB")
    row(
        "memory of the minion (PSS of its two processes), from the package and from a slot",
        f"{package / 1e6:.1f} MB",
        f"{memory(restarted.container) / 1e6:.1f} MB",
        f"{memory(restarted.container) / package:.3f}",
    )


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab, contextlib.ExitStack() as made:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        restarted = Slotted(lab, site, VERSION, config={"safeupdate": {"stable_interval": 3}})
        handed_over = Beside(lab, site, VERSION)
        for scene in (restarted, handed_over):
            made.callback(scene.down)
            scene.up()
        handed_over.have_own_tree()
        measured(restarted, handed_over)
    return 0


if __name__ == "__main__":
    sys.exit(main())
