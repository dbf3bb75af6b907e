"""
The costs of a rollout for a master, with two hundred minions that only speak the real protocol.

All of the master is real: keys, channels, workers, job cache, engine. The minions are in this
process (``tests/support/swarm.py``), which decides how long their updates take. Some are rolled
back, and some fail. "Plain Salt" is the same master before the rollout, with all minions connected
and nothing to do. Unless a row says otherwise, memory is proportional. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import salt.config
import salt.runner
from bench_idle import memory
from bench_ledger import free_port, scratch
from table import row

from saltext_safeupdate.fleet.rollout import Step
from saltext_safeupdate.master.store import Store
from tests.support.swarm import Machine, Swarm, names
from tests.support.waiting import wait_for

COUNT, AT_ONCE = 200, 20
# Seconds that an update takes a minion, and for which an idle master is watched.
SHORTEST, LONGEST, IDLE = 10.0, 30.0, 30.0
# Seconds that the whole rollout may take before this gives up.
PATIENCE = 1800
OLD, NEW = "3007.15", "3008.3"
WANTED = {
    **{"version": NEW, "canaries": 0, "waves": ["100%"], "max_unavailable": AT_ONCE},
    **{"max_failed": "10%", "soak": 0, "jitter": 0, "sample": 0, "stage": False},
}
# The results of some minions, which the rollout has to report.
ENDS = {"m0030": "rolled_back", "m0100": "failed", "m0150": "rolled_back", "m0170": "failed"}
VERDICTS = {
    "committed": Step.DONE,
    "rolled_back": Step.ROLLED_BACK,
    "failed": Step.FAILED,
}
PROGRAM = Path(sys.executable).with_name("salt-master")


@contextlib.contextmanager
def master(home: Path) -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """Run a master with the engine; give its options and its process."""
    config = {
        **{"root_dir": str(home), "conf_file": str(home / "master"), "user": "root"},
        **{f"{name}_dir": str(home / name) for name in ("pki", "sock")},
        **{"cachedir": str(home / "cache"), "log_file": str(home / "log"), "id": "queen"},
        **{"interface": "127.0.0.1", "publish_port": free_port(), "ret_port": free_port()},
        **{"auto_accept": True, "worker_threads": 3, "log_level_logfile": "info"},
        "engines": [{"safeupdate_redeliver": {}}],
    }
    (home / "master").write_text(json.dumps(config))
    argv = [sys.executable, PROGRAM, "-c", home, "-l", "quiet"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        opts = salt.config.master_config(str(home / "master"))
        found = psutil.Process(process.pid)
        wait_for(lambda: engine(found), "the engine runs")
        yield opts, found
    finally:
        process.terminate()
        process.wait()


def engine(process: psutil.Process) -> psutil.Process | None:
    """Return the process of our engine, if it is there."""
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "safeupdate_redeliver" in " ".join(each.cmdline()):
                return each
    return None


class Cost:
    """The time and memory that processes take from here on."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self._processes = processes
        self._began, self._spent = time.monotonic(), self._seconds()

    def _seconds(self) -> float:
        return sum(sum(each.cpu_times()[:2]) for each in self._processes)

    def seconds(self) -> float:
        """Return the processor time so far, in seconds."""
        return self._seconds() - self._spent

    def load(self) -> str:
        passed = time.monotonic() - self._began
        return f"{self.seconds() / passed * 100:.1f} % of a core"

    def memory(self) -> float:
        """Return their proportional memory in megabytes: their own, and their part of shared."""
        return sum(memory(each.pid, "Pss") for each in self._processes) / 1024


def call(opts: dict[str, Any], fun: str, *args: object, **kwargs: object) -> Any:
    """Call a runner function."""
    client = salt.runner.RunnerClient(dict(opts))
    return client.cmd(f"safeupdate.{fun}", list(args), kwarg=kwargs, print_event=False)


def hosts() -> list[Machine]:
    dice = random.Random(1)
    return [
        Machine(
            name,
            takes=dice.uniform(SHORTEST, LONGEST),
            version=OLD,
            ends=ENDS.get(name, "committed"),
        )
        for name in names(COUNT)
    ]


def main() -> None:
    with scratch() as root, master(root) as (opts, process):
        began = time.monotonic()
        with Swarm(opts, hosts(), root / "swarm") as swarm:
            swarm.wait_until_up()
            row(f"{COUNT} minions sign in", f"{time.monotonic() - began:.1f} s")
            measure(opts, process, swarm)


def measure(opts: dict[str, Any], process: psutil.Process, swarm: Swarm) -> None:
    ours = engine(process)
    assert ours is not None
    everything = [process, *process.children(recursive=True)]
    idle, idle_all = Cost([ours]), Cost(everything)
    time.sleep(IDLE)
    loads, sizes = (idle.load(), idle_all.load()), (idle.memory(), idle_all.memory())

    began = time.monotonic()
    name = call(opts, "rollout", "*", background=True, **WANTED)["rollout"]
    row(f"planning and beginning a rollout to {COUNT}", "", f"{time.monotonic() - began:.1f} s")
    for host in swarm.hosts.values():
        host.heard.clear()
    swarm.heard.clear()
    swarm.sent.clear()
    store, busy, busy_all = Store(opts), Cost([ours]), Cost(everything)
    began = time.monotonic()
    wait_for(lambda: over(store, name), "the end of the rollout", PATIENCE)
    took = time.monotonic() - began
    loads_then, spent = (busy.load(), busy_all.load()), busy_all.seconds()
    report(store, name, swarm, took)

    what = f"a rollout to {COUNT} minions, {AT_ONCE} at once"
    sizes_then = (busy.memory(), busy_all.memory())
    for number, who in enumerate(("the engine", "the whole master")):
        row(f"{what}: processor of {who}", loads[number], loads_then[number])
        before, then = sizes[number], sizes_then[number]
        sized = f"{before:.0f} MB", f"{then:.0f} MB", f"{then / before:.2f}"
        row(f"{what}: memory of {who}", *sized)
    resident = memory(ours.pid, "Rss") / 1024
    row(f"{what}: resident memory of the engine", "", f"{resident:.0f} MB")
    row(f"{what}: processor of the whole master, each minion", "", f"{spent / COUNT:.2f} s")
    each = (sizes_then[1] - sizes[1]) / COUNT * 1024
    row(f"{what}: memory of the whole master, each minion", "", f"{each:.0f} KB")


def over(store: Store, name: str) -> bool:
    found = store.outline(name)
    return found is not None and found.mode.final


def report(store: Store, name: str, swarm: Swarm, took: float) -> None:
    """Compare the report of the rollout with the minions' own results."""
    what = f"a rollout to {COUNT} minions, {AT_ONCE} at once"
    found = store.rollout(name)
    assert found is not None
    least = sum(host.takes for host in swarm.hosts.values()) / AT_ONCE
    row(
        f"{what}: time (plain: the least, with {AT_ONCE} away all the time)",
        f"{least:.0f} s",
        f"{took:.0f} s",
        f"{took / least:.2f}",
    )
    row(f"{what}: most that were away at once", "", str(swarm.most_busy), "", f"≤ {AT_ONCE}")
    wrong = sum(
        found.minions[name].step is not VERDICTS[host.ends] for name, host in swarm.hosts.items()
    )
    verdicts = f"{COUNT - wrong} right, {wrong} wrong"
    row(f"{what}: what is reported about each minion", "", verdicts, "", "0 wrong")
    published = len({jid for host in swarm.hosts.values() for jid in host.heard})
    row(f"{what}: publications", "", str(published))
    heard, sent = sum(swarm.heard.values()), sum(swarm.sent.values())
    row(
        f"{what}: messages that a minion got, and returned",
        "",
        f"{heard / COUNT:.1f}, {sent / COUNT:.1f}",
    )


if __name__ == "__main__":
    main()
