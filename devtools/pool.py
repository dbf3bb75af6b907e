"""Runs lanes side by side: at least two, and more while the machine is idle."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from devtools import processes, progress
from devtools.command import ToolError, check_stopping
from devtools.lanes import LaneResult

LEAST = 2
MOST = 8
# Seconds in which a new lane shows its load, before another one begins.
SETTLE_INTERVAL = 4.0
# The share of all processors that has to be idle before another lane begins.
ROOM = 0.1
# Bytes that have to be free before another lane begins: a booted minion and a master take a fifth.
MEMORY = 3 << 30


class Runnable(Protocol):
    """Something to run; *busy* means that it mostly computes and does not wait."""

    @property
    def name(self) -> str: ...

    @property
    def busy(self) -> bool: ...

    @property
    def seconds(self) -> float: ...

    def run(self) -> LaneResult: ...


class Idle:
    """Measures the share of the processors that was idle lately, for all users together."""

    def __init__(self, interval: float = SETTLE_INTERVAL) -> None:
        self._interval = interval
        self._samples: deque[tuple[float, int, int]] = deque()

    def __call__(self) -> float:
        now = time.monotonic()
        first = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(word) for word in first.split()[1:9]]
        self._samples.append((now, ticks[3], sum(ticks)))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._interval:
            self._samples.popleft()
        (began, idle, total), (_, idle_now, total_now) = self._samples[0], self._samples[-1]
        if now - began < self._interval or total_now == total:
            return 0.0
        return (idle_now - idle) / (total_now - total)


class Pool:
    """
    Runs all *lanes*, the longest first, and returns their results.

    One lane that computes runs together with lanes that mostly wait for Salt, as long as there are
    both. While the machine is idle, as many compute as it has processors. *later* makes lanes that
    need something to be built, while the first ones run.
    """

    def __init__(
        self,
        lanes: Sequence[Runnable],
        *,
        later: Callable[[], Sequence[Runnable]] = tuple,
        least: int = LEAST,
        most: int | None = None,
        computing: int | None = None,
        idle: Callable[[], float] | None = None,
        memory: Callable[[], int] = processes.free_memory,
        settle: float = SETTLE_INTERVAL,
    ) -> None:
        self._later = later
        self._pending: list[Runnable] = []
        self._add(lanes)
        self._least = least
        self._computing = computing or os.cpu_count() or 1
        self._most = most or max(MOST, 2 * (os.cpu_count() or 1))
        self._idle, self._memory, self._settle = idle or Idle(settle), memory, settle
        self._running: list[Runnable] = []
        self._results: list[LaneResult] = []
        self._threads: list[threading.Thread] = []
        # A signal may end the main thread anywhere, so it shares no lock with the lanes.
        self._ended: queue.SimpleQueue[tuple[Runnable, LaneResult]] = queue.SimpleQueue()
        self._began = 0.0

    def run(self) -> list[LaneResult]:
        try:
            with ThreadPoolExecutor(max_workers=1) as maker:
                made = [maker.submit(self._later)]
                while made or self._pending or self._running:
                    check_stopping()
                    if made and made[0].done():
                        self._add(made.pop().result())
                    while self._pending and self._room():
                        self._begin()
                    with contextlib.suppress(queue.Empty):
                        lane, result = self._ended.get(timeout=1.0)
                        self._running.remove(lane)
                        self._results.append(result)
        finally:
            # A lane that was interrupted undoes its work.
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()
        return self._results

    def _add(self, lanes: Sequence[Runnable]) -> None:
        self._pending = sorted([*self._pending, *lanes], key=lambda lane: -lane.seconds)

    def _room(self) -> bool:
        idle = self._idle()
        if len(self._running) < self._least:
            return True
        settled = time.monotonic() - self._began > self._settle
        few = len(self._running) < self._most
        return settled and few and idle > ROOM and self._memory() > MEMORY

    def _begin(self) -> None:
        computing = sum(lane.busy for lane in self._running)
        few = 0 < computing < self._computing and len(self._running) >= self._least
        fitting = (lane for lane in self._pending if few or lane.busy is not (computing > 0))
        lane = next(fitting, self._pending[0])
        self._pending.remove(lane)
        self._running.append(lane)
        self._began = time.monotonic()
        thread = threading.Thread(target=self._work, args=(lane,), name=lane.name)
        self._threads.append(thread)
        thread.start()

    def _work(self, lane: Runnable) -> None:
        began = time.monotonic()
        try:
            result = lane.run()
        except ToolError as err:
            progress.say(f"{lane.name}: {err}")
            result = LaneResult(lane.name, -1, time.monotonic() - began, closing=_first(err))
        except BaseException as err:
            result = LaneResult(lane.name, -1, time.monotonic() - began, closing=repr(err))
            raise
        finally:
            self._ended.put((lane, result))


def _first(err: Exception) -> str:
    return str(err).splitlines()[0]
