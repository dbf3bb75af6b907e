"""
A restart while jobs run: how long it takes, and what the jobs of that time notice.

Runs in the lab, as root: minions with plain Salt, with the extension that waits, and with the one
that hands over are restarted by ``systemctl`` in turns. Each time three jobs of 15 s run, and a
ping is published every 0.3 s. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import salt.version
from table import row

from devtools import venvs
from devtools.experiment import EXTENSION_CONFIG, MINION, extension_layer, minion_config
from devtools.lab.container import Container, Lab
from devtools.master import Master

ROUNDS = 4
JOBS = 3
WORK = 15
INTERVAL = 0.3
TIMEOUT = 120
SET_UP = "safeupdate:\n  safeupdate.enabled: []\n"
WAIT, HANDOVER = (
    {**EXTENSION_CONFIG, "safeupdate": {"restart": way}} for way in ("wait", "handover")
)
SIDES = {"plain": None, "wait": WAIT, "handover": HANDOVER}


class Found(NamedTuple):
    """What one restart came to: times in seconds, and what was lost."""

    restart: float
    longest: float
    pings: int
    lost_pings: int
    lost_jobs: int


@contextlib.contextmanager
def sides() -> Iterator[dict[str, tuple[Container, Master]]]:
    """Have a minion of each side, with a master of its own, and their hosts run at one time."""
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        layer = extension_layer(lab, site)
        made: dict[str, tuple[Container, Master]] = {}
        try:
            for name, config in SIDES.items():
                layers = [] if config is None else [layer]
                container = lab.container(salt.version.__version__, extra_layers=layers)
                container.write("/etc/salt/minion.d/lab.conf", minion_config(config or {}))
                master = Master(container.network, pythonpath=site).start()
                made[name] = (container, master)
                container.up()
                master.wait_minion(MINION, 90)
                if layers:
                    (master.files / "setup.sls").write_text(SET_UP)
                    jid = master.publish("state.apply", "setup", target=MINION, tgt_type="list")
                    master.wait_return(jid, MINION, TIMEOUT)
            yield made
        finally:
            for container, master in made.values():
                master.stop()
                container.down()


def one(container: Container, master: Master) -> Found:
    """Restart the minion under load."""
    to = {"target": MINION, "tgt_type": "list"}
    jobs = [master.publish("cmd.run", f"sleep {WORK}", **to) for _ in range(JOBS)]
    pings: dict[str, float] = {}
    ended = threading.Event()

    def ping() -> None:
        while not ended.wait(INTERVAL):
            began = time.time()
            pings[master.publish("test.ping", **to)] = began

    stream = threading.Thread(target=ping)
    stream.start()
    time.sleep(2)
    began = time.monotonic()
    container.run(["systemctl", "restart", "salt-minion"])
    took = time.monotonic() - began
    master.wait_minion(MINION, TIMEOUT)
    time.sleep(WORK)
    ended.set()
    stream.join()
    deadline = time.monotonic() + 2 * WORK
    waiting = {*jobs, *pings}
    while waiting and time.monotonic() < deadline:
        waiting = {jid for jid in waiting if master.returned(jid, MINION) is None}
        time.sleep(0.5)
    waits = []
    for jid, at in pings.items():
        returned = master.returned(jid, MINION)
        if returned is not None:
            waits.append(returned.time - at)
    return Found(took, max(waits), len(pings), len(pings) - len(waits), len(waiting & {*jobs}))


def told(found: list[Found]) -> str:
    pings, lost = (sum(each[place] for each in found) for place in (2, 3))
    jobs = sum(each.lost_jobs for each in found)
    return (
        f"{statistics.median(each.restart for each in found):.2f} s; longest ping "
        f"{max(each.longest for each in found):.1f} s; lost: {lost} of {pings} pings, {jobs} of "
        f"{JOBS * len(found)} jobs"
    )


def main() -> int:
    if os.geteuid():
        print("measured as root only")
        return 0
    found: dict[str, list[Found]] = {name: [] for name in SIDES}
    with sides() as hosts:
        for _ in range(ROUNDS):
            for name, side in hosts.items():
                found[name].append(one(*side))
    plain = told(found["plain"])
    for name in ("wait", "handover"):
        ratio = statistics.median(
            ours.restart / theirs.restart
            for ours, theirs in zip(found[name], found["plain"], strict=True)
        )
        row(
            f"`systemctl restart` with {JOBS} jobs of {WORK} s running, `restart: {name}`, "
            f"{ROUNDS} of each",
            plain,
            told(found[name]),
            f"{ratio:.3f}",
            "≤ 1.2, 0 lost" if name == "handover" else "",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
