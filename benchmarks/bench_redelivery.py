"""
What redelivery costs a large master: 10,000 minions that all start at once, 100 jobs before it.

The engine runs as it does in a master, with its account on disk and the pipe of the workers; the
clock is driven. All have restarted together, a tenth has missed the last job, and each answers at
once; publishing is counted, not done. Nothing is asserted.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_ledger import scratch
from table import row

MINIONS, JOBS, MISSED = 10_000, 100, 0.1
WINDOW = 300.0
# Seconds of what follows the start.
SECONDS = 60
# How often in a second the engine reads what the workers have noted.
READS = 10
LOAD = b"x" * 2000


class Publisher:
    """Counts what would be published; the minions answer what they would."""

    def __init__(self, missed: Collection[str]) -> None:
        self.missed = missed
        self.queries = self.again = self.asked = 0
        self.answers: list[tuple[str, str, dict[str, str]]] = []

    def ask(
        self, minions: Iterable[str], jids: Iterable[str], aims: Sequence[Mapping[str, Any]]
    ) -> str:
        from saltext_safeupdate.core.jobs.meant import MISSED as SAID
        from saltext_safeupdate.core.jobs.meant import about

        self.queries += 1
        query = f"query{self.queries}"
        jobs = {number: jid for aim in aims for number, jid in aim["jobs"].items()}
        last = max(jobs, key=int)
        for minion in minions:
            self.asked += 1
            states = dict.fromkeys(jobs.values(), "delivered")
            if minion in self.missed and int(last) == JOBS:
                del states[jobs[last]]
                states[about(last)] = SAID
            self.answers.append((query, minion, states))
        return query

    def publish(self, number: int, jid: str, minions: Iterable[str]) -> list[str]:
        self.again += 1
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
        now = started - WINDOW / 2
        account = Account(str(root / "account.db"), since_boot=lambda: now)
        account.begin_anew()
        minions = [f"minion-{number:05}.example.com" for number in range(MINIONS)]

        # In a process of its own: the workers write that, not the engine.
        worker = os.fork()
        if not worker:
            spent = 0.0
            # As the engine does.
            account.anchor()
            for count in range(1, JOBS + 1):
                now += WINDOW / 2 / JOBS
                began = time.process_time()
                account.published(f"{20260101000000000000 + count}", LOAD, minions)
                spent += time.process_time() - began
            (root / "each").write_text(f"{spent / JOBS * 1000:.2f} ms")
            os._exit(0)
        if os.waitpid(worker, 0)[1]:
            raise SystemExit("the account could not be filled")
        row("processor time of writing down a publication", "", (root / "each").read_text())
        now = started
        account.anchor()
        before = resident()

        pipe, work = notes.Notes(), Publisher(frozenset(minions[: int(MINIONS * MISSED)]))
        following = follower.Follower(
            work, account, Calls(account), window=WINDOW, patience=10.0, clock=lambda: now
        )
        began = time.process_time()
        following.tick()
        row("learning all of it at a start", "", f"{time.process_time() - began:.2f} s")
        waiting: list[tuple[Any, ...]] = [(notes.START, minion) for minion in minions]
        spent, longest, ended = 0.0, 0.0, 0.0
        for part in range(SECONDS * READS):
            # What does not fit into the pipe now does later: minions repeat what they send.
            while waiting and pipe.write(*waiting[0]):
                waiting.pop(0)
            began = time.process_time()
            while taken := pipe.read(0):
                following.heard(taken)
            following.tick()
            took = time.process_time() - began
            spent, longest = spent + took, max(longest, took)
            waiting += [(notes.ANSWER, *answer) for answer in work.answers]
            ended = part / READS if work.answers else ended
            work.answers = []
            now += 1 / READS
        what = f"redelivery, {MINIONS:,} minions start at once, {JOBS:,} jobs in the window"
        row(f"{what}: processor", "", f"{spent:.1f} s", "", f"{5 * SECONDS / 100:g} s")
        row("the same: the longest pause of the engine", "", f"{longest:.2f} s")
        row("the same: the last question after the start", "", f"{ended:.1f} s")
        text = f"{resident():.0f} MB, of which {before:.0f} MB without any job"
        row("the same: resident memory of the engine", "", text, "", "≤ 150 MB")
        account.scrub()
        size = sum(path.stat().st_size for path in root.glob("account.db*")) / 1e6
        row("the same: account on disk", "", f"{size:.1f} MB", "", "≤ 64 MB")
        row("the same: queries", "", str(work.queries))
        row("the same: questions to minions", "", str(work.asked))
        row("the same: publications again", "", str(work.again))


if __name__ == "__main__":
    main()
