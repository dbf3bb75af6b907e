"""Watches a container while an experiment runs and notes what happens when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from devtools.command import ToolError
from devtools.lab.container import Container

POLL_INTERVAL = 0.25
DPKG_LOG = "/var/log/dpkg.log"
INTERESTING = ("upgrade ", "install ", "configure ", "status half-configured ", "status installed ")


@dataclass(frozen=True)
class Moment:
    """Something that was seen, in seconds of the host's clock."""

    time: float
    what: str


@dataclass
class Observer:
    """Polls package log and service; ``seen`` names a moment as soon as it has happened.

    The moments: ``unpack``, ``configure``, ``installed`` (the package), ``stopping``,
    ``stopped``, ``restarted``, ``running`` (the service; the last two with a new process).
    """

    container: Container
    on_moment: Callable[[str], None] = lambda name: None
    timeline: list[Moment] = field(default_factory=list)
    seen: dict[str, float] = field(default_factory=dict)
    service: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._dpkg_lines = len(self.container.read(DPKG_LOG, "").splitlines())
        self.service = self.container.service()
        self._first_pid = self.service.get("MainPID")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def note(self, what: str, moment: str | None = None) -> None:
        self.timeline.append(Moment(time.time(), what))
        if moment and moment not in self.seen:
            self.seen[moment] = time.time()
            self.on_moment(moment)

    def _watch(self) -> None:
        while not self._stop.wait(POLL_INTERVAL):
            if not self.container.is_up:
                continue
            try:
                self._look_at_packages()
                self._look_at_service()
            except (OSError, ToolError):
                continue  # a container that goes down while we look

    def _look_at_packages(self) -> None:
        lines = self.container.read(DPKG_LOG, "").splitlines()
        for line in lines[self._dpkg_lines :]:
            event = line[20:]
            if "salt" not in event or not event.startswith(INTERESTING):
                continue
            moment = None
            if event.startswith(("upgrade ", "install ")):
                moment = "unpack"
            elif event.startswith("configure "):
                moment = "configure"
            elif event.startswith("status installed "):
                moment = "installed"
            self.note(f"dpkg: {event}", moment)
        self._dpkg_lines = len(lines)

    def _look_at_service(self) -> None:
        now = self.container.service()
        before, self.service = self.service, now
        watched = ("ActiveState", "SubState", "MainPID")
        if all(now.get(key) == before.get(key) for key in watched):
            return
        text = f"service: {now.get('ActiveState')}/{now.get('SubState')} pid {now.get('MainPID')}"
        moment = None
        if now.get("MainPID") not in ("0", self._first_pid):
            moment = "running" if now.get("ActiveState") == "active" else "restarted"
        elif now.get("ActiveState") == "deactivating":
            moment = "stopping"
        elif now.get("ActiveState") in ("inactive", "failed"):
            moment = "stopped"
        self.note(text, moment)
