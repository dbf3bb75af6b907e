"""
The costs of the ordering in a state run without own packages: with the hooks and with plain Salt.

Both sides run in turns in one process, so that a busy machine slows both. The figures are the
processor time of each turn, and the median of the ratios of the pairs. Nothing is asserted.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import salt.config
import salt.loader
import salt.state
from bench_ledger import places
from table import row

from saltext_safeupdate import hooks
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current

SIZES = {1_000: 41, 10_000: 7}
AIM = 1.02


def options(directory: str) -> dict[str, Any]:
    opts: dict[str, Any] = salt.config.minion_config(None)
    opts.update(
        id="bench",
        file_client="local",
        local=True,
        root_dir=directory,
        cachedir=f"{directory}/cache",
        pki_dir=f"{directory}/pki",
        sock_dir=f"{directory}/sock",
        extension_modules=f"{directory}/extmods",
        file_roots={"base": [directory]},
        pillar_roots={"base": [directory]},
        module_executors=["safeupdate", "direct_call"],
        safeupdate=places(Path(directory)),
    )
    opts["grains"] = salt.loader.grains(opts)
    return opts


def high(number: int) -> dict[str, Any]:
    return {
        f"state{index}": {
            "test": ["nop", {"order": 10_000 + index}],
            "__sls__": "bench",
            "__env__": "base",
        }
        for index in range(number)
    }


class Sides:
    """Puts the hooks into Salt and takes them out again, between two runs."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._places = [salt.state.State]
        self._run_dir = opts["safeupdate"]["run_dir"]
        self._plain = self._seen()
        hooks.install(opts)
        self._ours = self._seen()

    def _seen(self) -> list[dict[str, Any]]:
        return [dict(vars(place)) for place in self._places]

    def plain(self) -> None:
        current.end()
        self._put(self._plain)

    def ours(self) -> None:
        """With the hooks, and as a job that the ledger records, like published jobs."""
        self._put(self._ours)
        lock = locks.Lock(self._run_dir, "jobs")
        lock.try_shared()
        current.begin(current.Job(jid="1", lock=lock, key="1"))

    def _put(self, side: list[dict[str, Any]]) -> None:
        for place, names in zip(self._places, side, strict=True):
            for name, value in names.items():
                known = callable(value) or isinstance(value, classmethod)
                if known and vars(place)[name] is not value:
                    setattr(place, name, value)


def measure(put: Callable[[], None], opts: dict[str, Any], size: int) -> float:
    put()
    state = salt.state.State(opts)
    # The first state of a run loads modules. That is not measured here.
    state.call_high(high(1))
    data = high(size)
    gc.collect()
    gc.disable()
    began = time.process_time()
    results = state.call_high(data)
    took = time.process_time() - began
    gc.enable()
    if len(results) != size:
        raise SystemExit(f"{size} states were asked for and {len(results)} ran")
    return took


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        opts = options(directory)
        sides = Sides(opts)
        for size, rounds in SIZES.items():
            measure(sides.plain, opts, size)
            pairs = []
            for number in range(rounds):
                # Each side is first in turns.
                first, second = (
                    (sides.plain, sides.ours) if number % 2 else (sides.ours, sides.plain)
                )
                times = {put: measure(put, opts, size) for put in (first, second)}
                pairs.append((times[sides.plain], times[sides.ours]))
            plain, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(mine / theirs for theirs, mine in pairs)
            row(
                f"{size:,} states without an own package, processor time",
                f"{plain:.3f} s",
                f"{ours:.3f} s",
                f"{ratio:.3f}",
                f"≤ {AIM}",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
