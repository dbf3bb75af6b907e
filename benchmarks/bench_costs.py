"""
The costs of the extension at each start of Salt: `salt-call`, a minion, its memory, its disk.

Everything is measured in pairs, plain Salt and ours in turns, each first as often as the other. The
ratio is the median of the ratios of the pairs. Processor time is user and system time of all
processes, so a busy machine changes it little. Nothing is asserted.
"""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from bench_idle import memory
from bench_ledger import Client, Rig, _common, places, program, scratch
from table import row

import saltext_safeupdate
from devtools import processes

CALLS, STARTS, JOBS = 40, 16, 5
ASLEEP = 8
WHO = ("plain", "ours")
Figures = dict[str, list[float]]


def pairs(count: int, measure: Callable[[str], float]) -> Figures:
    """Measure plain Salt and ours in turns."""
    found: Figures = {who: [] for who in WHO}
    for number in range(count):
        for who in WHO if number % 2 else reversed(WHO):
            found[who].append(measure(who))
    return found


def tell(what: str, found: Figures, form: str, asked: str = "") -> None:
    plain, ours = (statistics.median(found[who]) for who in WHO)
    ratios = [one / other for one, other in zip(found["ours"], found["plain"], strict=True)]
    row(what, form.format(plain), form.format(ours), f"{statistics.median(ratios):.3f}", asked)


def main() -> None:
    # pip does that, too, when it installs. Otherwise each start would compile the code.
    compileall.compile_dir(Path(str(saltext_safeupdate.__file__)).parent, quiet=1)
    with scratch() as root:
        calls(root / "c")
        disk()
        rig = Rig(root)
        rig.start()
        try:
            rig.wait()
            client = Client(root / "m" / "master")
            for who in WHO:
                client.wait_for(who)
            starts(rig, client)
            memories(rig, client)
        finally:
            rig.stop()


def calls(root: Path) -> None:
    """`salt-call` without a master, as a cron job or a person starts it."""
    for who in WHO:
        config = {**_common(root / who), "id": who, "file_client": "local"}
        if who == "ours":
            executors = ["safeupdate", "direct_call"]
            config |= {"module_executors": executors, "safeupdate": places(root / who)}
        (root / who).mkdir(parents=True)
        (root / who / "minion").write_text(json.dumps(config))
    single = ("state.single", "test.nop", "name=it")
    for what, asked in (("test.ping",), "≤ 1.02"), (single, "≤ 1.03"):
        walls: Figures = {who: [] for who in WHO}

        def call(who: str, what: Sequence[str] = what, walls: Figures = walls) -> float:
            argv = [*program("salt-call", who), "-c", str(root / who), "-l", "quiet", *what]
            began = time.perf_counter()
            # Waiting with a timeout would look for its end every 0.05 s only.
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
            _, status, spent = os.wait4(process.pid, 0)
            walls[who].append(time.perf_counter() - began)
            if status:
                raise SystemExit(f"{' '.join(argv)} failed")
            return spent.ru_utime + spent.ru_stime

        # The first call of each is not counted: it creates directories.
        for who in WHO:
            call(who)
            walls[who].clear()
        name = f"`salt-call {what[0]}`"
        tell(f"processor time of a {name}", pairs(CALLS, call), "{:.2f} s", asked)
        tell(f"a {name}, by the clock", walls, "{:.2f} s", asked)


def disk() -> None:
    """The size of Salt on a minion's disk, without and with the extension."""
    import salt

    plain = size(Path(str(salt.__file__)).parent)
    ours = plain + size(Path(str(saltext_safeupdate.__file__)).parent)
    told = (f"{bytes_ / 1e6:.2f} MB" for bytes_ in (plain, ours))
    row("Salt's code on the disk, without byte code", *told, f"{ours / plain:.3f}")


def size(directory: Path) -> int:
    files = (path for path in directory.rglob("*") if path.suffix != ".pyc" and path.is_file())
    return sum(path.stat().st_size for path in files)


def starts(rig: Rig, client: Client) -> None:
    """A minion from its start until it has answered."""
    walls: Figures = {who: [] for who in WHO}

    def start(who: str) -> float:
        rig.end(who)
        since, began = datetime.now(timezone.utc), time.perf_counter()
        rig.begin(who)
        client.wait_start(who, since)
        walls[who].append(time.perf_counter() - began)
        return rig.processor_time(who)

    figures = pairs(STARTS, start)
    tell("processor time of a start, until the minion answers", figures, "{:.2f} s", "≤ 1.05")
    tell("a start until the minion answers, by the clock", walls, "{:.2f} s", "≤ 1.01")


def memories(rig: Rig, client: Client) -> None:
    """The resident and the own memory of the main process, and of the process of a job."""
    mains = {who: rig.main(who) for who in WHO}
    settled(rig, mains)
    for kind, name in (("resident", "Rss"), ("proportional", "Pss")):
        found = {who: [memory(pid, name) / 1024] for who, pid in mains.items()}
        tell(f"{kind} memory of the minion's main process", found, "{:.1f} MB", "≤ 1.05")
    sizes: dict[str, Figures] = {name: {who: [] for who in WHO} for name in ("Rss", "Pss")}

    def job(who: str) -> float:
        before = set(processes_of(mains[who]))
        jid = client.publish(who, "test.sleep", str(ASLEEP))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # The last process that was started for the job runs it.
            new = [pid for pid in processes_of(mains[who]) if pid not in before and runs(pid, jid)]
            if new:
                break
            time.sleep(0.05)
        else:
            raise SystemExit(f"the job of {who} did not begin")
        # When its function sleeps, it has imported everything.
        time.sleep(ASLEEP / 4)
        for name, figures in sizes.items():
            figures[who].append(memory(new[-1], name) / 1024)
        client.collect({jid})
        return 0.0

    pairs(JOBS, job)
    tell("resident memory of the process of a job", sizes["Rss"], "{:.1f} MB", "≤ 1.05")
    tell("proportional memory of the process of a job", sizes["Pss"], "{:.1f} MB", "≤ 1.05")


def settled(rig: Rig, mains: dict[str, int]) -> None:
    """Wait until our engine runs, and no process of a job shares the memory of a minion."""
    lock = Path(rig.minions["ours"]["safeupdate"]["run_dir"], "engine.lock")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        engines = processes.holders(lock) if lock.exists() else []
        children = {who: processes_of(pid) for who, pid in mains.items()}
        if engines and children == {"plain": [], "ours": engines}:
            return
        time.sleep(0.5)
    raise SystemExit("the minions did not come to rest")


def processes_of(parent: int) -> list[int]:
    """Return the children of a process."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()]


def runs(pid: int, jid: str) -> bool:
    return any(jid in word for word in processes.arguments(pid))


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main()
