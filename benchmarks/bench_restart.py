"""
The time from the last delivered return to the answer of the new minion, and a plain idle restart.

Runs in the lab, as root: a minion with the extension is updated by a state run, to and fro
between two packages of one Salt, and one without it is restarted by ``systemctl``, in turns.
Nothing is asserted.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import salt.version
from table import row

from devtools import venvs
from devtools.experiment import EXTENSION_CONFIG, MINION, extension_layer, minion_config
from devtools.lab.container import Container, Lab
from devtools.master import Master

ROUNDS = 6
VERSION = "3008.3"
PACKAGES = ("3008.3+stops", "3008.3")
TIMEOUT = 120


def answering(master: Master, since: float) -> float:
    """Return when a minion that was started after *since* had answered a job."""
    master.wait_event(f"salt/minion/{MINION}/start", TIMEOUT, since=since)
    jid = master.publish("test.ping", target=MINION, tgt_type="list")
    master.wait_return(jid, MINION, TIMEOUT)
    returned = master.returned(jid, MINION)
    assert returned is not None
    return returned.time


def plain_restart(container: Container, master: Master) -> float:
    began = time.time()
    container.run(["systemctl", "restart", "--no-block", "salt-minion"])
    return answering(master, began) - began


def update(container: Container, master: Master, version: str) -> float:
    jid = master.publish(
        "state.single", "pkg.installed", "salt-minion", version=version, target=MINION
    )
    found = master.wait_return(jid, MINION, 300)
    if not found["success"]:
        raise SystemExit(f"the update failed: {found['return']}")
    returned = master.returned(jid, MINION)
    assert returned is not None
    took = answering(master, returned.time) - returned.time
    lock = container.path("/run/salt-safeupdate/supervisor.lock")
    master.wait(lambda: not locked(str(lock)), TIMEOUT, "the end of the update")
    return took


def locked(path: str) -> bool:
    """Tell whether a process holds the lock, without taking it."""
    inode = str(os.stat(path).st_ino)
    with open("/proc/locks", encoding="ascii") as table:
        return any(line.split()[5].rpartition(":")[2] == inode for line in table)


def main() -> int:
    if os.geteuid() or salt.version.__version__ != VERSION:
        print(f"measured with Salt {VERSION} only, as root")
        return 0
    with Lab() as lab:
        offers = [f"salt-minion_{version}" for version in PACKAGES]
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        sides = {}
        for name, config, layers in (
            ("plain", {}, []),
            ("ours", EXTENSION_CONFIG, [extension_layer(lab, site)]),
        ):
            container = lab.container(VERSION, offers=offers, extra_layers=layers)
            container.write("/etc/salt/minion.d/lab.conf", minion_config(config))
            master = Master(container.network, pythonpath=site).start()
            container.up()
            master.wait_minion(MINION, 90)
            sides[name] = (container, master)
        found: dict[str, list[float]] = {"plain": [], "ours": []}
        try:
            for number in range(ROUNDS):
                found["plain"].append(plain_restart(*sides["plain"]))
                found["ours"].append(update(*sides["ours"], PACKAGES[number % 2]))
        finally:
            for container, master in sides.values():
                master.stop()
                container.down()
    plain, ours = (statistics.median(found[name]) for name in ("plain", "ours"))
    row(
        f"return of the update (plain: `systemctl restart`) until the new minion answers, {ROUNDS} "
        "of each",
        f"{plain:.2f} s ({min(found['plain']):.1f} to {max(found['plain']):.1f})",
        f"{ours:.2f} s ({min(found['ours']):.1f} to {max(found['ours']):.1f})",
        f"{ours / plain:.3f}",
        "≤ 1.1",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
