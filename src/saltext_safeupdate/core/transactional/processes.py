"""The processes of one call of the tool: found by a mark in their environment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import CommandError
from ..host.command import Result, Run

# The mark that every process of a call inherits.
MARK = "SALT_SAFEUPDATE_CALL"
PROC = Path("/proc")

# Seconds between two looks at a running call.
TICK = 1.0
# Seconds between SIGTERM and SIGKILL for a command that ran out of time.
TERM_GRACE = 5.0
# Seconds that the tool gets to drop its snapshot after its command is gone.
CLOSE_GRACE = 120.0


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
                inside = any(word.startswith(b"TRANSACTIONAL_UPDATE=") for word in words)
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


def start_time(pid: int, proc: Path = PROC) -> str | None:
    """Return what tells a process from a later one of the same pid."""
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a call ended: the tool's result, or the error, and whether it ran out of time."""

    result: Result | None = None
    error: CommandError | None = None
    timed_out: bool = False
    orphaned: bool = False


class Supervisor:
    """
    Runs the tool in a thread and ends what hangs in the one order that loses nothing.

    The tool waits for its command whatever signal it gets, and a signal to the whole
    group leaves an open snapshot behind. So the command inside is ended first; then the
    tool drops the snapshot and lets go of its lock by itself.
    """

    def __init__(self, run: Run, *, clock: Callable[[], float], watch: Callable[[], None]) -> None:
        self._run = run
        self._clock = clock
        self._watch = watch

    def __call__(self, argv: tuple[str, ...], family: Family, *, timeout: float) -> Ended:
        """Run *argv*; after *timeout* seconds end what it started."""
        box: list[Result | CommandError] = []
        done = threading.Event()

        def work() -> None:
            try:
                limit = timeout + TERM_GRACE + CLOSE_GRACE
                box.append(self._run(argv, timeout=limit, ok=None, env={MARK: family.mark}))
            except CommandError as err:
                box.append(err)
            finally:
                done.set()

        worker = threading.Thread(target=work, name="transactional-update", daemon=True)
        with _stoppable():
            worker.start()
            try:
                timed_out, orphaned = self._wait(done, family, timeout)
            finally:
                # Also where this process was told to stop: leave nothing open.
                if not done.is_set():
                    self._end_inside(done, family)
                worker.join()
        last = box[0] if box else None
        return Ended(
            result=last if isinstance(last, Result) else None,
            error=last if isinstance(last, CommandError) else None,
            timed_out=timed_out,
            # A tool that came to its own end may leave a child behind; that is no failure.
            orphaned=orphaned and (not isinstance(last, Result) or last.returncode < 0),
        )

    def _wait(self, done: threading.Event, family: Family, timeout: float) -> tuple[bool, bool]:
        """Wait for the end; return whether time ran out, and whether the tool was killed."""
        deadline = self._clock() + timeout
        while not done.wait(min(TICK, max(0.05, deadline - self._clock()))):
            self._watch()
            processes = family.members()
            alive = any(process.parent == os.getpid() for process in processes)
            if processes and not alive:
                # The tool is gone, what it started goes on and keeps our pipe open.
                self._end_all(done, family)
                return False, True
            if self._clock() >= deadline:
                self._end_inside(done, family)
                return True, False
        return False, False

    def _end_inside(self, done: threading.Event, family: Family) -> None:
        """End the command; the tool then closes by itself."""
        self._end(done, family, inside_only=True, patience=CLOSE_GRACE)

    def _end_all(self, done: threading.Event, family: Family) -> None:
        self._end(done, family, inside_only=False, patience=TERM_GRACE)

    def _end(
        self, done: threading.Event, family: Family, *, inside_only: bool, patience: float
    ) -> None:
        start = self._clock()
        signum = signal.SIGTERM
        family.send(signum, inside_only=inside_only)
        while not done.wait(TICK / 10) and self._clock() < start + TERM_GRACE + patience:
            if self._clock() >= start + TERM_GRACE:
                family.send(signal.SIGKILL, inside_only=inside_only)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM raise SystemExit where it would end this process on the spot."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)
