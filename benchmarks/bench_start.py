"""
What the start of a minion takes: plain Salt, with the extension that waits, and that hands over.

Runs in the lab, as root: three hosts, whose services are stopped and started in turns while
nothing else runs. A start ends with the minion's own event on its master. Processor time is what
the service's control group has used by then. Nothing is asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

from bench_handover import SIDES, TIMEOUT, sides
from table import row

from devtools.experiment import MINION
from devtools.lab.container import Container
from devtools.master import Master

ROUNDS = 20
EVENT = f"salt/minion/{MINION}/start"
USED = "/sys/fs/cgroup/system.slice/salt-minion.service/cpu.stat"


def start(container: Container, master: Master) -> tuple[float, float]:
    """Return what a start takes by the clock, and of a processor, both in seconds."""
    container.run(["systemctl", "stop", "salt-minion"])
    began = time.time()
    container.run(["systemctl", "start", "salt-minion"])
    took = master.wait_event(EVENT, TIMEOUT, since=began).time - began
    stat = dict(line.split() for line in container.run(["cat", USED]).stdout.splitlines())
    return took, int(stat["usage_usec"]) / 1e6


def main() -> int:
    if os.geteuid():
        print("measured as root only")
        return 0
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SIDES}
    with sides() as hosts:
        # The first start of each makes directories, and the copy of the code.
        for side in hosts.values():
            start(*side)
        for number in range(ROUNDS):
            for name in hosts if number % 2 else reversed(hosts):
                found[name].append(start(*hosts[name]))
    for name in ("wait", "handover"):
        for place, what in enumerate(("by the clock", "of a processor")):
            plain, ours = ([each[place] for each in found[who]] for who in ("plain", name))
            ratios = [one / other for one, other in zip(ours, plain, strict=True)]
            row(
                f"a start, {what}, `restart: {name}`, {ROUNDS} of each",
                f"{statistics.median(plain):.2f} s ({min(plain):.2f} to {max(plain):.2f})",
                f"{statistics.median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f})",
                f"{statistics.median(ratios):.3f}",
                "≤ 1.05" if not place else "",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
