"""
An update by request: how long the minion does not answer, and the memory and disk that it takes.

Runs in the lab, as root. A minion with the extension is updated to and fro between two
packages of one Salt, and one without it is restarted by ``systemctl``, in turns: both times
from the end of the old minion until the new one has answered. Then the new version is one that
dies after its start. Nothing is asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import salt.version
from bench_restart import answering
from table import row

from devtools import processes, venvs
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import FAULT_FILE, PREFIX
from tests.lab.engine import EngineScene, deb
from tests.lab.scene import RUN_DIR, STATE_DIR

ROUNDS = 6
CRASHES = 3
VERSION = "3008.3"
PACKAGES = ("3008.3+stops", "3008.3")
FAULTY = "3008.3+faulty"
CRASHED = "/var/tmp/crashed"
DIES = f"""\
cat > {PREFIX}/dies.py <<'END'
import os, threading, time
def die():
    if not os.path.exists("{CRASHED}"):
        with open("{CRASHED}", "w") as file:
            file.write(str(time.time()))
    os._exit(3)
threading.Timer(3, die).start()
END
sed -i '/^import re/i exec(open("{PREFIX}/dies.py").read())' {PREFIX}/salt-minion
"""
TIMEOUT = 180


def stopped(container: Container) -> float:
    """Return when the service was last told to stop, on the clock of the events."""
    argv = ["systemctl", "show", "--property=ActiveExitTimestampMonotonic", "--value"]
    microseconds = int(container.run([*argv, "salt-minion"]).stdout)
    return microseconds / 1e6 + time.time() - time.monotonic()


def plain_downtime(scene: EngineScene) -> float:
    began = time.time()
    scene.container.run(["systemctl", "restart", "--no-block", "salt-minion"])
    answered = answering(scene.master, began)
    return answered - stopped(scene.container)


class Memory:
    """The most memory that a supervisor held meanwhile, in bytes, from its own counter."""

    def __init__(self, container: Container) -> None:
        self.peak = 0
        self._lock = container.path(f"{RUN_DIR}/supervisor.lock")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.2):
            # There is no process yet, or it has just ended.
            with suppress(FileNotFoundError, ProcessLookupError):
                self._ask()

    def _ask(self) -> None:
        for pid in processes.holders(self._lock):
            self._add(Path("/proc", str(pid)))

    def _add(self, process: Path) -> None:
        # Other processes take the lock, too, for the moment in which they test whether it is free.
        if b"/core/launch.py" in (process / "cmdline").read_bytes():
            status = (process / "status").read_text().splitlines()
            peaks = [int(entry.split()[1]) << 10 for entry in status if entry.startswith("VmHWM:")]
            self.peak = max([self.peak, *peaks])


def held(container: Container) -> int:
    """Return the bytes on the disk that updates need; links to existing files are free."""
    kept = [container.path(STATE_DIR)]
    kept += [
        path
        for path in container.path(PREFIX).parent.iterdir()
        if path.name.startswith(".salt-safe")
    ]
    living = {path.lstat().st_ino for path in container.path(PREFIX).rglob("*")}
    sizes = {}
    for top in kept:
        for path in top.rglob("*"):
            found = path.lstat()
            if found.st_ino not in living:
                sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def updates(lab: Lab, site: Path) -> None:
    offers = [deb(version) for version in PACKAGES]
    plain = EngineScene(lab, site, VERSION, offers=offers, set_up=False)
    ours = EngineScene(lab, site, VERSION, offers=offers, config={"safeupdate": {}})
    downtimes: dict[str, list[float]] = {"plain": [], "ours": []}
    try:
        plain.up()
        ours.up()
        before = watched = held(ours.container)
        with Memory(ours.container) as memory:
            for number in range(ROUNDS):
                downtimes["plain"].append(plain_downtime(plain))
                took, more = downtime(ours, PACKAGES[number % 2])
                downtimes["ours"].append(took)
                watched = max(watched, more)
        after = held(ours.container)
    finally:
        plain.down()
        ours.down()
    medians = {name: statistics.median(times) for name, times in downtimes.items()}
    row(
        "the old minion told to stop until the new one has answered, an update by request "
        f"(plain: `systemctl restart`), {ROUNDS} of each",
        *(
            f"{medians[name]:.2f} s ({min(times):.1f} to {max(times):.1f})"
            for name, times in downtimes.items()
        ),
        f"{medians['ours'] / medians['plain']:.3f}",
        "≤ 1.1",
    )
    row("memory of the supervisor, at most", ours=megabytes(memory.peak), asked="≤ 30 MB")
    row("more on the disk than before, while it is watched", ours=megabytes(watched - before))
    row("more on the disk than before, when it is committed", ours=megabytes(after - before))


def downtime(scene: EngineScene, version: str) -> tuple[float, int]:
    """Update; return the downtime, and the bytes on the disk while it is watched."""
    began = time.time()
    asked = scene.ask(version, allow_downgrade=True)
    answered = answering(scene.master, began)
    took = answered - stopped(scene.container)
    on_disk = held(scene.container)
    ended(scene, asked["update"], "committed")
    return took, on_disk


def ended(scene: EngineScene, update: str, phase: str) -> None:
    record = scene.ended(update)
    if record["phase"] != phase:
        raise SystemExit(f"the update ended as {record['phase']}: {record['reason']}")


def crashes(lab: Lab, site: Path) -> None:
    scene = EngineScene(lab, site, VERSION, offers=[deb(VERSION), deb(FAULTY)])
    times = []
    try:
        scene.up()
        scene.container.write(FAULT_FILE, DIES)
        for _ in range(CRASHES):
            asked = scene.ask(FAULTY)
            scene.wait_phase("rolled_back", timeout=TIMEOUT)
            crashed = float(scene.container.read(CRASHED))
            times.append(answering(scene.master, crashed) - crashed)
            ended(scene, asked["update"], "rolled_back")
            scene.container.run(["rm", CRASHED])
            scene.call("safeupdate.unquarantine", FAULTY)
    finally:
        scene.down()
    row(
        f"the new minion has died until the old one answers, {CRASHES} times",
        ours=f"{statistics.median(times):.1f} s ({min(times):.1f} to {max(times):.1f})",
        asked="< 60 s",
    )


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        updates(lab, site)
        crashes(lab, site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
