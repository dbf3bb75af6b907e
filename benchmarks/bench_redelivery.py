"""
What redelivery costs a large master: 10,000 minions, 1,000 jobs in the window, 5 % away.

The engine runs as it does in a master, with its account on disk and the pipe of the workers; the
clock is driven, so that some minutes of traffic take as long as they cost. Publishing is counted,
not done. Nothing is asserted.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_ledger import scratch
from table import row

MINIONS, JOBS, AWAY = 10_000, 1_000, 0.05
WINDOW = 3600.0
# Seconds of traffic that are measured: each job of these is returned by all that are there.
SECONDS = 300
# How often in a second the engine reads what the workers have noted.
READS = 10
LOAD = b"x" * 2000


class Publisher:
    """Counts what would be published; nobody answers."""

    def __init__(self) -> None:
        self.queries = 0

    def ask(
        self, minions: Iterable[str], jids: Iterable[str], aims: Sequence[Mapping[str, Any]]
    ) -> str:
        self.queries += 1
        return f"query{self.queries}"

    def publish(
        self, number: int, jid: str, minions: Iterable[str], times: Mapping[str, int]
    ) -> list[str]:
        return list(minions)


def resident() -> float:
    """Return the megabytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    from saltext_safeupdate.core.host import processes
    from saltext_safeupdate.master import follower, notes
    from saltext_safeupdate.master.account import Account
    from saltext_safeupdate.master.calls import Calls

    # The engine has more in memory than what is measured here: all that it imports.
    importlib.import_module("saltext_safeupdate.master.engine")
    with scratch() as root:
        started = processes.since_boot()
        now = started - WINDOW
        account = Account(str(root / "account.db"), since_boot=lambda: now)
        minions = [f"minion-{number:05}.example.com" for number in range(MINIONS)]
        there = minions[int(MINIONS * AWAY) :]
        away = minions[: int(MINIONS * AWAY)]
        published = [0.0]
        count = 0

        def publish() -> str:
            nonlocal count
            count += 1
            began = time.process_time()
            account.published(f"{20260101000000000000 + count}", LOAD, minions)
            published[0] += time.process_time() - began
            return f"{20260101000000000000 + count}"

        # In a process of its own: the workers write that, not the engine.
        worker = os.fork()
        if not worker:
            for _ in range(JOBS):
                now += WINDOW / JOBS
                publish()
            account.settle([], {one.number: away for one in account.since(0)})
            (root / "each").write_text(f"{published[0] / JOBS * 1000:.2f} ms")
            os._exit(0)
        if os.waitpid(worker, 0)[1]:
            raise SystemExit("the account could not be filled")
        row("processor time of writing down a publication", "", (root / "each").read_text())
        now, count = started, JOBS
        account.anchor()
        before = resident()

        pipe, work = notes.Notes(), Publisher()
        keys = frozenset(minions)
        following = follower.Follower(
            work, account, Calls(account), window=WINDOW, accepted=lambda: keys, clock=lambda: now
        )
        began = time.process_time()
        following.tick()
        row("learning all of it at a start", "", f"{time.process_time() - began:.2f} s")
        spent, dropped = 0.0, 0
        waiting: list[tuple[str, str]] = []
        for second in range(SECONDS):
            if int(second * JOBS / WINDOW) > int((second - 1) * JOBS / WINDOW):
                jid = publish()
                waiting += [(jid, minion) for minion in there]
            share, waiting = waiting[: 2 * MINIONS], waiting[2 * MINIONS :]
            for part in range(READS):
                for jid, minion in share[part::READS]:
                    dropped += not pipe.write(notes.RETURN, jid, minion)
                began = time.process_time()
                while taken := pipe.read(0):
                    following.heard(taken)
                following.tick()
                spent += time.process_time() - began
                now += 1 / READS
        load = spent / SECONDS * 100
        row(
            f"redelivery, {MINIONS:,} minions, {JOBS:,} jobs in the window, 5 % away: processor",
            "",
            f"{load:.1f} % of a core",
            "",
            "≤ 5 %",
        )
        text = f"{resident():.0f} MB, of which {before:.0f} MB without any job"
        row("the same: resident memory of the engine", "", text, "", "≤ 150 MB")
        size = sum(path.stat().st_size for path in root.glob("account.db*")) / 1e6
        row("the same: account on disk", "", f"{size:.1f} MB", "", "≤ 64 MB")
        row(f"the same: queries in {SECONDS} s", "", str(work.queries))
        row("the same: notes that did not fit into the pipe", "", str(dropped))


if __name__ == "__main__":
    main()
