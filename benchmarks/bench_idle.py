"""
The costs of the extension for an idle minion, compared to one with plain Salt.

First, in the lab and as root, three hosts with all processes of their minions: a plain one without
an engine, one whose engine rests because it is handed over, and one whose engine stays. Then two
minions on this host: the plain one has an engine, too, which only sleeps, and the two engines are
compared. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench_handover import sides
from bench_ledger import Client, Rig, scratch
from table import row

from devtools import processes
from devtools.lab.container import Container

PINGS = 100
# Seconds of idle time: until the start is over, and while it is measured.
SETTLE, IDLE = 20, 120
# Seconds until the engine rests, at most: a minute after the last job, and two looks of Salt.
REST = 300
GROUP = "/sys/fs/cgroup/system.slice/salt-minion.service"
ENGINE = """
import os
import time


def start(path):
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    while True:
        time.sleep(3600)
"""


def main() -> None:
    if os.geteuid() == 0:
        hosts()
    with scratch() as root:
        rig = Rig(root)
        pid_file = root / "pid-plain"
        plain, ours = rig.minions["plain"], rig.minions["ours"]
        (root / "engines").mkdir()
        (root / "engines" / "sleeper.py").write_text(ENGINE)
        plain["engines"] = [{"sleeper": {"path": str(pid_file)}}]
        plain["engines_dirs"] = [str(root / "engines")]
        with running(rig) as client:
            pings(client)
            lock = Path(ours["safeupdate"]["run_dir"], "engine.lock")
            idle({"plain": int(pid_file.read_text()), "ours": processes.holders(lock)[0]})


def hosts() -> None:
    """Compare whole minions, whose services are idle."""
    with sides() as found:
        minions = {name: container for name, (container, _) in found.items()}
        deadline = time.monotonic() + REST
        while len(pids(minions["handover"])) != len(pids(minions["plain"])):
            if time.monotonic() > deadline:
                raise SystemExit("the engine did not rest")
            time.sleep(1)
        time.sleep(SETTLE)
        before = {name: used(each) for name, each in minions.items()}
        time.sleep(IDLE)
        share = {n: (used(each) - before[n]) / IDLE * 100 for n, each in minions.items()}
        size = {name: whole(each) for name, each in minions.items()}
        if len(pids(minions["handover"])) != len(pids(minions["plain"])):
            raise SystemExit("the engine did not rest for long")
    for name, what in (("handover", "that can be handed over"), ("wait", "with `restart: wait`")):
        row(
            f"processor time of an idle minion {what}",
            f"{share['plain']:.3f} % of a core",
            f"{share[name]:.3f} % of a core",
            "",
            "",
        )
        compare(
            f"proportional memory of an idle minion {what}, all its processes",
            {"plain": size["plain"], "ours": size[name]},
            "≤ 1.05" if name == "handover" else "",
        )


def pids(container: Container) -> list[str]:
    """Return the processes of the minion's service, as its host counts them."""
    return container.run(["cat", f"{GROUP}/cgroup.procs"]).stdout.split()


def used(container: Container) -> float:
    """Return the seconds of a processor that the service has used."""
    lines = container.run(["cat", f"{GROUP}/cpu.stat"]).stdout.splitlines()
    return int(dict(map(str.split, lines))["usage_usec"]) / 1e6


def whole(container: Container) -> int:
    """Return the proportional memory of the service in KiB."""
    files = [f"/proc/{pid}/smaps_rollup" for pid in pids(container)]
    lines = container.run(["cat", *files]).stdout.splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextlib.contextmanager
def running(rig: Rig) -> Iterator[Client]:
    """Start both minions; yield a client when they answer."""
    rig.start()
    try:
        rig.wait()
        client = Client(rig.root / "m" / "master")
        for minion in rig.minions:
            client.wait_for(minion)
        yield client
    finally:
        rig.stop()


def pings(client: Client) -> None:
    found: dict[str, list[float]] = {"plain": [], "ours": []}
    for number in range(PINGS + 1):
        for minion in ("plain", "ours") if number % 2 else ("ours", "plain"):
            began = time.perf_counter()
            client.collect({client.publish(minion, "test.ping")})
            found[minion].append(time.perf_counter() - began)
    plain, ours = (statistics.median(found[name][1:]) for name in ("plain", "ours"))
    row(
        "`test.ping` there and back, median",
        f"{plain * 1000:.1f} ms",
        f"{ours * 1000:.1f} ms",
        f"{ours / plain:.3f}",
        "≤ 1.03",
    )
    if client.lost:
        raise SystemExit(f"{client.lost} pings did not return")


def idle(engines: dict[str, int]) -> None:
    time.sleep(SETTLE)
    before = {name: processor_time(pid) for name, pid in engines.items()}
    time.sleep(IDLE)
    share = {n: (processor_time(pid) - before[n]) / IDLE * 100 for n, pid in engines.items()}
    row(
        "processor time of an engine that stays (plain: of one that sleeps)",
        f"{share['plain']:.3f} % of a core",
        f"{share['ours']:.3f} % of a core",
        "",
        "≤ 0.1 %",
    )
    for kind, name in (("resident", "Rss"), ("proportional", "Pss")):
        size = {engine: memory(pid, name) for engine, pid in engines.items()}
        compare(f"{kind} memory of an engine that stays (plain: of one that sleeps)", size, "≤ 1.1")


def compare(what: str, size: dict[str, int], asked: str = "") -> None:
    """Print a row about KiB of memory."""
    plain, ours = size["plain"], size["ours"]
    row(what, f"{plain / 1024:.1f} MB", f"{ours / 1024:.1f} MB", f"{ours / plain:.3f}", asked)


def processor_time(pid: int) -> float:
    """Return seconds, precise to the nanosecond: the ticks of ``stat`` are too coarse."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory(pid: int, name: str) -> int:
    """Return a line of ``smaps_rollup``, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
