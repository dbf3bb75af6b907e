"""The processes of one call of the tool: found by a mark in their environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..host import hidden

# The mark that every process of a call inherits.
MARK = "SALT_SAFEUPDATE_CALL"
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process of a call, and whether it runs inside the transaction."""

    pid: int
    parent: int
    inside: bool


@dataclass(frozen=True)
class Family:
    """
    The processes of one call, whoever their parent is by now.

    They carry *mark* in their environment, descend from one that does, or descend from
    *seed*. A program may write over its environment (Salt does, with its title), and one
    whose parent was killed has another parent: hence all three.
    """

    mark: str
    seed: Callable[[], int | None] = lambda: None
    proc: Path = PROC

    def members(self) -> list[Process]:
        """Find those that live."""
        sought = f"{MARK}={self.mark}".encode()
        parents: dict[int, int] = {}
        known: dict[int, Process] = {}
        for entry in self.proc.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended meanwhile
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state in "ZX":
                continue
            pid = int(entry.name)
            parents[pid] = int(parent)
            if sought in words:
                told = (word.decode(errors="replace").partition("=")[::2] for word in words)
                inside = hidden.in_transaction(dict(told))
                known[pid] = Process(pid, int(parent), inside)
        seed = self.seed()
        if seed in parents:
            known[seed] = Process(seed, parents[seed], True)
        return self._with_descendants(known, parents)

    @staticmethod
    def _with_descendants(known: dict[int, Process], parents: dict[int, int]) -> list[Process]:
        """Add those below the *known* ones: what lost the mark runs inside."""
        growing = True
        while growing:
            growing = False
            for pid, parent in parents.items():
                if pid not in known and parent in known:
                    known[pid] = Process(pid, parent, True)
                    growing = True
        return list(known.values())

    def tell_tool(
        self, signum: signal.Signals, *, kill: Callable[[int, int], None] = os.kill
    ) -> None:
        """Send *signum* to the tool alone: to the one that this process started."""
        for process in self.members():
            if process.parent == os.getpid():
                with suppress(ProcessLookupError):
                    kill(process.pid, signum)

    def send(
        self,
        signum: signal.Signals,
        *,
        inside_only: bool,
        kill: Callable[[int, int], None] = os.kill,
    ) -> int:
        """Send *signum* to the members; return how many there were."""
        sent = 0
        for process in self.members():
            if process.pid == os.getpid() or (inside_only and not process.inside):
                continue
            with suppress(ProcessLookupError):
                kill(process.pid, signum)
                sent += 1
        return sent
