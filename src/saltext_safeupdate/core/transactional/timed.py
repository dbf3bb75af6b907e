"""One call of the tool that comes to its end in time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import CommandError
from ..host.command import Result, Run
from .family import MARK, Family, Process

# Seconds between two looks at a running call, and before the first one.
TICK = 1.0
FIRST_TICK = 0.1
# Seconds between SIGTERM and SIGKILL for a command that ran out of time.
TERM_GRACE = 5.0
# Seconds that the tool gets to drop its snapshot after its command is gone.
CLOSE_GRACE = 120.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a call ended: the tool's result, or the error, and whether it ran out of time."""

    result: Result | None = None
    error: CommandError | None = None
    timed_out: bool = False
    orphaned: bool = False


class TimedRun:
    """
    Runs the tool in a thread and ends what hangs in the one order that loses nothing.

    The tool waits for its command whatever signal it gets, and then discards the snapshot: also
    if the command ends with exit status 0, which it would commit otherwise. A signal to all
    processes leaves an open snapshot behind. So the tool itself is told first, then the command
    inside is ended; the tool drops the snapshot and lets go of its lock by itself.

    *watch* is called now and then with the processes of the call.
    """

    def __init__(
        self,
        run: Run,
        *,
        clock: Callable[[], float],
        watch: Callable[[Sequence[Process]], None],
    ) -> None:
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
                # Also if this process was told to stop: leave nothing open.
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
        tick = FIRST_TICK
        while not done.wait(min(tick, max(0.05, deadline - self._clock()))):
            tick = min(2 * tick, TICK)
            processes = family.members()
            self._watch(processes)
            alive = any(process.parent == os.getpid() for process in processes)
            if processes and not alive:
                # The tool is gone; the processes that it started continue and keep our pipe open.
                self._end_all(done, family)
                return False, True
            if self._clock() >= deadline:
                self._end_inside(done, family)
                return True, False
        return False, False

    def _end_inside(self, done: threading.Event, family: Family) -> None:
        """Tell the tool to discard, and end the command; the tool then closes by itself."""
        family.tell_tool(signal.SIGTERM)
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
    """Let SIGTERM raise SystemExit if it would end this process on the spot."""
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
