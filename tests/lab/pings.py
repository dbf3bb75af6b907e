"""Pings, published at a rate: how long each took, and which ones were lost or answered twice."""

from __future__ import annotations

import contextlib
import threading
import time

from devtools.command import ToolError
from devtools.experiment import MINION
from tests.lab.scene import Scene

# Seconds after which one that has no answer is not waited for any more.
LOST_AFTER = 60


class Pings:
    """
    Publishes *rate* pings a second, each to be answered once, but no more than *most* at a time.

    A ping begins when the master has published it. All times are in seconds.
    """

    def __init__(self, scene: Scene, *, rate: float, most: int) -> None:
        self._scene, self._rate, self._most = scene, rate, most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        # When each was published, and when it was answered, by its JID.
        self.sent: dict[str, float] = {}
        self.answered: dict[str, list[float]] = {}
        self._looked = len(scene.master.events)

    def __enter__(self) -> Pings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        deadline = time.monotonic() + LOST_AFTER
        while self._waiting() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            # What the machine is late with is not made up for.
            due = max(due + 1 / self._rate, time.monotonic())
            if self._waiting() >= self._most:
                continue
            # If the master does not take it, it was not published.
            with contextlib.suppress(ToolError):
                jid = self._scene.publish("test.ping")
                self.sent[jid] = time.time()

    def _waiting(self) -> int:
        fresh = self._scene.master.events[self._looked :]
        self._looked += len(fresh)
        for event in fresh:
            parts = event.tag.split("/")
            if parts[:2] == ["salt", "job"] and parts[3:] == ["ret", MINION]:
                self.answered.setdefault(parts[2], []).append(event.time)
        since = time.time() - LOST_AFTER
        return sum(at > since and jid not in self.answered for jid, at in list(self.sent.items()))

    def took(self, since: float, until: float) -> list[float]:
        """Return how long the answered ones of a time took; one may be answered at once."""
        return [
            max(0.0, self.answered[jid][0] - at)
            for jid, at in self.sent.items()
            if since <= at < until and jid in self.answered
        ]

    def longest(self, since: float, most: int = 5) -> str:
        """Return when the longest ones of since then were published, after it, and how long."""
        rows = [
            (self.answered[jid][0] - at, at - since)
            for jid, at in self.sent.items()
            if at >= since and jid in self.answered
        ]
        return ", ".join(f"{at:.1f}: {took:.2f}" for took, at in sorted(rows)[: -most - 1 : -1])

    def lost(self) -> int:
        return sum(jid not in self.answered for jid in self.sent)

    def twice(self) -> int:
        return sum(len(self.answered.get(jid, ())) > 1 for jid in self.sent)
