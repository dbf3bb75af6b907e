"""
The costs of the ledger: a real master, a minion without and one with the extension, in turns.

The plain minion does not have the extension installed: Salt loads parts of each that is.

Prints medians side by side, so that a busy machine slows both. Nothing is asserted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from table import row

from saltext_safeupdate.core.host.processes import descendants

ROUNDS = 60
PARALLEL = 200
PARALLEL_ROUNDS = 2
BLOCKS, BLOCK = 6, 25
FINISHED = 10_000
MANY = 100_000
STATES, CUT = 1000, 900
STATE_SECONDS = 0.02
MEGABYTES = 20

MODULE = '''
import multiprocessing.util
import time


def big(megabytes, path):
    """Return a text of that size; when the process ends, write down its peak of memory."""

    def note():
        with open("/proc/self/status") as status, open(path, "w") as out:
            out.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))

    multiprocessing.util.Finalize(None, note, exitpriority=10)
    return "x" * (megabytes << 20)
'''
STATE = """
import time


def slow(name, seconds):
    time.sleep(seconds)
    return {"name": name, "result": True, "changes": {"did": name}, "comment": "done"}
"""


def places(path: Path) -> dict[str, str]:
    """Return settings by which a minion shares no directory with the host's own."""
    names = {"state_dir": "state", "run_dir": "run", "registry_dir": "registry"}
    return {name: str(path / place) for name, place in names.items()}


class Rig:
    """One master and two minions on free ports of the loopback."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        publish, ret = free_port(), free_port()
        self.master = {
            **_common(root / "m"),
            "interface": "127.0.0.1",
            "publish_port": publish,
            "ret_port": ret,
            "auto_accept": True,
            "worker_threads": 3,
        }
        minion = {"master": "127.0.0.1", "master_port": ret, "publish_port": publish}
        plain = {**_common(root / "p"), **minion, "id": "plain"}
        ours = {
            **_common(root / "o"),
            **minion,
            "id": "ours",
            "module_executors": ["safeupdate", "direct_call"],
            "engines": [{"safeupdate": {}}],
            "safeupdate": places(root / "o"),
        }
        self.minions = {"plain": plain, "ours": ours}
        self.database = str(root / "o/state/safeupdate.db")

    def start(self) -> None:
        for folder, who, name, config in (
            ("m", "master", "master", self.master),
            ("p", "plain", "minion", self.minions["plain"]),
            ("o", "ours", "minion", self.minions["ours"]),
        ):
            path = self.root / folder
            (path / "modules").mkdir(parents=True)
            (path / "modules" / "bench.py").write_text(MODULE)
            (path / name).write_text(json.dumps({**config, "module_dirs": [str(path)]}))
            self._begin(who, name, path)

    def _begin(self, who: str, name: str, path: Path) -> None:
        argv = [*program(f"salt-{name}", who), "-c", str(path), "-l", "quiet"]
        self._processes[who] = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def end(self, who: str) -> None:
        """End a minion with all its processes."""
        self._processes[who].terminate()
        self._processes[who].wait(120)

    def begin(self, who: str) -> None:
        """Start a minion again."""
        self._begin(who, "minion", self.root / {"plain": "p", "ours": "o"}[who])

    def main(self, who: str) -> int:
        """Return the PID of the minion's process that listens to the master."""
        top = self._processes[who].pid
        return int(Path(f"/proc/{top}/task/{top}/children").read_text().split()[0])

    def pids(self, who: str) -> list[int]:
        """Return all processes of a minion."""
        top = self._processes[who].pid
        return [top, *descendants(top)]

    def wait(self) -> None:
        sockets = [self.root / "m/sock" / f"{n}.ipc" for n in ("master_event_pub", "publish_pull")]
        deadline = time.monotonic() + 90
        while not all(path.exists() for path in sockets):
            if time.monotonic() > deadline:
                raise SystemExit("the master did not come up")
            time.sleep(0.1)

    def processor_time(self, who: str) -> float:
        """Return the seconds that a minion and its children have used, including ended ones."""
        parents, used = {}, {}
        for entry in os.listdir("/proc"):
            # A process may end meanwhile. Then its parent has its time.
            with contextlib.suppress(OSError):
                if entry.isdigit():
                    fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                    parents[int(entry)], used[int(entry)] = int(fields[1]), fields[11:15]
        root, ticks = self._processes[who].pid, 0
        for pid, its in used.items():
            ancestor = pid
            while ancestor not in (0, root):
                ancestor = parents.get(ancestor, 0)
            if ancestor == root:
                ticks += sum(map(int, its))
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def program(name: str, who: str) -> list[str]:
    """Return how a program of Salt begins: the extension is installed for "ours" only."""
    python = sys.executable if who == "ours" else os.environ["PLAIN_PYTHON"]
    return [python, str(Path(python).with_name(name))]


def _common(root: Path) -> dict[str, Any]:
    return {
        "root_dir": str(root),
        "pki_dir": str(root / "pki"),
        "cachedir": str(root / "cache"),
        "sock_dir": str(root / "sock"),
        "pidfile": str(root / "pid"),
        "log_file": str(root / "log"),
        "user": "root",
        "acceptance_wait_time": 1,
    }


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Client:
    """Publishes jobs and waits for the returns."""

    def __init__(self, config: Path) -> None:
        import salt.client
        import salt.exceptions
        import salt.utils.event

        self._not_yet = salt.exceptions.SaltClientError
        self._local = salt.client.LocalClient(c_path=str(config))
        self._bus = salt.utils.event.get_master_event(
            self._local.opts, self._local.opts["sock_dir"], listen=True
        )
        self._bus.subscribe("salt/job/")
        self._bus.subscribe("salt/minion/")
        self.lost = 0

    def wait_for(self, minion: str) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            # A master that has just been started does not answer yet.
            with contextlib.suppress(self._not_yet):
                if self._local.cmd(minion, "test.ping", timeout=3).get(minion) is True:
                    return
        raise SystemExit(f"the minion {minion} did not come up")

    def wait_start(self, minion: str, since: datetime) -> None:
        """Wait until a minion has reported a start after *since*, and has answered."""
        deadline = time.monotonic() + 90
        stamp = since.astimezone(timezone.utc).replace(tzinfo=None).isoformat()
        while time.monotonic() < deadline:
            event = self._bus.get_event(wait=1, tag=f"salt/minion/{minion}/start")
            if event and event["_stamp"] >= stamp:
                self.round_trip(minion)
                return
        raise SystemExit(f"the minion {minion} did not start")

    def publish(self, minion: str, fun: str, *args: Any) -> str:
        sent = self._local.pub([minion], fun, list(args), tgt_type="list")
        return str(sent["jid"])

    def collect(self, jids: set[str], timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while jids and time.monotonic() < deadline:
            event = self._bus.get_event(wait=1, full=True)
            parts = event["tag"].split("/") if event else []
            if len(parts) == 5 and parts[3] == "ret":
                jids.discard(parts[2])
        self.lost += len(jids)

    def round_trip(self, minion: str) -> float:
        began = time.perf_counter()
        self.collect({self.publish(minion, "test.echo", "text")})
        return time.perf_counter() - began

    def together(self, minion: str) -> float:
        began = time.perf_counter()
        self.collect({self.publish(minion, "test.echo", str(n)) for n in range(PARALLEL)})
        return time.perf_counter() - began


def acknowledges() -> bool:
    """Return whether plain Salt passes the master's acknowledgement on to the job's process."""
    import salt.version

    return not str(salt.version.__version__).startswith("3007.")


def compare(client: Client, what: str, measure: str, rounds: int, limit: str) -> None:
    found: dict[str, list[float]] = {"plain": [], "ours": []}
    late = {"plain": 0, "ours": 0}
    for number in range(rounds):
        # In turns, each first as often as the other.
        for minion in ("plain", "ours") if number % 2 else ("ours", "plain"):
            client.lost = 0
            found[minion].append(getattr(client, measure)(minion))
            late[minion] += client.lost
    plain, ours = (statistics.median(found[name]) for name in ("plain", "ours"))
    row(what, f"{plain * 1000:.1f} ms", f"{ours * 1000:.1f} ms", f"{ours / plain:.3f}", limit)
    if any(late.values()):
        lost = (str(late[name]) for name in ("plain", "ours"))
        row(f"{what}: no return within 120 s", *lost)


def processor(client: Client, rig: Rig) -> None:
    used = {"plain": 0.0, "ours": 0.0}
    for number in range(BLOCKS):
        for minion in ("plain", "ours") if number % 2 else ("ours", "plain"):
            before = rig.processor_time(minion)
            for _ in range(BLOCK):
                client.round_trip(minion)
            used[minion] += rig.processor_time(minion) - before
    each = {minion: seconds / (BLOCKS * BLOCK) * 1000 for minion, seconds in used.items()}
    row(
        "processor time of a job",
        *(f"{each[minion]:.1f} ms" for minion in ("plain", "ours")),
        f"{each['ours'] / each['plain']:.3f}",
        "≤ 1.03",
    )


def memory(client: Client, rig: Rig) -> None:
    peaks = {}
    for minion in ("plain", "ours"):
        path = rig.root / f"peak-{minion}"
        client.collect({client.publish(minion, "bench.big", MEGABYTES, str(path))})
        deadline = time.monotonic() + 30
        while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        peaks[minion] = int(path.read_text()) / 1024
    row(
        f"peak memory of a job that returns {MEGABYTES} MB",
        f"{peaks['plain']:.0f} MB",
        f"{peaks['ours']:.0f} MB",
        f"{peaks['ours'] / peaks['plain']:.2f}",
        "≤ 1.1",
    )


def fill(database: str, count: int) -> None:
    """Put jobs into the ledger that were delivered long ago."""
    from saltext_safeupdate.core.jobs.ledger import Ledger

    with Ledger(database).transaction() as db:
        db.executemany(
            "INSERT INTO jobs (key, jid, fun, master, state, owner, runner, accepted, changed, "
            "attempts) VALUES (?, ?, 'state.apply', '127.0.0.1', 'delivered', ?, ?, 1, 1, 1)",
            ((f"old{n}", f"old{n}", "o" * 60, "r" * 60) for n in range(count)),
        )


def size(root: Path) -> None:
    from saltext_safeupdate.core.jobs.ledger import Ledger

    ledger = Ledger(str(root / "size" / "safeupdate.db"))
    ledger.anchor()
    block = 1000
    most = 0
    for start in range(0, MANY, block):
        with ledger.transaction(durable=False) as db:
            for number in range(start, start + block):
                jid = f"{20260101000000000000 + number}"
                db.execute(
                    "INSERT INTO jobs (key, jid, fun, master, state, owner, runner, accepted, "
                    "changed, attempts) VALUES (?, ?, 'cmd.run', '127.0.0.1', 'delivered', ?, ?, "
                    "1, 1, 1)",
                    (jid, jid, "o" * 60, "r" * 60),
                )
                db.execute("INSERT INTO contents VALUES (?, ?, ?)", (jid, b"c" * 300, b"p" * 2000))
            db.execute("DELETE FROM contents")
        ledger.prune()
        ledger.scrub()
        most = max(most, os.path.getsize(ledger.path))
    row(f"database after {MANY:,} jobs, at most", "", f"{most / 1e6:.1f} MB", "", "≤ 20 MB")


def resuming(root: Path) -> None:
    import salt.client
    import salt.config

    from saltext_safeupdate import hooks
    from saltext_safeupdate.core.host import locks
    from saltext_safeupdate.core.jobs import current
    from saltext_safeupdate.core.jobs.ledger import Ledger

    base = root / "r"
    (base / "states").mkdir(parents=True)
    (base / "states" / "bench.py").write_text(STATE)
    (base / "srv").mkdir()
    sls = "".join(f"s{n}:\n  bench.slow:\n    - seconds: {STATE_SECONDS}\n" for n in range(STATES))
    (base / "srv" / "many.sls").write_text(sls)
    settings = places(base)
    opts = {
        **salt.config.minion_config(None),
        **_common(base),
        "id": "resumed",
        "file_client": "local",
        "file_roots": {"base": [str(base / "srv")]},
        "states_dirs": [str(base / "states")],
        "engines": [{"safeupdate": {}}],
        "safeupdate": settings,
        "log_level": "quiet",
    }
    hooks.install(opts)
    caller = salt.client.Caller(mopts=opts)
    ledger = Ledger(os.path.join(settings["state_dir"], "safeupdate.db"))
    ledger.anchor()

    def run(key: str, attempt: int) -> float:
        lock = locks.Lock(settings["run_dir"], "jobs")
        lock.try_shared()
        current.begin(current.Job(jid=key, lock=lock, key=key, attempt=attempt))
        began = time.perf_counter()
        ret = caller.cmd("state.sls", "many")
        seconds = time.perf_counter() - began
        current.end()
        if len(ret) != STATES or not all(value["result"] for value in ret.values()):
            raise SystemExit(f"the run failed: {str(ret)[:500]}")
        return seconds

    run("warm", 1)
    whole = run("cut", 1)
    with ledger.transaction() as db:
        db.execute(
            "DELETE FROM chunks WHERE key = 'cut' AND tag NOT IN (SELECT tag FROM chunks WHERE "
            "key = 'cut' ORDER BY CAST(substr(tag, instr(tag, '_|-s') + 4) AS INTEGER) LIMIT ?)",
            (CUT,),
        )
    resumed = run("cut", 2)
    row(
        f"{STATES:,} states of {STATE_SECONDS * 1000:.0f} ms again, or resumed after {CUT}",
        f"{whole:.1f} s",
        f"{resumed:.1f} s",
        f"{whole / resumed:.1f} times as fast",
        "≥ 5 times",
    )


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    # The path of a socket has to be short.
    path = Path(tempfile.mkdtemp(prefix="sb"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    with scratch() as root:
        size(root)
        rig = Rig(root)
        rig.start()
        try:
            rig.wait()
            client = Client(root / "m" / "master")
            for minion in ("plain", "ours"):
                client.wait_for(minion)
            for minion in ("plain", "ours"):
                client.round_trip(minion)
            compare(client, "round trip of a job", "round_trip", ROUNDS, "≤ 1.03")
            if acknowledges():
                compare(
                    client, f"{PARALLEL} jobs in parallel", "together", PARALLEL_ROUNDS, "≤ 1.1"
                )
            else:
                # Without the extension every job of this Salt waits half a minute for an
                # acknowledgement that it does not pass on.
                row(f"{PARALLEL} jobs in parallel: not measured, plain Salt does not end them")
            processor(client, rig)
            memory(client, rig)
            fill(rig.database, FINISHED)
            compare(
                client, f"round trip with {FINISHED} finished jobs", "round_trip", ROUNDS, "≤ 1.03"
            )
        finally:
            rig.stop()
        resuming(root)


if __name__ == "__main__":
    main()
