"""
The costs of the extension for an idle minion, compared to one with plain Salt.

First, plain Salt has no engine, and both minions are compared with all their processes. Then it has
one too, which only sleeps, and the two engines are compared. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench_ledger import Client, Rig, scratch
from table import row

from devtools import processes

PINGS = 100
# Seconds of idle time: until the start is over, and while it is measured.
SETTLE, IDLE = 20, 120
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
    with scratch() as root:
        rig = Rig(root)
        with running(rig):
            time.sleep(SETTLE)
            size = {who: sum(memory(pid, "Pss") for pid in rig.pids(who)) for who in rig.minions}
            compare("proportional memory of an idle minion, all its processes", size)
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
        "processor time of an idle engine (plain: of one that sleeps)",
        f"{share['plain']:.3f} % of a core",
        f"{share['ours']:.3f} % of a core",
        "",
        "≤ 0.1 %",
    )
    for kind, name in (("resident", "Rss"), ("proportional", "Pss")):
        size = {engine: memory(pid, name) for engine, pid in engines.items()}
        compare(f"{kind} memory of an idle engine (plain: of one that sleeps)", size, "≤ 1.1")


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
